//! The configuration of an offline run: a policy and its section.

use serde::{Deserialize, Serialize};

use super::OfflineError;
use crate::kpa::KpaSpec;
use crate::qlearning::QLearningSpec;
use crate::threshold::ThresholdSpec;
use crate::{Behavior, Limits, Policy, PolicyKind, Seconds, SpecError};

/// A policy and its section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Which policy decides.
    pub policy: PolicyKind,
    /// Section of the policy `threshold`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<ThresholdSection>,
    /// Section of the policy `kpa`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kpa: Option<KpaSection>,
    /// Section of the policy `qlearning`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qlearning: Option<QLearningSection>,
}

/// Section `threshold`: the policy and its limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ThresholdSection {
    /// The policy.
    #[serde(flatten)]
    pub spec: ThresholdSpec,
    /// Fewest replicas.
    #[serde(default = "one")]
    pub min_replicas: i32,
    /// Most replicas.
    #[serde(default = "ten")]
    pub max_replicas: i32,
    /// Stabilisation windows and rates, as in autoscaling/v2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behavior: Option<Behavior>,
    /// Seconds that fewer replicas must have been enough.
    #[serde(default = "five_minutes")]
    pub downscale_stabilization: Seconds,
}

/// Section `kpa`: the policy and how it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KpaSection {
    /// The policy.
    #[serde(flatten)]
    pub spec: KpaSpec,
    /// Ready pods when the decider was made: with more than one it starts in panic.
    #[serde(default = "one")]
    pub initial_ready: i32,
    /// The panic it starts in, whatever the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub panic: Option<PanicStart>,
}

/// A panic under way.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PanicStart {
    /// Since when, in seconds.
    pub since: Seconds,
    /// Most pods wanted so far.
    pub max_pods: i32,
}

/// Section `qlearning`: the policy, its bounds and its table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QLearningSection {
    /// The policy.
    #[serde(flatten)]
    pub spec: QLearningSpec,
    /// Fewest pods.
    #[serde(default = "one")]
    pub min_pods: i32,
    /// Most pods.
    #[serde(default = "four")]
    pub max_pods: i32,
    /// File with the table to start from (made by `drover autoscale train`); absent: nothing is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
}

impl Config {
    /// The policy and its limits, checked.
    pub fn resolve(&self) -> Result<(Policy, Limits), OfflineError> {
        let extra = [
            ("threshold", self.threshold.is_some(), PolicyKind::Threshold),
            ("kpa", self.kpa.is_some(), PolicyKind::Kpa),
            ("qlearning", self.qlearning.is_some(), PolicyKind::QLearning),
        ];
        if let Some((name, ..)) = extra.iter().find(|(_, there, kind)| *there && *kind != self.policy) {
            return Err(SpecError::new(*name, "is a section of another policy").into());
        }
        let (policy, limits) = match self.policy {
            PolicyKind::Threshold => {
                let section = self.threshold.clone().unwrap_or_default();
                let ThresholdSection { spec, min_replicas, max_replicas, behavior, downscale_stabilization } = section;
                let limits = Limits { min_replicas, max_replicas, behavior, downscale_stabilization, ..Limits::default() };
                (Policy::Threshold(spec), limits)
            }
            PolicyKind::Kpa => {
                let spec = self.kpa.clone().unwrap_or_default().spec;
                // Bounds come after the decider, in the scaler; offline there are none.
                (Policy::Kpa(spec), Limits { min_replicas: 0, max_replicas: i32::MAX, ..Limits::default() })
            }
            PolicyKind::QLearning => {
                let QLearningSection { spec, min_pods, max_pods, .. } = self.qlearning.clone().unwrap_or_default();
                SpecError::unless(min_pods >= 1, "minPods", "must be 1 or more")?;
                SpecError::unless(max_pods >= min_pods, "maxPods", "must be no less than minPods")?;
                (Policy::QLearning(spec), Limits { min_replicas: min_pods, max_replicas: max_pods, ..Limits::default() })
            }
        };
        // A metric of an unknown type is reported with each decision, as the HPA controller does.
        if !matches!(policy, Policy::Threshold(_)) {
            policy.check()?;
        } else if let Policy::Threshold(spec) = &policy {
            ThresholdSpec { metrics: Vec::new(), ..spec.clone() }.check()?;
        }
        limits.check()?;
        Ok((policy, limits))
    }

    /// The Q-table file that it names.
    pub fn table(&self) -> Option<&str> {
        self.qlearning.as_ref().and_then(|section| section.table.as_deref())
    }
}

impl Default for ThresholdSection {
    fn default() -> Self {
        Self {
            spec: ThresholdSpec::default(),
            min_replicas: one(),
            max_replicas: ten(),
            behavior: None,
            downscale_stabilization: five_minutes(),
        }
    }
}

impl Default for KpaSection {
    fn default() -> Self {
        Self { spec: KpaSpec::default(), initial_ready: one(), panic: None }
    }
}

impl Default for QLearningSection {
    fn default() -> Self {
        Self { spec: QLearningSpec::default(), min_pods: one(), max_pods: four(), table: None }
    }
}

fn one() -> i32 {
    1
}
fn four() -> i32 {
    4
}
fn ten() -> i32 {
    10
}
fn five_minutes() -> Seconds {
    300.0
}
