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

use drover_scheduling::groups::learned::Construction;

/// The objective and, at the end, 1 for each container that is left out.
fn worth(construction: &Construction<'_>, end: bool) -> f64 {
    let layout = construction.layout();
    let left_out = if end { drover_scheduling::groups::learned::rank(layout).0 } else { 0 };
    layout.value() + left_out as f64
}
