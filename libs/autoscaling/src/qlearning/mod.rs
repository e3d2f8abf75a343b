//! `qlearning`: RL-HPA. Learns the cost of adding or removing a pod in each state, first on a simulator and then on the running workload.
//!
//! State: pods and the CPU bucket of the *application container*. Reward: the negative cost of the next period, in pod-seconds.
//! After Jang, Yu, Kim (KTCCS 11(4), 2022); guards and the mask of illegal actions are additions of Drover.

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
    /// Discount factor: the weight of future costs.
    pub gamma: f64,
    /// Share of decisions that take a neighbour of the best action.
    pub noise: f64,
    /// Factor on `noise` after each decision; 1 keeps it constant.
    pub noise_decay: f64,
    /// Guards: add a pod at full CPU, and never remove one if the remaining pods would be too busy.
    pub guards: bool,
    /// Cost of an expired request in pod-seconds.
    pub penalty: f64,
    /// How many requests pods can serve together; the guards use it.
    pub capacity: Capacity,
    /// Container whose CPU is measured. Default: the pod's first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// ConfigMap with the Q-table to start from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_table: Option<String>,
    /// Seed of the random choices.
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
    /// Checks that every setting is in its range.
    ///
    /// # Errors
    /// If a setting is outside of its range; the error names the field.
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

/// One observation of a workload, with the cost since the last one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QLearningObservation {
    pub at: Seconds,
    /// Pods that were set.
    pub pods: i32,
    /// CPU of the application container, mean over ready pods, as a share of its request (1: full).
    pub cpu: Reading<f64>,
    /// Requests that expired since the last observation.
    pub expired: Reading<f64>,
    /// Pod-seconds since the last observation.
    pub pod_seconds: Reading<f64>,
}

/// What the learner remembers between decisions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QLearningState {
    pub table: QTable,
    /// State and action that the next cost is assigned to; none after a gap in the readings.
    pub last: Option<TakenAction>,
    /// Decisions so far; with the seed it determines the next random choice.
    pub decisions: u64,
}

/// An action that was taken in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TakenAction {
    pub pods: i32,
    pub bucket: usize,
    /// Index into [`ACTIONS`].
    pub action: usize,
}

impl QLearningState {
    /// A learner without any experience.
    pub fn new(limits: &Limits) -> Self {
        Self::from_table(QTable::new(limits.min_replicas, limits.max_replicas))
    }
    /// A learner that starts from an existing Q-table.
    pub fn from_table(table: QTable) -> Self {
        Self { table, last: None, decisions: 0 }
    }
    /// Replaces the decided action by what was done, so that the next cost is assigned to that: limits, a pause or the mode may have changed it.
    /// If the change is not an action of the table, nothing is learned from it.
    pub fn carried_out(&mut self, pods: i32) {
        self.last = self.last.and_then(|last| {
            let action = ACTIONS.iter().position(|change| last.pods + change == pods)?;
            Some(TakenAction { action, ..last })
        });
    }
}

/// The policy's own calculation, for the record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct QLearningSteps {
    /// CPU bucket, 0 to 10.
    pub bucket: usize,
    /// Expected value of removing a pod, no change, and adding a pod; null: not allowed in this state.
    pub q: [Option<f64>; 3],
    /// Best action by the table: change of the number of pods.
    pub greedy: i32,
    /// Action taken: change of the number of pods.
    pub action: i32,
    /// The guard that overruled the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<String>,
    /// Cost of the period that ended, in pod-seconds. None: it could not be read, and nothing was learned.
    pub cost: Option<f64>,
}
