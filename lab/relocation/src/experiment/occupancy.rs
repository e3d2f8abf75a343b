//! The occupancy of private and public clusters after some of the deployments.

use drover_scheduling::{Policy, WhenFull};

use super::{Plan, Runner, drover};
use crate::draw::{Draw, NodeSize};
use crate::fleet::Occupancy;
use crate::hub::Preference;
use crate::replay::{Replay, Strategy};

/// The numbers of deployments after which is measured.
pub const MARKS: [usize; 3] = [5, 10, 15];

/// One draw under one strategy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OccupancySample {
    /// The occupancy after each of [`MARKS`].
    pub occupancy: [Occupancy; MARKS.len()],
    /// Number of applications that run then.
    pub running: [usize; MARKS.len()],
}

/// All draws under one strategy.
#[derive(Clone, Debug, PartialEq)]
pub struct OccupancyArm {
    pub name: &'static str,
    /// One sample for each draw, in the order of the seeds.
    pub samples: Vec<OccupancySample>,
}

/// All strategies on the same draws, with one size of the clusters.
#[derive(Clone, Debug, PartialEq)]
pub struct OccupancyCase {
    /// Mean demand in percent of what the clusters have.
    pub percent: u32,
    pub arms: Vec<OccupancyArm>,
}

impl OccupancyCase {
    /// The draws under a strategy.
    pub fn arm(&self, name: &str) -> &[OccupancySample] {
        self.arms.iter().find(|arm| arm.name == name).map_or(&[], |arm| &arm.samples)
    }
}

/// Measures all draws with and without provider priority, with and without migration. `done` is called after each draw.
///
/// # Errors
/// Those of `run`.
pub fn occupancy<E>(plan: &Plan, run: &mut Runner<'_, E>, done: &dyn Fn()) -> Result<Vec<OccupancyCase>, E> {
    let moves = || drover(Policy::default(), WhenFull::Overflow);
    let arms = [
        ("neither", Preference::NONE, Strategy::Reject),
        ("priority", Preference::PRIVATE_FIRST, Strategy::Reject),
        ("migration", Preference::NONE, moves()),
        ("both", Preference::PRIVATE_FIRST, moves()),
    ];
    let case = |percent: &u32| {
        let size = NodeSize::for_demand(*percent);
        let mut case = OccupancyCase { percent: *percent, arms: Vec::new() };
        case.arms.extend(arms.iter().map(|(name, ..)| OccupancyArm { name, samples: Vec::new() }));
        for seed in plan.seed..plan.seed + plan.draws {
            let draw = Draw::new(seed);
            for (arm, (_, preference, strategy)) in case.arms.iter_mut().zip(&arms) {
                arm.samples.push(OccupancySample::of(&run(&draw, size, *preference, strategy)?));
            }
            done();
        }
        Ok(case)
    };
    plan.demands.iter().map(case).collect()
}

impl OccupancySample {
    fn of(run: &Replay) -> Self {
        // With these strategies what runs once runs to the end.
        let running = |mark: usize| run.arrivals[..mark].iter().filter(|arrival| arrival.runs).count();
        Self { occupancy: MARKS.map(|mark| run.occupancy[mark - 1]), running: MARKS.map(running) }
    }
}
