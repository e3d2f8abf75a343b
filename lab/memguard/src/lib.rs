//! The laboratory of the memory guard: simulated nodes and jobs, and the paper's experiment on them.
//!
//! This crate is pure. It runs the decisions of `drover_memguard`, as the agent does; no service depends on it.

pub mod experiment;
pub mod simulate;
