//! Arrivals per simulation step: a trace as it is, or with random (Poisson) variation.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Poisson};

use super::{SimSpec, Trace, steps};
use drover_autoscaling::Seconds;

/// Requests per simulation step from a start time on. They are generated once, so that every policy sees the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrivals {
    start: Seconds,
    per_second: usize,
    amounts: Vec<f32>,
}

impl Arrivals {
    /// The trace's seconds `from..to`, spread evenly over the steps.
    pub fn even(trace: &Trace, spec: &SimSpec, from: usize, to: usize) -> Self {
        Self::made(trace, spec, from, to, |expected| expected)
    }

    /// The same with Poisson arrivals in each step.
    pub fn poisson(trace: &Trace, spec: &SimSpec, from: usize, to: usize, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        Self::made(trace, spec, from, to, |expected| Poisson::new(expected).map_or(0.0, |poisson| poisson.sample(&mut rng)))
    }

    #[expect(clippy::cast_possible_truncation, reason = "seven digits are enough for an amount of requests")]
    fn made(trace: &Trace, spec: &SimSpec, from: usize, to: usize, mut amount: impl FnMut(f64) -> f64) -> Self {
        let per_second = usize::try_from(steps(1.0, spec.step)).unwrap_or(1).max(1);
        let seconds = trace.rates().get(from..to.min(trace.rates().len())).unwrap_or_default();
        let amounts = seconds
            .iter()
            .flat_map(|&rate| std::iter::repeat_n(rate * spec.step, per_second))
            .map(|expected| amount(expected) as f32)
            .collect();
        Self { start: from as f64, per_second, amounts }
    }

    /// Start in seconds of the trace.
    pub fn start(&self) -> Seconds {
        self.start
    }

    /// Number of whole seconds.
    pub fn seconds(&self) -> usize {
        self.amounts.len() / self.per_second
    }

    /// The steps of one second, counted from the start.
    pub fn second(&self, index: usize) -> &[f32] {
        &self.amounts[index * self.per_second..(index + 1) * self.per_second]
    }
}
