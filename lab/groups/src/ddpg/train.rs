//! Training: episodes over a set of instances with decreasing noise. The best weights are chosen by a validation set. Deterministic by
//! seed.

use serde::{Deserialize, Serialize};

use super::agent::{ActionEncoding, Agent, Learning, Transition, activate, choice};
use super::episode::{PlacementEpisode, Reward};
use super::learned::LearnedPolicy;
use crate::policy::{Placed, Policy};
use drover_scheduling::groups::{Instance, Weights};

/// The settings of a training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Training {
    pub reward: Reward,
    /// Whether the state includes the unit's calls to each place.
    pub affinity: bool,
    pub learning: Learning,
    /// Number of updates, one per step; the paper's curve is stable after about 4,200.
    pub updates: usize,
    /// Standard deviation of the Gaussian noise on the actor's outputs at the first and at the last update (not in the paper).
    pub noise: (f32, f32),
    /// Number of updates between two validations.
    pub validate: usize,
}

impl Training {
    /// The training as the paper describes it.
    pub fn paper(updates: usize) -> Self {
        Self { reward: Reward::Path, affinity: false, learning: Learning::default(), updates, noise: (0.5, 0.02), validate: 250 }
    }

    /// The training with its faults corrected: the rewards sum up to the final placement, the critic sees the executed action, and the
    /// state includes calls.
    pub fn delta(updates: usize) -> Self {
        let learning = Learning { action: ActionEncoding::OneHot, discount: 1.0, replay: 20_000, ..Learning::default() };
        Self { reward: Reward::Delta, affinity: true, learning, ..Self::paper(updates) }
    }
}

/// The result and the course of a training.
#[derive(Clone, Debug)]
pub struct Trained {
    /// The policy with the best weights by the validation set.
    pub best: LearnedPolicy,
    /// The policy with the initial weights.
    pub untrained: LearnedPolicy,
    /// For each episode, updates so far and mean reward of a step.
    pub rewards: Vec<(usize, f64)>,
    /// For each validation, updates so far and mean objective over the validation set.
    pub validation: Vec<(usize, f64)>,
}

impl Training {
    /// Trains on instances that all have the same number of places. `watch` is called with the number of updates done.
    pub fn run(&self, on: &[Instance], validation: &[Instance], weights: &Weights, seed: u64, watch: &mut dyn FnMut(usize)) -> Trained {
        let mut rng = fastrand::Rng::with_seed(seed);
        let places = on.iter().map(|i| i.places().len()).max().unwrap_or(1);
        let mut agent = Agent::new(PlacementEpisode::width(places, self.affinity), places, &self.learning, &mut rng);
        let untrained = self.learned(&agent, seed, 0);
        let judge = |learned: &LearnedPolicy| {
            let worth = |placed: Placed| placed.value + placed.unplaced.len() as f64;
            validation.iter().map(|i| worth(learned.place(i, weights))).sum::<f64>() / validation.len().max(1) as f64
        };
        let mut trained = Trained { rewards: Vec::new(), validation: vec![(0, judge(&untrained))], best: untrained.clone(), untrained };
        let mut least = trained.validation[0].1;
        let mut updates = 0;
        while updates < self.updates {
            let mut world = PlacementEpisode::new(&on[rng.usize(0..on.len())], weights, self.reward, self.affinity);
            let (mut earned, mut steps) = (0.0, 0);
            while world.unit().is_some() && updates < self.updates {
                let fade = updates as f32 / self.updates as f32;
                let noise = self.noise.0 + (self.noise.1 - self.noise.0) * fade;
                let transition = self.step(&mut world, &agent, noise, &mut rng);
                earned += f64::from(transition.reward);
                steps += 1;
                agent.remember(transition);
                if agent.ready() {
                    agent.update(&mut rng);
                    updates += 1;
                    watch(updates);
                    if updates % self.validate == 0 || updates == self.updates {
                        let learned = self.learned(&agent, seed, updates);
                        let value = judge(&learned);
                        trained.validation.push((updates, value));
                        if value < least {
                            (least, trained.best) = (value, learned);
                        }
                    }
                }
            }
            if steps == 0 {
                break; // nothing in these instances can be placed
            }
            trained.rewards.push((updates, earned / f64::from(steps)));
        }
        trained
    }

    fn learned(&self, agent: &Agent, seed: u64, updates: usize) -> LearnedPolicy {
        LearnedPolicy { actor: agent.actor.clone(), action: self.learning.action, affinity: self.affinity, seed, updates }
    }

    /// Executes one step: the actor's choice with noise, masked.
    fn step(&self, world: &mut PlacementEpisode<'_>, agent: &Agent, noise: f32, rng: &mut fastrand::Rng) -> Transition {
        let (state, mask) = (world.state(), world.mask());
        let mut action = agent.actor.forward(&state, 1).output().to_vec();
        match self.learning.action {
            ActionEncoding::Scores => {
                activate(ActionEncoding::Scores, &mut action, &mask);
                action.iter_mut().zip(&mask).filter(|(_, fits)| **fits).for_each(|(a, _)| *a = (*a + noise * gauss(rng)).clamp(-1.0, 1.0));
            }
            ActionEncoding::OneHot => action.iter_mut().for_each(|a| *a += noise * gauss(rng)),
        }
        let place = choice(&action, &mask);
        if self.learning.action == ActionEncoding::OneHot {
            action.iter_mut().enumerate().for_each(|(p, a)| *a = f32::from(u8::from(p == place)));
        }
        let reward = world.step(place) as f32;
        Transition { state, mask, action, reward, next: world.state(), next_mask: world.mask(), end: world.unit().is_none() }
    }
}

/// A normally distributed random number, by Box and Muller.
fn gauss(rng: &mut fastrand::Rng) -> f32 {
    (-2.0 * (1.0 - rng.f32()).ln()).sqrt() * (std::f32::consts::TAU * rng.f32()).cos()
}
