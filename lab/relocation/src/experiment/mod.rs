//! The data of `drover experiment occupancy`, `rejection` and `replay`. The caller makes the reports.

mod days;
mod occupancy;
mod rejection;

pub use days::{DaysArm, days_arms};
pub use occupancy::{MARKS, OccupancyArm, OccupancyCase, OccupancySample, occupancy};
pub use rejection::{Avoidable, RejectionArm, RejectionCase, rejection};

use std::convert::Infallible;

use drover_scheduling::{Policy, WhenFull};

use crate::draw::{Draw, NodeSize};
use crate::hub::Preference;
use crate::replay::{Replay, Strategy, replay};

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

/// Carries out a draw under a strategy: in memory, or on clusters.
pub type Runner<'r, E> = dyn FnMut(&Draw, NodeSize, Preference, &Strategy) -> Result<Replay, E> + 'r;

/// Carries out a draw on a fleet in memory.
///
/// # Errors
/// Never; the result has the type that a deployed run needs.
pub fn in_memory(draw: &Draw, size: NodeSize, preference: Preference, strategy: &Strategy) -> Result<Replay, Infallible> {
    Ok(replay(draw, size, preference, strategy))
}

fn drover(policy: Policy, when_full: WhenFull) -> Strategy {
    Strategy::Drover { policy, when_full, steps: PLAN_STEPS }
}
