//! Tests of orchestrator over REST, with a database of its own and peers in memory.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests, though not functions with the attribute")]

mod agents;
mod base;
mod bounds;
mod claims;
mod clouds;
mod contention;
mod controllers;
mod documents;
mod everywhere;
mod fakes;
mod generic;
mod lifecycle;
mod measured;
mod metrics;
mod once;
mod outward;
mod readside;
mod refusals;
mod reliefs;
mod relocation;
mod replanning;
mod scenarios;
mod scheduling;
mod sealed;
mod stateful;
mod support;
mod tasks;
mod updating;
