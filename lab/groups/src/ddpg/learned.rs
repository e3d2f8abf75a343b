//! A trained policy: how it places, how it is saved in a file, and how a collapse is detected.
//!
//! Experimental: it depends on the number and the order of the places that it was trained on, and it does not beat the policies
//! that are not learned (docs/how-to/group-placement.md says by how much). Improve its placements with `cgs-search`, or use only that.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::agent::{ActionEncoding, activate, choice};
use super::episode::{PlacementEpisode, Reward};
use super::net::Mlp;
use crate::policy::{Placed, Policy};
use crate::search::Search;
use drover_scheduling::groups::{Instance, Weights};

/// `cgs-ddpg`: each copy of a group goes to the place with room that the actor scores best.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LearnedPolicy {
    pub(super) actor: Mlp,
    pub(super) action: ActionEncoding,
    pub(super) affinity: bool,
    /// Seed of its training.
    pub seed: u64,
    /// Number of updates of its training; 0 if it is untrained.
    pub updates: usize,
}

/// The version of the file format.
const FORMAT: u32 = 1;

/// The content of a policy file.
#[derive(Serialize, Deserialize)]
struct Saved {
    format: u32,
    /// SHA-256 of the weights as little-endian f32, in hexadecimal digits.
    checksum: String,
    policy: LearnedPolicy,
}

/// Why a policy cannot be saved or loaded.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// The text is not the JSON of a policy.
    #[error("this is not a saved policy: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// The file was written in another version of the format.
    #[error("the policy has format {0}, this program reads {FORMAT}; train it again")]
    Format(u32),
    /// The weights are damaged.
    #[error("the policy is damaged: its checksum does not match its weights, or its layers do not fit together; train it again")]
    Damaged,
}

impl LearnedPolicy {
    /// Saves the policy as JSON with version and checksum.
    ///
    /// # Errors
    /// When a weight is not finite, because training diverged.
    pub fn save(&self) -> Result<String, SavedError> {
        if !self.actor.sound() {
            return Err(SavedError::Damaged);
        }
        Ok(serde_json::to_string(&Saved { format: FORMAT, checksum: self.checksum(), policy: self.clone() })?)
    }

    /// Loads what [`LearnedPolicy::save`] has written.
    ///
    /// # Errors
    /// When the text is no saved policy, has another version, or is damaged.
    pub fn load(text: &str) -> Result<Self, SavedError> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let version: Version = serde_json::from_str(text)?;
        if version.format != FORMAT {
            return Err(SavedError::Format(version.format));
        }
        let saved: Saved = serde_json::from_str(text)?;
        let policy = saved.policy;
        let fits = policy.actor.sound() && policy.actor.sizes()[0] == PlacementEpisode::width(policy.places(), policy.affinity);
        if fits && policy.checksum() == saved.checksum { Ok(policy) } else { Err(SavedError::Damaged) }
    }

    /// The number of places that it was trained on.
    pub fn places(&self) -> usize {
        self.actor.sizes().last().copied().unwrap_or(0)
    }

    fn checksum(&self) -> String {
        let mut sum = Sha256::new();
        self.actor.params.iter().for_each(|p| sum.update(p.to_le_bytes()));
        sum.finalize().iter().map(|b| format!("{b:02x}")).collect()
    }

    /// Its placement, improved by a search.
    pub fn polished(&self, instance: &Instance, weights: &Weights, search: &Search) -> Placed {
        search.polish(instance, weights, &self.place(instance, weights))
    }
}

impl Policy for LearnedPolicy {
    fn name(&self) -> String {
        if self.updates == 0 { "cgs-ddpg untrained" } else { "cgs-ddpg" }.to_owned()
    }

    /// On an instance with another number of places it has learned nothing, and every container is unplaced.
    fn place(&self, instance: &Instance, weights: &Weights) -> Placed {
        let mut world = PlacementEpisode::new(instance, weights, Reward::Delta, self.affinity);
        while instance.places().len() == self.places() && world.unit().is_some() {
            let mask = world.mask();
            let mut scores = self.actor.forward(&world.state(), 1).output().to_vec();
            activate(self.action, &mut scores, &mask);
            world.step(choice(&scores, &mask));
        }
        Placed::of(world.layout(), weights, 0)
    }
}

/// A fixed order of the places: each unit goes to the first place that has room. An untrained actor amounts to this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConstantOrder(pub Vec<usize>);

impl ConstantOrder {
    /// The best order for this instance among the natural one, its reverse, and `tries` random ones.
    pub fn best(instance: &Instance, weights: &Weights, tries: usize, seed: u64) -> (Self, Placed) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let given: Vec<usize> = (0..instance.places().len()).collect();
        let mut orders = vec![given.clone(), given.iter().rev().copied().collect()];
        orders.extend((0..tries).map(|_| {
            let mut order = given.clone();
            rng.shuffle(&mut order);
            order
        }));
        let placed = |order: Vec<usize>| {
            let policy = Self(order);
            let placed = policy.place(instance, weights);
            (policy, placed)
        };
        let key = |p: &Placed| (p.unplaced.len(), p.value);
        let mut all = orders.into_iter().map(placed);
        let first = all.next().unwrap_or_else(|| placed(given));
        all.fold(first, |best, next| if key(&next.1) < key(&best.1) { next } else { best })
    }
}

impl Policy for ConstantOrder {
    fn name(&self) -> String {
        "constant order".to_owned()
    }

    fn place(&self, instance: &Instance, weights: &Weights) -> Placed {
        let mut world = PlacementEpisode::new(instance, weights, Reward::Delta, false);
        while world.unit().is_some() {
            let mask = world.mask();
            let Some(place) = self.0.iter().copied().find(|p| mask.get(*p) == Some(&true)) else { break };
            world.step(place);
        }
        Placed::of(world.layout(), weights, 0)
    }
}

/// Entropy of the chosen places in nats; 0 if all containers are on one place.
pub fn entropy(instance: &Instance, placed: &Placed) -> f64 {
    let mut counts = vec![0.0; instance.places().len()];
    placed.at.iter().flatten().for_each(|p| counts[*p] += 1.0);
    let all: f64 = counts.iter().sum();
    -counts.iter().filter(|c| **c > 0.0).map(|c| c / all * (c / all).ln()).sum::<f64>()
}

/// Whether a policy has collapsed: it puts everything on one place, while the best known placement uses several.
pub fn collapsed(instance: &Instance, placed: &Placed, best: &Placed) -> bool {
    entropy(instance, placed) <= 0.0 && entropy(instance, best) > 0.0
}
