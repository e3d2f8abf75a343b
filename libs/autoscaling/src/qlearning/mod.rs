//! `qlearning`: RL-HPA. Learns what one pod more or less costs in each state, trained on a simulator and then on the spot.
//!
//! State: pods and the CPU bucket of the *application container*. Reward: minus the cost of the next period, in pod-seconds.
//! After Jang, Yu, Kim (KTCCS 11(4), 2022); guards and masks are ours.

mod act;
mod capacity;
mod table;

use serde::{Deserialize, Serialize};

pub(crate) use act::propose;
pub use act::{Choice, step};
pub use capacity::{Capacity, FitError};
pub use table::{ACTIONS, BUCKETS, QTable, TABLE_VERSION, TableError, bucket};

use crate::{Limits, Reading, Seconds, SpecError};

/// How the learner learns and acts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct QLearningSpec {
    /// Learning rate.
    pub alpha: f64,
    /// Weight of the future.
    pub gamma: f64,
    /// Share of decisions that are a neighbour of the best action.
    pub noise: f64,
    /// Factor on `noise` with each decision: 1 keeps it as it is.
    pub noise_decay: f64,
    /// Guard rails: one more at full CPU, never fewer where that would be too hot.
    pub guards: bool,
    /// Cost of an expired request in pod-seconds.
    pub penalty: f64,
    /// What pods can do together; the guards use it.
    pub capacity: Capacity,
    /// Container whose CPU counts; absent: the pod's first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// ConfigMap with the table to start from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_table: Option<String>,
    /// Seed of the noise.
    pub seed: u64,
}

impl Default for QLearningSpec {
    fn default() -> Self {
        Self {
            alpha: 0.3,
            gamma: 0.7,
            noise: 0.1,
            noise_decay: 1.0,
            guards: true,
            penalty: 0.1,
            capacity: Capacity::default(),
            container: None,
            initial_table: None,
            seed: 1,
        }
    }
}

impl QLearningSpec {
    /// Refuses values that nothing sensible follows from.
    pub fn check(&self) -> Result<(), SpecError> {
        let unless = SpecError::unless;
        unless(self.alpha > 0.0 && self.alpha <= 1.0, "alpha", "must be above 0 and at most 1")?;
        unless((0.0..1.0).contains(&self.gamma), "gamma", "must be 0 or more and below 1")?;
        unless((0.0..=1.0).contains(&self.noise), "noise", "must be 0 to 1")?;
        unless((0.0..=1.0).contains(&self.noise_decay), "noiseDecay", "must be 0 to 1")?;
        unless(self.penalty >= 0.0 && self.penalty.is_finite(), "penalty", "must be 0 or more")?;
        self.capacity.check()
    }
}

/// One look at a workload, with the cost since the last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QLearningObservation {
    /// When.
    pub at: Seconds,
    /// Pods that were asked for.
    pub pods: i32,
    /// CPU of the application container, mean over ready pods, as a share of its request (1: full).
    pub cpu: Reading<f64>,
    /// Requests that expired since the last look.
    pub expired: Reading<f64>,
    /// Pod-seconds since the last look.
    pub pod_seconds: Reading<f64>,
}

/// What the learner remembers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QLearningState {
    /// What it learned.
    pub table: QTable,
    /// State and action that the next cost belongs to; none after a gap.
    pub last: Option<Taken>,
    /// Decisions so far; together with the seed it makes the next chance.
    pub decisions: u64,
}

/// An action taken in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taken {
    /// Pods.
    pub pods: i32,
    /// CPU bucket.
    pub bucket: usize,
    /// Index into [`ACTIONS`].
    pub action: usize,
}

impl QLearningState {
    /// Knows nothing yet.
    pub fn new(limits: &Limits) -> Self {
        Self::from_table(QTable::new(limits.min_replicas, limits.max_replicas))
    }
    /// Starts from what was learned elsewhere.
    pub fn from_table(table: QTable) -> Self {
        Self { table, last: None, decisions: 0 }
    }
    /// Corrects what was decided to what was done: the next cost belongs to that. Limits, a pause or a mode may have changed it;
    /// a change that is no action of the table teaches nothing.
    pub fn carried_out(&mut self, pods: i32) {
        self.last = self.last.and_then(|last| {
            let action = ACTIONS.iter().position(|change| last.pods + change == pods)?;
            Some(Taken { action, ..last })
        });
    }
}

/// The policy's own arithmetic, for the record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct QLearningSteps {
    /// CPU bucket, 0..10.
    pub bucket: usize,
    /// Expected value of one fewer, as many, one more; null: not allowed here.
    pub q: [Option<f64>; 3],
    /// Best action by the table.
    pub greedy: i32,
    /// Action taken.
    pub action: i32,
    /// The guard that overruled the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<String>,
    /// Cost of the period that ended now, in pod-seconds; none: it could not be read, nothing was learned.
    pub cost: Option<f64>,
}
