//! The paper's comparison with more cases: the same load for every policy, many seeds, and plain numbers as the result.
//!
//! "Simulated" means the measured capacity curve under even arrivals; "real" means slower pods under Poisson arrivals.
//! For a seed all policies see the same arrivals, so that differences come from the policies only.

mod cases;

use serde::{Deserialize, Serialize};

pub use cases::compare;

use crate::sim::{Sample, Schedule, SimSpec, Totals};

/// Parameters of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    pub first_seed: u64,
    /// Number of seeds.
    pub seeds: u64,
    /// Parameters of the simulated workload.
    pub simulated: SimSpec,
    /// Factor on the capacity of "real" pods.
    pub real_factor: f64,
    /// Seconds of pre-training at the start of a trace.
    pub training: usize,
    /// Second at which the comparison ends.
    pub end: usize,
    /// Seconds between decisions; KPA always decides every 2 s.
    pub period: usize,
    /// Learning rate of the paper's cases.
    pub alpha: f64,
    /// Discount factor of the paper's cases.
    pub gamma: f64,
    /// How exploration decreases in training.
    pub schedule: Schedule,
    /// Settings of the learner with guards.
    pub guarded: Guarded,
    /// Lowest and highest CPU target of the tuned HPA, in per cent.
    pub targets: (i32, i32),
}

/// Settings of the learner with guards.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Guarded {
    pub alpha: f64,
    /// Discount factor.
    pub gamma: f64,
    /// Factor on the noise after each decision.
    pub noise_decay: f64,
    /// Simulated passes of training.
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

/// The result of one way of scaling, with one number per seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// Short name; `a` to `e` are the paper's cases.
    pub name: String,
    pub label: String,
    /// Cost in pod-seconds.
    pub cost: Vec<f64>,
    pub pod_seconds: Vec<f64>,
    pub expired: Vec<f64>,
    /// The periods of the first seed.
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
    /// Mean cost in pod-seconds.
    pub fn mean_cost(&self) -> f64 {
        mean(&self.cost)
    }
    /// Mean pod-seconds.
    pub fn mean_pod_seconds(&self) -> f64 {
        mean(&self.pod_seconds)
    }
    /// Mean number of expired requests.
    pub fn mean_expired(&self) -> f64 {
        mean(&self.expired)
    }
}

/// The comparison on one trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// The paper's cases, then `hpa`, `static`, `kpa` and `guarded`.
    pub outcomes: Vec<Outcome>,
    /// Every HPA that was tried: CPU target, stabilisation in seconds, mean cost, mean expired requests.
    pub tuning: Vec<(i32, f64, f64, f64)>,
}

impl Comparison {
    /// The outcome with this name.
    pub fn get(&self, name: &str) -> Option<&Outcome> {
        self.outcomes.iter().find(|outcome| outcome.name == name)
    }
}

fn mean(values: &[f64]) -> f64 {
    let (sum, count) = values.iter().fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}
