//! The paper's actor and critic on the shared network: DDPG (Lillicrap et al. 2016) with a softmax over the options as the action.
//!
//! The critic values each option by itself, so the value of a softmax is the mean of the options' values by their probabilities. The
//! executed option is stored; the reward is the decrease of the objective, so that with a discount of 1 the return is minus the value of
//! the final placement. Two critics, of which the lower one counts, and targets that use the softmax of the target actor instead of its
//! best option (both as in TD3, Fujimoto et al. 2018).
//!
//! What is decreased is, of a placement under construction, the objective that `cgs-greedy` would end with (potential-based shaping, Ng et
//! al. 1999): the return of an episode is the same but for a constant, and so is the best policy. The objective of the incomplete placement
//! itself rises and falls by far more than the options of a state differ, and the critics learn nothing but that.

use super::samples::softmax;
use crate::ddpg::{Adam, Mlp};
use drover_scheduling::groups::learned::{Construction, FEATURES};
use drover_scheduling::groups::{Instance, Weights};

/// The settings of the actor-critic training; the paper's where it gives them.
#[derive(Clone, Debug, PartialEq)]
pub struct ActorCritic {
    /// Learning rate of the actor.
    pub actor_rate: f32,
    /// Learning rate of the critics.
    pub critic_rate: f32,
    /// Share by which the target networks follow their networks at each update.
    pub tau: f32,
    /// Number of steps of the replay memory that an update looks at.
    pub batch: usize,
    /// Size of the replay memory in steps. The paper's 1,000 are less than ten episodes here.
    pub replay: usize,
    /// Probability of a random option at the beginning; it falls to 0.
    pub explore: f64,
    /// Weight of the entropy of the softmax, against a collapse to one option.
    pub entropy: f32,
    /// Steps during which only the critics learn, so that an untrained critic does not spoil a trained actor.
    pub warmup: usize,
    /// Whether the reward is shaped; otherwise it is the decrease of the objective of what is placed.
    pub shaped: bool,
}

impl Default for ActorCritic {
    fn default() -> Self {
        Self {
            actor_rate: 5e-4,
            critic_rate: 1e-3,
            tau: 0.01,
            batch: 64,
            replay: 20_000,
            explore: 0.1,
            entropy: 0.003,
            warmup: 1_000,
            shaped: true,
        }
    }
}

/// A step of an episode, as it is kept in the replay memory.
struct Transition {
    /// The features of the options, one row after the other.
    rows: Vec<f32>,
    executed: usize,
    reward: f32,
    /// The features of the next options; empty at the end.
    next: Vec<f32>,
}

/// The six networks with their replay memory.
pub struct ActorCriticAgent {
    pub actor: Mlp,
    actor_target: Mlp,
    critics: [Mlp; 2],
    critic_targets: [Mlp; 2],
    actor_adam: Adam,
    critic_adams: [Adam; 2],
    memory: Vec<Transition>,
    oldest: usize,
    settings: ActorCritic,
    /// Updates done.
    pub updates: usize,
}

impl ActorCriticAgent {
    /// An agent whose actor begins with the given weights.
    pub fn new(actor: Mlp, settings: &ActorCritic, rng: &mut fastrand::Rng) -> Self {
        let sizes = actor.sizes().to_vec();
        let critics = [Mlp::new(&sizes, rng), Mlp::new(&sizes, rng)];
        Self {
            actor_target: actor.clone(),
            critic_targets: critics.clone(),
            actor_adam: Adam::new(&actor, settings.actor_rate),
            critic_adams: [Adam::new(&critics[0], settings.critic_rate), Adam::new(&critics[1], settings.critic_rate)],
            critics,
            actor,
            memory: Vec::new(),
            oldest: 0,
            settings: settings.clone(),
            updates: 0,
        }
    }

    /// Plays an instance by the softmax of the actor and updates the networks at each step, until `most` updates are done.
    pub fn episode(&mut self, instance: &Instance, weights: &Weights, most: usize, rng: &mut fastrand::Rng) {
        let explore = self.settings.explore * (1.0 - self.updates as f64 / most.max(1) as f64);
        let mut construction = Construction::of(crate::greedy::begin(instance, weights), *weights);
        // Rewards shrink with the number of places, as the features that are multiplied by it do.
        let scale = instance.places().len() as f64;
        let mut before = self.worth(&construction);
        while !construction.options().is_empty() && self.updates < most {
            let rows = construction.rows().to_vec();
            let count = construction.options().len();
            let executed = if rng.f64() < explore {
                rng.usize(0..count)
            } else {
                let chances = softmax(self.actor.forward(&rows, count).output());
                let mut left = rng.f32();
                chances
                    .iter()
                    .position(|p| {
                        left -= p;
                        left <= 0.0
                    })
                    .unwrap_or(count - 1)
            };
            construction.take(executed);
            let after = self.worth(&construction);
            let reward = (scale * (before - after)) as f32;
            before = after;
            self.remember(Transition { rows, executed, reward, next: construction.rows().to_vec() });
            if self.memory.len() >= 10 * self.settings.batch {
                self.update(rng);
            }
        }
    }

