//! CGS-DDPG as published, reconstructed: a policy learned by deep deterministic policy gradients. Experimental (see [`LearnedPolicy`]).
//!
//! ```text
//! PlacementEpisode (state, mask, reward) ──▶ Agent (actor, critic, targets, replay) ──▶ Training ──▶ LearnedPolicy
//! ```

mod agent;
mod episode;
#[cfg(test)]
mod gradients;
mod learned;
mod net;
mod train;

pub use agent::{ActionEncoding, Learning};
pub use episode::{PlacementEpisode, Reward};
pub use learned::{ConstantOrder, LearnedPolicy, SavedError, collapsed, entropy};
pub(crate) use net::{Adam, Mlp};
pub use train::{Trained, Training};
