//! Tests of placement through its REST interface, against a fake cluster manager.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod decisions;
mod ledger;
mod pipeline;
mod support;
mod upgrade;
