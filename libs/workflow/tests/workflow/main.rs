//! Tests of the engine on a real Postgres, with a small workflow and a simulated member.
#![allow(clippy::unwrap_used, reason = "tests, and what helps them")]

mod engines;
mod fixture;
mod leases;
mod lifecycle;
mod parking;
mod properties;
mod starts;
