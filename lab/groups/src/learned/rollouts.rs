//! The third teacher: the objective itself. Some options of a state are tried, the learner completes each placement, and the learner is
//! moved towards the options that ended better than the others. It is an actor whose critic is measured instead of learned.

use super::samples::{Sample, Samples, softmax};
use drover_scheduling::groups::learned::{Construction, FEATURES, Pass, ScoreNet, best};
use drover_scheduling::groups::{Instance, Weights};

/// The settings of the rollouts.
#[derive(Clone, Debug, PartialEq)]
pub struct Rollouts {
    /// Options tried of a state: the best by score, and one at random.
    pub options: usize,
    /// States of an episode whose options are tried.
    pub states: usize,
    /// Probability of a random option in a step between them.
    pub explore: f64,
    /// How far the probabilities follow the values: the temperature in units of the mean difference between values.
    pub temperature: f64,
}

impl Default for Rollouts {
    fn default() -> Self {
        Self { options: 5, states: 24, explore: 0.02, temperature: 0.5 }
    }
}

/// Rollouts with the mean difference that they have seen.
pub struct RolloutTeacher {
    settings: Rollouts,
    /// Mean difference between the values of options, multiplied by the number of places.
    scale: f64,
}

impl RolloutTeacher {
    /// A teacher that has seen nothing.
    pub fn new(settings: &Rollouts) -> Self {
        Self { settings: settings.clone(), scale: 0.05 }
    }

    /// Plays an instance and adds the states whose options it has tried.
    pub fn episode(&mut self, instance: &Instance, weights: &Weights, net: &ScoreNet, rng: &mut fastrand::Rng, into: &mut Samples) {
        let mut construction = Construction::of(crate::greedy::begin(instance, weights), *weights);
        let mut plain = construction.clone();
        plain.finish(net, &Pass::default());
        let chance = self.settings.states as f64 / plain.steps().max(1) as f64;
        let mut scores = Vec::new();
        while !construction.options().is_empty() {
            net.score(construction.rows(), &mut scores);
            let mut choice = best(&scores);
            if scores.len() > 1 && rng.f64() < chance {
                let sample = self.tried(&construction, &scores, net, rng);
                into.add(sample, rng);
            }
            if rng.f64() < self.settings.explore {
                choice = rng.usize(0..scores.len());
            }
            construction.take(choice);
        }
    }

    /// Tries options of a state and returns it with the probabilities that they should have: those of the learner, raised for options that
    /// end better than the mean and lowered for others.
    fn tried(&mut self, at: &Construction<'_>, scores: &[f32], net: &ScoreNet, rng: &mut fastrand::Rng) -> Sample {
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        let most = self.settings.options.max(2);
        if order.len() > most {
            let other = rng.usize(most - 1..order.len());
            order.swap(most - 1, other);
            order.truncate(most);
        }
        let end = |option: &usize| {
            let mut trial = at.clone();
            trial.take(*option);
            trial.finish(net, &Pass::default());
            super::worth(&trial, true)
        };
        let values: Vec<f64> = order.iter().map(end).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let places = at.layout().instance().places().len() as f64;
        let spread = places * values.iter().map(|v| (v - mean).abs()).sum::<f64>() / values.len() as f64;
        // A moving mean over about 500 states, in which one state counts at most as ten times the mean.
        self.scale += 0.002 * (spread.min(10.0 * self.scale + 1e-3) - self.scale);
        let temperature = (self.settings.temperature * self.scale).max(1e-6);
        let prior = softmax(&order.iter().map(|o| scores[*o]).collect::<Vec<_>>());
        let raise = |(value, prior): (&f64, &f32)| prior.max(1e-4).ln() - (places * (value - mean) / temperature).clamp(-6.0, 6.0) as f32;
        let wanted = softmax(&values.iter().zip(&prior).map(raise).collect::<Vec<_>>());
        let rows = order.iter().flat_map(|o| at.rows()[o * FEATURES..(o + 1) * FEATURES].iter().copied()).collect();
        Sample::weighted(rows, wanted)
    }
}
