//! The DDPG agent: actor, critic, their target networks, the replay memory, and one update of them.
//!
//! An action is a vector with a number for each place. Places without room are masked before the vector is used, in the target actor too.
//! `Scores`: tanh outputs, and the place with the largest is executed (most likely the paper's way). `OneHot`: a softmax over the places
//! with room; the critic learns from the executed action as a one-hot vector.

use serde::{Deserialize, Serialize};

use super::net::{Adam, Mlp, Tape};

/// The meaning of the actor's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActionEncoding {
    /// A score in [-1, 1] for each place.
    Scores,
    /// A probability for each place.
    OneHot,
}

/// The constants of the algorithm: the paper's where it gives them, and marked where it does not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Learning {
    /// The meaning of the actor's outputs (not in the paper).
    pub action: ActionEncoding,
    /// Discount in the Bellman target; 0.9 in the paper.
    pub discount: f32,
    /// Size of the replay memory in transitions; 1,000 in the paper, which is less than 19 episodes at the large scale.
    pub replay: usize,
    /// Transitions per update.
    pub batch: usize,
    /// Learning rate of the actor.
    pub actor_rate: f32,
    /// Learning rate of the critic.
    pub critic_rate: f32,
    /// The share by which the targets follow at every update (C = 1).
    pub tau: f32,
    /// Width of the two hidden layers (not in the paper).
    pub width: usize,
}

impl Default for Learning {
    fn default() -> Self {
        Self {
            action: ActionEncoding::Scores,
            discount: 0.9,
            replay: 1000,
            batch: 64,
            actor_rate: 5e-4,
            critic_rate: 1e-3,
            tau: 0.01,
            width: 64,
        }
    }
}

/// One step in the replay memory.
#[derive(Clone, Debug)]
pub struct Transition {
    /// The state before the step.
    pub state: Vec<f32>,
    /// The places on which the unit fitted.
    pub mask: Vec<bool>,
    /// The executed action.
    pub action: Vec<f32>,
    pub reward: f32,
    /// The state after the step.
    pub next: Vec<f32>,
    /// The places on which the next unit fits.
    pub next_mask: Vec<bool>,
    /// Whether the episode was over.
    pub end: bool,
}

/// The four networks with their replay memory.
pub struct Agent {
    pub actor: Mlp,
    critic: Mlp,
    actor_target: Mlp,
    critic_target: Mlp,
    actor_adam: Adam,
    critic_adam: Adam,
    memory: Vec<Transition>,
    oldest: usize,
    learning: Learning,
}

impl Agent {
    /// An untrained agent.
    pub fn new(state: usize, places: usize, learning: &Learning, rng: &mut fastrand::Rng) -> Self {
        let w = learning.width;
        let actor = Mlp::new(&[state, w, w, places], rng);
        let critic = Mlp::new(&[state + places, w, w, 1], rng);
        Self {
            actor_target: actor.clone(),
            critic_target: critic.clone(),
            actor_adam: Adam::new(&actor, learning.actor_rate),
            critic_adam: Adam::new(&critic, learning.critic_rate),
            memory: Vec::new(),
            oldest: 0,
            learning: learning.clone(),
            actor,
            critic,
        }
    }

    /// Adds a transition to the memory; a full memory loses its oldest one.
    pub fn remember(&mut self, transition: Transition) {
        if self.memory.len() < self.learning.replay {
            self.memory.push(transition);
        } else {
            self.memory[self.oldest] = transition;
            self.oldest = (self.oldest + 1) % self.learning.replay;
        }
    }

    /// Whether the memory holds enough for an update.
    pub fn ready(&self) -> bool {
        self.memory.len() >= self.learning.batch
    }

