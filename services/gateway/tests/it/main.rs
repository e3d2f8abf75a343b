//! The gateway as its clients see it, over TCP.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests, though not functions with the attribute")]

mod access;
mod proxy;
mod repeated;
