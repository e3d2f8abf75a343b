//! The data path with real sockets: pods are stand-ins on addresses of their own, the feeds are those that a test publishes.

mod change;
mod connections;
mod killed;
mod protocols;
mod requests;
mod support;
