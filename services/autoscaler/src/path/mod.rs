//! The request path of KPA: queue-proxy and activator.
