//! The laboratory of the autoscaler: a simulated workload under a load, training of Q-tables, and the comparison of policies.
//!
//! Pure. The policies are those of `drover_autoscaling`, which the agent runs too; no service depends on this crate.

pub mod experiment;
pub mod sim;
