//! Tests of migration through its REST interface, against a fake placement and a fake orchestrator.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod documents;
mod plans;
mod reliefs;
mod support;