    /// Updates all four networks from a random batch. Returns the critic's loss. The numbers in the comments are the paper's equations.
    pub fn update(&mut self, rng: &mut fastrand::Rng) -> f32 {
        let picked: Vec<usize> = (0..self.learning.batch).map(|_| rng.usize(0..self.memory.len())).collect();
        let batch: Vec<&Transition> = picked.iter().map(|i| &self.memory[*i]).collect();
        let n = batch.len();
        let (kind, gamma) = (self.learning.action, self.learning.discount);
        let states: Vec<f32> = batch.iter().flat_map(|t| t.state.iter().copied()).collect();
        let nexts: Vec<f32> = batch.iter().flat_map(|t| t.next.iter().copied()).collect();
        let places = self.actor.sizes().last().copied().unwrap_or(1);

        // (12) y = r, or r + gamma Q'(s', mu'(s')).
        let mut wanted = self.actor_target.forward(&nexts, n).output().to_vec();
        wanted.chunks_exact_mut(places).zip(&batch).for_each(|(out, t)| activate(kind, out, &t.next_mask));
        let next_q = self.critic_target.forward(&beside(&nexts, &wanted, n), n);
        let y: Vec<f32> = batch.iter().zip(next_q.output()).map(|(t, q)| if t.end { t.reward } else { t.reward + gamma * q }).collect();

        // (13) the critic's mean squared error.
        let actions: Vec<f32> = batch.iter().flat_map(|t| t.action.iter().copied()).collect();
        let tape = self.critic.forward(&beside(&states, &actions, n), n);
        let error: Vec<f32> = tape.output().iter().zip(&y).map(|(q, y)| q - y).collect();
        let by: Vec<f32> = error.iter().map(|e| 2.0 * e / n as f32).collect();
        let mut gradient = vec![0.0; self.critic.params.len()];
        self.critic.backward(&tape, &by, Some(&mut gradient));
        self.critic_adam.step(&mut self.critic, &gradient);

        // (14) the actor climbs dQ/da * dmu/dtheta.
        let masks: Vec<&[bool]> = batch.iter().map(|t| t.mask.as_slice()).collect();
        let gradient = actor_gradient(&self.actor, &self.critic, kind, &states, &masks);
        self.actor_adam.step(&mut self.actor, &gradient);

        // (15), (16)
        self.actor_target.follow(&self.actor, self.learning.tau);
        self.critic_target.follow(&self.critic, self.learning.tau);
        error.iter().map(|e| e * e).sum::<f32>() / n as f32
    }
}

/// The gradient of -mean Q(s, mu(s)) with respect to the actor's parameters.
pub(super) fn actor_gradient(actor: &Mlp, critic: &Mlp, kind: ActionEncoding, states: &[f32], masks: &[&[bool]]) -> Vec<f32> {
    let n = masks.len();
    let tape: Tape = actor.forward(states, n);
    let mut actions = tape.output().to_vec();
    let places = actions.len() / n;
    actions.chunks_exact_mut(places).zip(masks).for_each(|(out, mask)| activate(kind, out, mask));
    let judged = critic.forward(&beside(states, &actions, n), n);
    let by_input = critic.backward(&judged, &vec![-1.0 / n as f32; n], None);
    let width = states.len() / n;
    let mut by_output = Vec::with_capacity(actions.len());
    for s in 0..n {
        let by_action = &by_input[s * (width + places) + width..(s + 1) * (width + places)];
        by_output.extend(through(kind, &actions[s * places..(s + 1) * places], by_action, masks[s]));
    }
    let mut gradient = vec![0.0; actor.params.len()];
    actor.backward(&tape, &by_output, Some(&mut gradient));
    gradient
}

/// Activates the actor's outputs in place. Places without room get the lowest value.
pub(super) fn activate(kind: ActionEncoding, out: &mut [f32], mask: &[bool]) {
    match kind {
        ActionEncoding::Scores => out.iter_mut().zip(mask).for_each(|(o, fits)| *o = if *fits { o.tanh() } else { -1.0 }),
        ActionEncoding::OneHot => {
            let most = out.iter().zip(mask).filter(|(_, fits)| **fits).map(|(o, _)| *o).fold(f32::NEG_INFINITY, f32::max);
            out.iter_mut().zip(mask).for_each(|(o, fits)| *o = if *fits { (*o - most).exp() } else { 0.0 });
            let sum: f32 = out.iter().sum();
            if sum > 0.0 {
                out.iter_mut().for_each(|o| *o /= sum);
            }
        }
    }
}

/// The place with room that scores best, the one with the lowest index among equals.
pub(super) fn choice(scores: &[f32], mask: &[bool]) -> usize {
    let mut best = mask.iter().position(|fits| *fits).unwrap_or(0);
    for (p, s) in scores.iter().enumerate() {
        if mask[p] && *s > scores[best] {
            best = p;
        }
    }
    best
}

/// The gradient with respect to the outputs, from the one with respect to the activated actions.
fn through(kind: ActionEncoding, actions: &[f32], by: &[f32], mask: &[bool]) -> Vec<f32> {
    match kind {
        ActionEncoding::Scores => {
            actions.iter().zip(by).zip(mask).map(|((a, b), fits)| if *fits { b * (1.0 - a * a) } else { 0.0 }).collect()
        }
        ActionEncoding::OneHot => {
            let mean: f32 = actions.iter().zip(by).map(|(a, b)| a * b).sum();
            actions.iter().zip(by).map(|(a, b)| a * (b - mean)).collect()
        }
    }
}

/// Concatenates two matrices row by row.
fn beside(a: &[f32], b: &[f32], rows: usize) -> Vec<f32> {
    let (p, q) = (a.len() / rows, b.len() / rows);
    (0..rows).flat_map(|r| a[r * p..(r + 1) * p].iter().chain(&b[r * q..(r + 1) * q]).copied()).collect()
}
