//! Resource-synchronizer over REST, with a database of its own and simulated or real members.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bindings;
mod bounds;
mod carried;
mod gateways;
mod hooks;
mod imports;
mod names;
mod parting;
mod reachability;
mod real;
mod scaled;
mod serving;
mod sharing;
mod stateful;
mod support;
mod trouble;
