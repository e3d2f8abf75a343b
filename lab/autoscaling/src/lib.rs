//! The autoscaler's laboratory: a simulated workload under load, training of Q-tables, and a comparison of policies.
//!
//! Pure. The policies are those of `drover_autoscaling`, which the agent runs too. No service depends on this crate.

pub mod experiment;
pub mod sim;
