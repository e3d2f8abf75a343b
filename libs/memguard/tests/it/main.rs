//! Tests of the memory guard's decisions: who may be held at all, and the safety rules that hold for every policy.

#![allow(clippy::unwrap_used, reason = "a test reports a failure by panicking")]

mod eligibility;
mod node;
mod properties;
