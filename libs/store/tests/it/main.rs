//! Tests of the crate on real Postgres servers.
#![allow(clippy::unwrap_used, reason = "tests, and what helps them")]

mod failpoints;
mod pool;
mod private_postgres;
mod store;
