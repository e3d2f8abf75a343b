//! The `behavior` section of autoscaling/v2: its fields, its defaults, and the limit that the rates of one direction allow.

use serde::{Deserialize, Serialize};

use super::ScaleEvent;
use crate::{Milli, Seconds};

/// How fast a workload may be scaled up and down.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Behavior {
    /// Scaling up. Default: without a stabilisation window, by 4 pods or 100 % in 15 s, whichever is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_up: Option<ScalingRules>,
    /// Scaling down. Default: after the stabilisation window, by 100 % in 15 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_down: Option<ScalingRules>,
}

/// Stabilisation window and rates of one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScalingRules {
    /// Stabilisation window in seconds: within it, the proposal that changes least counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stabilization_window_seconds: Option<u32>,
    /// Which of the rates counts. Default: `Max`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub select_policy: Option<SelectPolicy>,
    /// Rates; if absent or empty, the defaults apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policies: Option<Vec<ScalingPolicy>>,
    /// Share of the target by which the metric may differ before this direction is scaled (`threshold` only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<Milli>,
}

/// Which rate counts when there are several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum SelectPolicy {
    /// The rate that allows the largest change.
    #[default]
    Max,
    /// The rate that allows the smallest change.
    Min,
    /// This direction is switched off.
    Disabled,
}

/// A rate: the largest change within a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScalingPolicy {
    /// Unit of `value`.
    #[serde(rename = "type")]
    pub kind: PolicyType,
    /// Largest change within the period.
    pub value: i32,
    /// Length of the period in seconds.
    pub period_seconds: u32,
}

/// Unit of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum PolicyType {
    /// Number of pods.
    Pods,
    /// Per cent of the replicas at the start of the period.
    Percent,
}

/// The rules of one direction, with defaults filled in.
pub(crate) struct Direction<'a> {
    pub window: Seconds,
    pub select: SelectPolicy,
    pub policies: &'a [ScalingPolicy],
}

const UP: [ScalingPolicy; 2] = [
    ScalingPolicy { kind: PolicyType::Pods, value: 4, period_seconds: 15 },
    ScalingPolicy { kind: PolicyType::Percent, value: 100, period_seconds: 15 },
];
const DOWN: [ScalingPolicy; 1] = [ScalingPolicy { kind: PolicyType::Percent, value: 100, period_seconds: 15 }];

impl Behavior {
    /// Rules for scaling up; the default stabilisation window is 0 s.
    pub(crate) fn up(&self) -> Direction<'_> {
        Direction::new(self.scale_up.as_ref(), 0.0, &UP)
    }
    /// Rules for scaling down; the default stabilisation window is `window`.
    pub(crate) fn down(&self, window: Seconds) -> Direction<'_> {
        Direction::new(self.scale_down.as_ref(), window, &DOWN)
    }
}

impl<'a> Direction<'a> {
    fn new(rules: Option<&'a ScalingRules>, window: Seconds, default: &'a [ScalingPolicy]) -> Self {
        Self {
            window: rules.and_then(|rules| rules.stabilization_window_seconds).map_or(window, f64::from),
            select: rules.and_then(|rules| rules.select_policy).unwrap_or_default(),
            policies: rules.and_then(|rules| rules.policies.as_deref()).filter(|policies| !policies.is_empty()).unwrap_or(default),
        }
    }

    /// The most replicas that scaling up may reach now; never below `current`.
    pub(crate) fn highest(&self, current: i32, history: History<'_>) -> i32 {
        let limits = self.policies.iter().map(|policy| {
            let start = history.start(current, policy.period_seconds);
            match policy.kind {
                PolicyType::Pods => clamp(start + f64::from(policy.value)),
                PolicyType::Percent => clamp((start * (1.0 + f64::from(policy.value) / 100.0)).ceil()),
            }
        });
        let limit = match self.select {
            SelectPolicy::Disabled => None,
            SelectPolicy::Max => limits.max(),
            SelectPolicy::Min => limits.min(),
        };
        limit.unwrap_or(current).max(current)
    }

    /// The fewest replicas that scaling down may reach now; never above `current`.
    pub(crate) fn lowest(&self, current: i32, history: History<'_>) -> i32 {
        let limits = self.policies.iter().map(|policy| {
            let start = history.start(current, policy.period_seconds);
            match policy.kind {
                PolicyType::Pods => clamp(start - f64::from(policy.value)),
                PolicyType::Percent => clamp((start * (1.0 - f64::from(policy.value) / 100.0)).trunc()),
            }
        });
        let limit = match self.select {
            SelectPolicy::Disabled => None,
            SelectPolicy::Max => limits.min(),
            SelectPolicy::Min => limits.max(),
        };
        limit.unwrap_or(current).min(current)
    }
}

/// Earlier changes, as seen from `now`.
#[derive(Clone, Copy)]
pub(crate) struct History<'a> {
    pub now: Seconds,
    pub ups: &'a [ScaleEvent],
    pub downs: &'a [ScaleEvent],
}

impl History<'_> {
    /// Replicas at the start of a period: `current` without the changes made since then.
    fn start(&self, current: i32, period: u32) -> f64 {
        let since = self.now - f64::from(period);
        let sum = |events: &[ScaleEvent]| events.iter().filter(|event| event.at > since).map(|event| f64::from(event.change)).sum::<f64>();
        f64::from(current) - sum(self.ups) + sum(self.downs)
    }
}

/// Converts to a whole number of replicas, limited to the range of the API's type.
#[expect(clippy::cast_possible_truncation, reason = "a float casts to the nearest i32, NaN to 0")]
pub(crate) fn clamp(replicas: f64) -> i32 {
    replicas as i32
}
