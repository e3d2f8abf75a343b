//! The configuration of an offline run: a policy and its settings.

use serde::{Deserialize, Serialize};

use super::OfflineError;
use crate::kpa::KpaSpec;
use crate::qlearning::QLearningSpec;
use crate::threshold::ThresholdSpec;
use crate::{Behavior, Limits, Policy, PolicyKind, Seconds, SpecError};

/// A policy and its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The policy that decides.
    pub policy: PolicyKind,
    /// Settings of the policy `threshold`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<ThresholdSection>,
    /// Settings of the policy `kpa`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kpa: Option<KpaSection>,
    /// Settings of the policy `qlearning`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qlearning: Option<QLearningSection>,
}

/// Settings of `threshold` and its limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ThresholdSection {
    #[serde(flatten)]
    pub spec: ThresholdSpec,
    /// Minimum replicas.
    #[serde(default = "one")]
    pub min_replicas: i32,
    /// Maximum replicas.
    #[serde(default = "ten")]
    pub max_replicas: i32,
    /// Stabilisation windows and rates, as in autoscaling/v2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behavior: Option<Behavior>,
    /// Scale-down stabilisation window in seconds.
    #[serde(default = "five_minutes")]
    pub downscale_stabilization: Seconds,
}

/// Settings of `kpa` and how it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KpaSection {
    #[serde(flatten)]
    pub spec: KpaSpec,
    /// Ready pods at the start; with more than one the policy starts in panic.
    #[serde(default = "one")]
    pub initial_ready: i32,
    /// The panic to start in, whatever the number of pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub panic: Option<PanicStart>,
}

/// A panic that has already begun.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PanicStart {
    /// When it began, in seconds.
    pub since: Seconds,
    /// Most pods wanted so far.
    pub max_pods: i32,
}

/// Settings of `qlearning`, its bounds and its Q-table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QLearningSection {
    #[serde(flatten)]
    pub spec: QLearningSpec,
    /// Minimum pods.
    #[serde(default = "one")]
    pub min_pods: i32,
    /// Maximum pods.
    #[serde(default = "four")]
    pub max_pods: i32,
    /// File with the Q-table to start from (made by `drover autoscale train`). Default: a table without experience.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
}

impl Config {
    /// The policy and its limits, checked.
    ///
    /// # Errors
    /// If there is a section of another policy, or a setting cannot be used.
    pub fn resolve(&self) -> Result<(Policy, Limits), OfflineError> {
        let extra = [
            ("threshold", self.threshold.is_some(), PolicyKind::Threshold),
            ("kpa", self.kpa.is_some(), PolicyKind::Kpa),
            ("qlearning", self.qlearning.is_some(), PolicyKind::QLearning),
        ];
        if let Some((name, ..)) = extra.iter().find(|(_, there, kind)| *there && *kind != self.policy) {
            return Err(SpecError::new(*name, "belongs to another policy than the one that is selected").into());
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
                // Bounds are applied after the decider, by the scaler; there is no scaler offline.
                (Policy::Kpa(spec), Limits { min_replicas: 0, max_replicas: i32::MAX, ..Limits::default() })
            }
            PolicyKind::QLearning => {
                let QLearningSection { spec, min_pods, max_pods, .. } = self.qlearning.clone().unwrap_or_default();
                SpecError::unless(min_pods >= 1, "minPods", "must be 1 or more")?;
                SpecError::unless(max_pods >= min_pods, "maxPods", "must be no less than minPods")?;
                (Policy::QLearning(spec), Limits { min_replicas: min_pods, max_replicas: max_pods, ..Limits::default() })
            }
        };
        // A metric of an unknown type is not refused here but reported with each decision, as the HPA controller does.
        if !matches!(policy, Policy::Threshold(_)) {
            policy.check()?;
        } else if let Policy::Threshold(spec) = &policy {
            ThresholdSpec { metrics: Vec::new(), ..spec.clone() }.check()?;
        }
        limits.check()?;
        Ok((policy, limits))
    }

    /// The Q-table file that the configuration names.
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
