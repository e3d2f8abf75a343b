//! The scaling policy as a user writes it (the agent's `ScalingPolicy` resource wraps [`ScalingSpec`]), and the form that decisions use.

use serde::{Deserialize, Serialize};

use crate::kpa::KpaSpec;
use crate::qlearning::QLearningSpec;
use crate::threshold::ThresholdSpec;
use crate::{Behavior, Limits, Pause, Seconds};

/// How a workload is scaled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ScalingSpec {
    /// The object to scale, through its `scale` subresource.
    pub target: TargetRef,
    /// What happens with decisions.
    #[serde(default)]
    pub mode: Mode,
    /// The policy that decides. Its section below may be omitted to use the defaults.
    pub policy: PolicyKind,
    /// Minimum replicas; 0 lets `kpa` scale to zero.
    #[serde(default = "one")]
    pub min_replicas: i32,
    /// Maximum replicas.
    pub max_replicas: i32,
    /// Stabilisation windows and rates, as in autoscaling/v2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behavior: Option<Behavior>,
    /// Directions in which the workload is not scaled for now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
    /// Fixed number of replicas for now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<i32>,
    /// Seconds between decisions. Default: 15 for `threshold` and `qlearning`, 2 for `kpa`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_seconds: Option<u32>,
    /// Age in seconds from which a reading is too old to decide on.
    #[serde(default = "stale")]
    pub stale_after_seconds: u32,
    /// Settings of the policy `threshold`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<ThresholdSpec>,
    /// Settings of the policy `kpa`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kpa: Option<KpaSpec>,
    /// Settings of the policy `qlearning`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qlearning: Option<QLearningSpec>,
}

/// A scalable object in the policy's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TargetRef {
    /// For example `apps/v1`.
    pub api_version: String,
    /// For example `Deployment`.
    pub kind: String,
    pub name: String,
}

/// What happens with decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// No decisions are made.
    Off,
    /// Decisions are recorded but not applied.
    #[default]
    Recommend,
    /// Decisions are applied.
    Apply,
}

/// Name of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum PolicyKind {
    /// Kubernetes HPA v2.
    Threshold,
    /// Knative's pod autoscaler.
    Kpa,
    /// Q-learning.
    QLearning,
}

/// A policy with its settings.
#[derive(Clone, Debug, PartialEq)]
pub enum Policy {
    /// Kubernetes HPA v2.
    Threshold(ThresholdSpec),
    /// Knative's pod autoscaler.
    Kpa(KpaSpec),
    /// Q-learning.
    QLearning(QLearningSpec),
}

impl Policy {
    /// The name of the policy.
    pub fn kind(&self) -> PolicyKind {
        match self {
            Self::Threshold(_) => PolicyKind::Threshold,
            Self::Kpa(_) => PolicyKind::Kpa,
            Self::QLearning(_) => PolicyKind::QLearning,
        }
    }

    /// Checks the settings of the policy.
    ///
    /// # Errors
    /// If a setting is outside of its range; the error names the field.
    pub fn check(&self) -> Result<(), SpecError> {
        match self {
            Self::Threshold(spec) => spec.check(),
            Self::Kpa(spec) => spec.check(),
            Self::QLearning(spec) => spec.check(),
        }
    }
}

/// A field of a specification has a value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct SpecError {
    /// The field, as written.
    pub field: String,
    /// What is wrong with the value, and which values are allowed.
    pub problem: String,
}

impl SpecError {
    /// An error about one field.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
    /// Checks one field.
    ///
    /// # Errors
    /// If `holds` is false; the error has `field` and `problem`.
    pub fn unless(holds: bool, field: &str, problem: &str) -> Result<(), Self> {
        if holds { Ok(()) } else { Err(Self::new(field, problem)) }
    }
}

impl ScalingSpec {
    /// The policy and its limits, checked.
    ///
    /// # Errors
    /// If a setting or a bound cannot be used, or a `qlearning` policy has a minimum of 0.
    pub fn resolve(&self) -> Result<(Policy, Limits), SpecError> {
        let policy = match self.policy {
            PolicyKind::Threshold => Policy::Threshold(self.threshold.clone().unwrap_or_default()),
            PolicyKind::Kpa => Policy::Kpa(self.kpa.clone().unwrap_or_default()),
            PolicyKind::QLearning => Policy::QLearning(self.qlearning.clone().unwrap_or_default()),
        };
        policy.check()?;
        let limits = Limits {
            min_replicas: self.min_replicas,
            max_replicas: self.max_replicas,
            behavior: self.behavior.clone(),
            pause: self.pause,
            pin: self.pin,
            ..Limits::default()
        };
        limits.check()?;
        if let (Policy::QLearning(_), 0) = (&policy, limits.min_replicas) {
            return Err(SpecError::new("minReplicas", "must be 1 or more for qlearning, which cannot scale up from zero"));
        }
        Ok((policy, limits))
    }

    /// Seconds between decisions.
    pub fn period(&self) -> Seconds {
        let default = if self.policy == PolicyKind::Kpa { 2 } else { 15 };
        f64::from(self.period_seconds.unwrap_or(default).max(1))
    }
}

fn one() -> i32 {
    1
}
fn stale() -> u32 {
    60
}
