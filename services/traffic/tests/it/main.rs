//! The data path with real sockets: pods are stand-ins on addresses of their own, the feeds are those that a test publishes.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests, though not functions with the attribute")]

mod change;
mod connections;
mod killed;
mod protocols;
mod requests;
mod support;
mod vanished;
