//! What every service has: answers, tokens, feeds, clients of other services, settings, supervised tasks.
//!
//! `tests/traces.rs` is a program of its own, because telemetry is started once per process.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests, though not functions with the attribute")]

mod clients;
mod codes;
mod config;
mod connections;
mod listening;
mod router;
mod tasks;
