//! The policies that `drover experiment replay` compares.

use drover_scheduling::{Policy, WhenFull};

use crate::days::DaysPolicy;
use crate::policy::{paper_policy, scoring_policy};

/// A policy with its name.
#[derive(Clone, Debug)]
pub struct DaysArm {
    pub name: &'static str,
    /// What it does, for the reader of a table.
    pub what: &'static str,
    pub policy: DaysPolicy,
}

/// All policies.
pub fn days_arms() -> Vec<DaysArm> {
    let drover = |policy, when_full| DaysPolicy::Drover { policy, when_full };
    let arm = |name, what, policy| DaysArm { name, what, policy };
    vec![
        arm("never", "no migration", DaysPolicy::Never),
        arm("preemption", "Kubernetes: applications of lower priority are killed and wait on their member", DaysPolicy::Preemption),
        arm("drover", "no policy", drover(Policy::default(), WhenFull::Overflow)),
        arm("drover, order", "order CPUUtilization, Dispersion", drover(paper_policy(), WhenFull::Overflow)),
        arm("drover, scoring", "scoring CPUUtilization + Dispersion", drover(scoring_policy(), WhenFull::Overflow)),
        arm("drover, preferred", "no policy, whenFull: preferred", drover(Policy::default(), WhenFull::Preferred)),
        arm("hindsight", "best fit that knows all arrivals and departures, without moves", DaysPolicy::Hindsight),
        arm("pooled", "estimate of the possible: the same, all members with a label are one", DaysPolicy::Pooled),
    ]
}
