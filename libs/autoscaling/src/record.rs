//! Why a workload has the replicas it has: one record per decision, enough to explain it and to show what would have been done.

use serde::{Deserialize, Serialize};

use crate::{Observation, PolicyKind, Seconds};
use crate::{kpa::KpaSteps, qlearning::QLearningSteps, threshold::ThresholdSteps};

/// One decision and everything it came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionRecord {
    /// When, in seconds.
    pub at: Seconds,
    /// Which policy proposed.
    pub policy: PolicyKind,
    /// Replicas that were asked for before.
    pub current: i32,
    /// What was read; absent and stale readings say so.
    pub inputs: Observation,
    /// The policy's own arithmetic.
    pub steps: Steps,
    /// What the policy proposed; none where it must not decide.
    pub raw: Option<i32>,
    /// After the stabilisation windows.
    pub stabilized: Option<i32>,
    /// After the rates.
    pub rate_limited: Option<i32>,
    /// After the bounds.
    pub bounded: Option<i32>,
    /// The decision, after pause and pin; none: leave everything as it is.
    pub want: Option<i32>,
    /// Why it is not simply the proposal, as a word.
    pub reason: Reason,
    /// The same for people, with what could not be read.
    pub message: String,
}

impl DecisionRecord {
    /// Whether replicas have to be written.
    pub fn changes(&self) -> bool {
        self.want.is_some_and(|want| want != self.current)
    }
}

/// A policy's own arithmetic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Steps {
    /// Of `threshold`.
    Threshold(ThresholdSteps),
    /// Of `kpa`.
    Kpa(KpaSteps),
    /// Of `qlearning`.
    QLearning(QLearningSteps),
}

/// Why a decision is what it is. The first block are the HPA controller's own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Reason {
    /// The proposal, unchanged by rates and bounds.
    DesiredWithinRange,
    /// Held at the fewest.
    TooFewReplicas,
    /// Held at the most.
    TooManyReplicas,
    /// Growing faster than the rates allow.
    ScaleUpLimit,
    /// Shrinking faster than the rates allow.
    ScaleDownLimit,
    /// Replicas are 0 and the fewest is not: somebody switched the workload off.
    ScalingDisabled,
    /// A resource metric could not be used.
    FailedGetResourceMetric,
    /// A resource metric of one container could not be used.
    FailedGetContainerResourceMetric,
    /// A metric of the pods could not be used.
    FailedGetPodsMetric,
    /// A metric of an object could not be used.
    FailedGetObjectMetric,
    /// An external metric could not be used.
    FailedGetExternalMetric,
    /// A metric's type does not exist.
    InvalidMetricSourceType,

    /// What the policy needs was not read: nothing is decided.
    NoData,
    /// KPA in panic: never fewer.
    Panic,
    /// KPA outside of panic.
    Stable,
    /// Exploring, or the table's best action.
    Learned,
    /// A guard rail overruled the table.
    Guarded,
    /// Whoever decides has looked for less than one stabilisation window: never fewer (the agent after a start).
    Settling,
    /// A person stopped this direction.
    Paused,
    /// A person said how many.
    Pinned,
}
