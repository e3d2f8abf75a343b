//! Training: episodes over a set of instances, noise that fades, the best weights by a validation set, deterministic by seed.

use serde::{Deserialize, Serialize};

use super::agent::{Action, Agent, Learning, Transition, activate};
use super::learned::Learned;
use super::world::{Reward, World};
use crate::policy::{Placed, Policy};
use drover_scheduling::groups::Instance;
use drover_scheduling::groups::Weights;

/// What is trained, and how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Training {
    /// What a step earns.
    pub reward: Reward,
    /// Whether the state says which places the unit talks to.
    pub affinity: bool,
    /// Constants of the algorithm.
    pub learning: Learning,
    /// Updates, one a step; the paper's is stable after about 4,200.
    pub updates: usize,
    /// Gaussian noise on the actor's outputs, from the first to the last update (not in the paper).
    pub noise: (f32, f32),
    /// Updates between two looks at the validation set.
    pub validate: usize,
}

impl Training {
    /// As the paper describes it.
    pub fn paper(updates: usize) -> Self {
        Self { reward: Reward::Path, affinity: false, learning: Learning::default(), updates, noise: (0.5, 0.02), validate: 250 }
    }

    /// Its faults put right: the reward telescopes to the final placement, the critic sees what was executed, the state knows calls.
    pub fn delta(updates: usize) -> Self {
        let learning = Learning { action: Action::OneHot, discount: 1.0, replay: 20_000, ..Learning::default() };
        Self { reward: Reward::Delta, affinity: true, learning, ..Self::paper(updates) }
    }
}

/// How training went.
#[derive(Clone, Debug)]
pub struct Trained {
    /// With the best weights by the validation set.
    pub best: Learned,
    /// With the weights it began with.
    pub untrained: Learned,
    /// (updates so far, mean reward of a step) of each episode.
    pub rewards: Vec<(usize, f64)>,
    /// (updates so far, mean objective over the validation set).
    pub validation: Vec<(usize, f64)>,
}

impl Training {
    /// Trains on instances that all have the same number of places; `watch` hears how many updates are done.
    pub fn run(&self, on: &[Instance], validation: &[Instance], weights: &Weights, seed: u64, watch: &mut dyn FnMut(usize)) -> Trained {
        let mut rng = fastrand::Rng::with_seed(seed);
        let places = on.iter().map(|i| i.places().len()).max().unwrap_or(1);
        let mut agent = Agent::new(World::width(places, self.affinity), places, &self.learning, &mut rng);
        let untrained = self.learned(&agent, seed, 0);
        let judge = |learned: &Learned| {
            let worth = |placed: Placed| placed.value + placed.unplaced.len() as f64;
            validation.iter().map(|i| worth(learned.place(i, weights))).sum::<f64>() / validation.len().max(1) as f64
        };
        let mut trained = Trained { rewards: Vec::new(), validation: vec![(0, judge(&untrained))], best: untrained.clone(), untrained };
        let mut least = trained.validation[0].1;
        let mut updates = 0;
        while updates < self.updates {
            let mut world = World::new(&on[rng.usize(0..on.len())], weights, self.reward, self.affinity);
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

    fn learned(&self, agent: &Agent, seed: u64, updates: usize) -> Learned {
        Learned { actor: agent.actor.clone(), action: self.learning.action, affinity: self.affinity, seed, updates }
    }

    /// The actor's choice with noise, masked, executed.
    fn step(&self, world: &mut World<'_>, agent: &Agent, noise: f32, rng: &mut fastrand::Rng) -> Transition {
        let (state, mask) = (world.state(), world.mask());
        let mut action = agent.actor.forward(&state, 1).output().to_vec();
        match self.learning.action {
            Action::Scores => {
                activate(Action::Scores, &mut action, &mask);
                action.iter_mut().zip(&mask).filter(|(_, fits)| **fits).for_each(|(a, _)| *a = (*a + noise * gauss(rng)).clamp(-1.0, 1.0));
            }
            Action::OneHot => action.iter_mut().for_each(|a| *a += noise * gauss(rng)),
        }
        let place = choice(&action, &mask);
        if self.learning.action == Action::OneHot {
            action.iter_mut().enumerate().for_each(|(p, a)| *a = f32::from(u8::from(p == place)));
        }
        let reward = world.step(place) as f32;
        Transition { state, mask, action, reward, next: world.state(), next_mask: world.mask(), end: world.unit().is_none() }
    }
}

/// The place with room that scores best, the lowest among equals.
pub(super) fn choice(scores: &[f32], mask: &[bool]) -> usize {
    let mut best = mask.iter().position(|fits| *fits).unwrap_or(0);
    for (p, s) in scores.iter().enumerate() {
        if mask[p] && *s > scores[best] {
            best = p;
        }
    }
    best
}

/// Box and Muller.
fn gauss(rng: &mut fastrand::Rng) -> f32 {
    (-2.0 * (1.0 - rng.f32()).ln()).sqrt() * (std::f32::consts::TAU * rng.f32()).cos()
}
