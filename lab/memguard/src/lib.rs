//! The laboratory of the memory guard: simulated nodes and jobs, and the paper's experiment on them.
//!
//! Pure. The guard is that of `drover_memguard`, which the agent runs too; no service depends on this crate.

pub mod experiment;
pub mod simulate;