    /// The value whose decrease is the reward: the objective that `cgs-greedy` would end with, or that of what is placed.
    fn worth(&self, construction: &Construction<'_>) -> f64 {
        let ended = construction.options().is_empty();
        if self.settings.shaped && !ended { super::finished(&super::completed(construction).0) } else { super::worth(construction, ended) }
    }

    fn remember(&mut self, transition: Transition) {
        if self.memory.len() < self.settings.replay {
            self.memory.push(transition);
        } else {
            self.memory[self.oldest] = transition;
            self.oldest = (self.oldest + 1) % self.settings.replay;
        }
    }

    fn update(&mut self, rng: &mut fastrand::Rng) {
        self.updates += 1;
        let n = self.settings.batch;
        let batch: Vec<&Transition> = (0..n).map(|_| &self.memory[rng.usize(0..self.memory.len())]).collect();
        let targets: Vec<f32> = self.targets(&batch);

        // The critics: squared error of the executed options, linear beyond 1 (Huber loss), so that no outlier moves them far.
        let executed: Vec<f32> =
            batch.iter().flat_map(|t| t.rows[t.executed * FEATURES..(t.executed + 1) * FEATURES].iter().copied()).collect();
        for (critic, adam) in self.critics.iter_mut().zip(&mut self.critic_adams) {
            let tape = critic.forward(&executed, n);
            let by: Vec<f32> = tape.output().iter().zip(&targets).map(|(q, y)| 2.0 * (q - y).clamp(-1.0, 1.0) / n as f32).collect();
            let mut gradient = vec![0.0; critic.params.len()];
            critic.backward(&tape, &by, Some(&mut gradient));
            adam.step(critic, &gradient);
        }

        // The actor climbs the mean of the first critic's values by its probabilities.
        if self.updates > self.settings.warmup && self.updates.is_multiple_of(2) {
            let rows: Vec<f32> = batch.iter().flat_map(|t| t.rows.iter().copied()).collect();
            let count = rows.len() / FEATURES;
            let values = self.critics[0].forward(&rows, count);
            let tape = self.actor.forward(&rows, count);
            let by = ascent(&batch, tape.output(), values.output(), self.settings.entropy);
            let mut gradient = vec![0.0; self.actor.params.len()];
            self.actor.backward(&tape, &by, Some(&mut gradient));
            self.actor_adam.step(&mut self.actor, &gradient);
            self.actor_target.follow(&self.actor, self.settings.tau);
        }
        for (target, critic) in self.critic_targets.iter_mut().zip(&self.critics) {
            target.follow(critic, self.settings.tau);
        }
    }

    /// r + the value of the next state: the lower of the two target critics, by the probabilities of the target actor.
    fn targets(&self, batch: &[&Transition]) -> Vec<f32> {
        let next: Vec<f32> = batch.iter().flat_map(|t| t.next.iter().copied()).collect();
        let count = next.len() / FEATURES;
        let scores = self.actor_target.forward(&next, count);
        let [a, b] = [self.critic_targets[0].forward(&next, count), self.critic_targets[1].forward(&next, count)];
        let mut start = 0;
        batch
            .iter()
            .map(|t| {
                let here = start..start + t.next.len() / FEATURES;
                start = here.end;
                let chances = softmax(&scores.output()[here.clone()]);
                let values = a.output()[here.clone()].iter().zip(&b.output()[here]).map(|(a, b)| a.min(*b));
                t.reward + chances.iter().zip(values).map(|(p, q)| p * q).sum::<f32>()
            })
            .collect()
    }
}

/// The gradient of -(mean value + entropy) with respect to the scores.
fn ascent(batch: &[&Transition], scores: &[f32], values: &[f32], entropy: f32) -> Vec<f32> {
    let mut by = Vec::with_capacity(scores.len());
    for t in batch {
        let here = by.len()..by.len() + t.rows.len() / FEATURES;
        let chances = softmax(&scores[here.clone()]);
        let worth: Vec<f32> = chances.iter().zip(&values[here]).map(|(p, q)| q - entropy * p.max(1e-8).ln()).collect();
        let mean: f32 = chances.iter().zip(&worth).map(|(p, w)| p * w).sum();
        by.extend(chances.iter().zip(&worth).map(|(p, w)| -p * (w - mean) / batch.len() as f32));
    }
    by
}
