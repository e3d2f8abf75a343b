//! Handlers of routes that are not documents. They extract the request, call the app and convert the result.

pub mod plans;
pub mod policy_tests;
