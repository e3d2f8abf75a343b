//! The request path: the proxies over loopback TCP with real servers, failures and draining, and keeper and activator with a real API server.

#![allow(clippy::unwrap_used, reason = "support code of tests")]

mod activator;
mod chaos;
mod cluster;
mod heads;
mod queue_proxy;
mod real;
mod reporter;
mod shares;
mod support;
mod throttler;
mod zero;
