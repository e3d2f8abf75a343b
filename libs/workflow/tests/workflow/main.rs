//! The engine against a real Postgres, with a made-up move and made-up members.
#![allow(clippy::unwrap_used, reason = "tests, and what helps them")]

mod fixture;
mod hands;
mod leases;
mod lifecycle;
mod parking;
mod properties;
