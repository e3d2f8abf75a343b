//! CGS-DDPG as published, rebuilt: a policy learned by deep deterministic policy gradients. Experimental (see [`Learned`]).
//!
//! ```text
//! World (state, mask, reward) ──▶ Agent (actor, critic, targets, replay) ──▶ Training ──▶ Learned
//! ```

mod agent;
#[cfg(test)]
mod gradients;
mod learned;
mod net;
mod train;
mod world;

pub use agent::{Action, Learning};
pub use learned::{ConstantOrder, Learned, SavedError, collapsed, entropy};
pub use train::{Trained, Training};
pub use world::{Reward, World};
