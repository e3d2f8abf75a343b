//! The record of one decision: enough to explain it, and to see what each step of the calculation gave.

use serde::{Deserialize, Serialize};

use crate::{Observation, PolicyKind, Seconds};
use crate::{kpa::KpaSteps, qlearning::QLearningSteps, threshold::ThresholdSteps};

/// One decision with its inputs and its steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionRecord {
    pub at: Seconds,
    /// The policy that proposed.
    pub policy: PolicyKind,
    /// Replicas that were set before.
    pub current: i32,
    /// What was read, including absent and stale readings.
    pub inputs: Observation,
    /// The policy's own calculation.
    pub steps: Steps,
    /// The policy's proposal; none if it could not make one.
    pub raw: Option<i32>,
    /// After the stabilisation windows.
    pub stabilized: Option<i32>,
    /// After the rates.
    pub rate_limited: Option<i32>,
    /// After the bounds.
    pub bounded: Option<i32>,
    /// The decision, after pause and pin. None: the replicas stay as they are.
    pub want: Option<i32>,
    /// Why the decision is what it is, as a code.
    pub reason: Reason,
    /// The same as a sentence, including what could not be read.
    pub message: String,
}

impl DecisionRecord {
    /// Whether the replicas have to be changed.
    pub fn changes(&self) -> bool {
        self.want.is_some_and(|want| want != self.current)
    }
}

/// A policy's own calculation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Steps {
    Threshold(ThresholdSteps),
    Kpa(KpaSteps),
    QLearning(QLearningSteps),
}

/// Why a decision is what it is. The first group are the reasons of the HPA controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Reason {
    /// The proposal was not changed by rates or bounds.
    DesiredWithinRange,
    /// The proposal was below the minimum.
    TooFewReplicas,
    /// The proposal was above the maximum.
    TooManyReplicas,
    /// The proposal was limited by the scale-up rates.
    ScaleUpLimit,
    /// The proposal was limited by the scale-down rates.
    ScaleDownLimit,
    /// Replicas are 0 although the minimum is above 0: somebody switched the workload off.
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
    /// The type of a metric does not exist.
    InvalidMetricSourceType,

    /// A value that the policy needs was not read; nothing is decided.
    NoData,
    /// KPA is in panic mode and does not scale down.
    Panic,
    /// KPA is not in panic mode.
    Stable,
    /// The action came from the Q-table or from exploration.
    Learned,
    /// A guard overruled the action of the Q-table.
    Guarded,
    /// The agent has observed the workload for less than one stabilisation window since its start, and does not scale it down yet.
    Settling,
    /// A person paused scaling in this direction.
    Paused,
    /// A person pinned the number of replicas.
    Pinned,
}
