//! Handlers: extract, call the app, convert.

pub mod claims;
pub mod clusters;
pub mod decisions;
pub mod explain;
pub mod transactions;
