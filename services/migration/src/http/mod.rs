//! Handlers of what is no document: extract, call the app, convert.

pub mod plans;
pub mod policy_tests;
