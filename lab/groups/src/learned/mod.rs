//! The training of the learned policy, whose placing is in `drover_scheduling::groups::learned`.
//!
//! ```text
//! generate: instances ──▶ imitate (cgs-search labels states)  ─┐
//!                         actor_critic (DDPG, shared network) ─┼──▶ train: best weights by validation ──▶ LearnedModel
//!                         rollouts (the objective labels)     ─┘
//! ```

mod actor_critic;
mod generate;
mod imitate;
mod policy;
mod rollouts;
mod samples;
mod train;

pub use actor_critic::ActorCritic;
pub use generate::{InstanceRanges, generated_app};
pub use imitate::Imitation;
pub use policy::{GuardedPlacement, Learned};
pub use rollouts::Rollouts;
pub use train::{LearnedResult, LearnedTraining, Stage, TrainingProgress};

use std::collections::BTreeMap;

use drover_scheduling::groups::Layout;
use drover_scheduling::groups::learned::{Construction, rank};

/// The objective and, at the end, 1 for each container that is left out.
fn worth(construction: &Construction<'_>, end: bool) -> f64 {
    let layout = construction.layout();
    if end { finished(layout) } else { layout.value() }
}

/// The objective, and 1 for each container that has no place.
fn finished(layout: &Layout<'_>) -> f64 {
    layout.value() + rank(layout).0 as f64
}

/// What `cgs-greedy` would make of a placement under construction, and the containers that it has placed or left out.
fn completed<'i>(construction: &Construction<'i>) -> (Layout<'i>, Vec<u32>) {
    let open: Vec<u32> = construction.waiting().collect();
    let mut layout: Layout<'i> = construction.layout().clone();
    let mut of: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    open.iter().for_each(|c| of.entry(layout.instance().group_of(*c)).or_default().push(*c));
    let groups = crate::greedy::heaviest_first(layout.instance(), &of.into_values().collect::<Vec<_>>());
    crate::greedy::fill(&mut layout, &groups, &|l, unit, place| l.value_with(unit, place));
    (layout, open)
}
