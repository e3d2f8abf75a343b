//! Tests of the pure core through its public API: rules one by one, and properties over random worlds.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod calling;
mod calling_plans;
mod displaced;
mod exhaustive;
mod fitting;
mod instance;
mod ledger_model;
mod observe;
mod placing;
mod plans;
mod policies;
mod speed;
mod world;
