//! Handlers: extract the request, call the app, convert the answer.

pub mod claims;
pub mod clusters;
pub mod decisions;
pub mod explain;
pub mod transactions;
