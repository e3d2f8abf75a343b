//! The policies that are compared.

use drover_scheduling::{AlgorithmUse, Policy, PolicyMode, builtin_algorithms, builtin_parameters};

/// The paper's policy: the least busy app moves first, and of equally busy ones that of the application that is spread most.
pub fn paper_policy() -> Policy {
    policy(PolicyMode::Order, &["CPUUtilization", "Dispersion"])
}

/// The same two algorithms as a sum with equal weights.
pub fn scoring_policy() -> Policy {
    policy(PolicyMode::Scoring, &["CPUUtilization", "Dispersion"])
}

fn policy(mode: PolicyMode, algorithms: &[&str]) -> Policy {
    Policy {
        name: algorithms.join("-"),
        mode,
        algorithms: algorithms.iter().map(|name| AlgorithmUse { algorithm: (*name).to_owned(), ..AlgorithmUse::default() }).collect(),
        cascade_depth: 0,
        definitions: builtin_algorithms(),
        parameters: builtin_parameters(),
    }
}
