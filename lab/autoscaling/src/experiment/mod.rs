//! The paper's comparison, with what it lacks: the same load for every policy, many seeds, plain numbers out.
//!
//! "Simulated" is the capacity curve as measured, under even arrivals; "real" are slower pods under Poisson arrivals.
//! Every policy sees the same arrivals of the same seed, so that differences are the policies' own.

mod cases;

use serde::{Deserialize, Serialize};

pub use cases::compare;

use crate::sim::{Sample, Schedule, SimSpec, Totals};

/// How the comparison is made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// First seed.
    pub first_seed: u64,
    /// Seeds.
    pub seeds: u64,
    /// What is simulated.
    pub simulated: SimSpec,
    /// Factor on the capacity of "real" pods.
    pub real_factor: f64,
    /// Seconds of pre-training, at the start of a trace.
    pub training: usize,
    /// Second at which the comparison ends.
    pub end: usize,
    /// Seconds between decisions (KPA decides every 2 s).
    pub period: usize,
    /// Paper mode: learning rate.
    pub alpha: f64,
    /// Paper mode: weight of the future.
    pub gamma: f64,
    /// How exploration fades in training.
    pub schedule: Schedule,
    /// Guarded: learning rate, weight of the future, factor on the noise per decision, passes.
    pub guarded: Guarded,
    /// Least and most CPU target of the tuned HPA, in per cent.
    pub targets: (i32, i32),
}

/// The learner with its guards on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Guarded {
    /// Learning rate.
    pub alpha: f64,
    /// Weight of the future.
    pub gamma: f64,
    /// Factor on the noise per decision.
    pub noise_decay: f64,
    /// Simulated passes.
    pub passes: usize,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            first_seed: 1,
            seeds: 20,
            simulated: SimSpec::default(),
            real_factor: 0.95,
            training: 5_000,
            end: 20_000,
            period: 15,
            alpha: 0.1,
            gamma: 0.7,
            schedule: Schedule::default(),
            guarded: Guarded { alpha: 0.3, gamma: 0.5, noise_decay: 0.998, passes: 10 },
            targets: (50, 95),
        }
    }
}

/// What one way of scaling cost, a number per seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// Short name: `a` to `e` are the paper's.
    pub name: String,
    /// What it is.
    pub label: String,
    /// Cost in pod-seconds.
    pub cost: Vec<f64>,
    /// Pod-seconds.
    pub pod_seconds: Vec<f64>,
    /// Expired requests.
    pub expired: Vec<f64>,
    /// The course of the first seed.
    pub course: Vec<Sample>,
}

impl Outcome {
    fn new(name: &str, label: impl Into<String>) -> Self {
        let empty = Vec::new;
        Self { name: name.to_owned(), label: label.into(), cost: empty(), pod_seconds: empty(), expired: empty(), course: Vec::new() }
    }
    fn add(&mut self, totals: &Totals, penalty: f64) {
        self.cost.push(totals.cost(penalty));
        self.pod_seconds.push(totals.pod_seconds);
        self.expired.push(totals.expired);
    }
    /// Mean cost.
    pub fn mean_cost(&self) -> f64 {
        mean(&self.cost)
    }
    /// Mean pod-seconds.
    pub fn mean_pod_seconds(&self) -> f64 {
        mean(&self.pod_seconds)
    }
    /// Mean of expired requests.
    pub fn mean_expired(&self) -> f64 {
        mean(&self.expired)
    }
}

/// The comparison on one trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// The paper's cases, then what it lacks: `hpa`, `static`, `kpa`, `guarded`.
    pub outcomes: Vec<Outcome>,
    /// Every HPA tried: CPU target, stabilisation in seconds, mean cost, mean expired requests.
    pub tuning: Vec<(i32, f64, f64, f64)>,
}

impl Comparison {
    /// One of the outcomes.
    pub fn get(&self, name: &str) -> Option<&Outcome> {
        self.outcomes.iter().find(|outcome| outcome.name == name)
    }
}

fn mean(values: &[f64]) -> f64 {
    let (sum, count) = values.iter().fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}
