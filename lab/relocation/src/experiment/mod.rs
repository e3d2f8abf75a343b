//! The data of `drover experiment occupancy`, `rejection` and `replay`. The caller makes the reports.

mod days;
mod occupancy;
mod rejection;

pub use days::{DaysArm, days_arms};
pub use occupancy::{MARKS, OccupancyArm, OccupancyCase, OccupancySample, occupancy};
pub use rejection::{Avoidable, RejectionArm, RejectionCase, rejection};

use drover_scheduling::{Policy, WhenFull};

use crate::replay::Strategy;

/// Limit on the steps of each plan. No plan of these draws needs as many.
const PLAN_STEPS: u64 = 1_000_000;
/// Limit on the steps of the exact search for each set of applications.
const PACKING_STEPS: u64 = 1_000_000;

/// Which draws are made.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seed of the first draw; those of the others follow.
    pub seed: u64,
    pub draws: u64,
    /// Mean demand in percent of what the clusters have.
    pub demands: Vec<u32>,
}

impl Plan {
    /// Number of draws in all, each of which is reported as done.
    pub fn runs(&self) -> u64 {
        self.draws * self.demands.len() as u64
    }
}

fn drover(policy: Policy, when_full: WhenFull) -> Strategy {
    Strategy::Drover { policy, when_full, steps: PLAN_STEPS }
}
