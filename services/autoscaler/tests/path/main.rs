//! The request path: the proxies over loopback TCP before real servers, their death, their draining, and the activator before a real API server.

#![allow(clippy::unwrap_used, reason = "support code of tests")]

mod activator;
mod chaos;
mod cluster;
mod queue_proxy;
mod real;
mod reporter;
mod room;
mod shares;
mod support;
mod zero;
