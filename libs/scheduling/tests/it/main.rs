//! Tests of the crate through its public API: single rules, and properties of random fleets.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests, though not functions with the attribute")]

mod calling;
mod calling_plans;
mod displaced;
mod exhaustive;
mod fitting;
mod growing;
mod instance;
mod learned;
mod learned_plain;
mod ledger_model;
mod observe;
mod placing;
mod plans;
mod policies;
mod scheduler;
mod search;
mod speed;
mod test_fleet;
