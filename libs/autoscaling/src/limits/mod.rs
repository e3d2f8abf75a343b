//! What every policy's proposal passes before it becomes a decision: stabilisation, rates, bounds, pause and pin.
//!
//! The rules are those of the HPA controller's `behavior` (autoscaling/v2) under all three policies, so that a limit means
//! the same whoever proposes. Not here: where a proposal comes from.

mod behavior;
mod filter;
mod legacy;

use serde::{Deserialize, Serialize};

pub(crate) use behavior::clamp;
pub use behavior::{Behavior, PolicyType, ScalingPolicy, ScalingRules, SelectPolicy};
pub(crate) use filter::{Filtered, Without, filter, hold};

use crate::{Seconds, SpecError};

/// Bounds and speeds of one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    /// Fewest replicas; 0 lets a policy that can do so scale to zero.
    pub min_replicas: i32,
    /// Most replicas.
    pub max_replicas: i32,
    /// Stabilisation windows and rates, as in autoscaling/v2; absent: the HPA's older fixed rules for `threshold`, none for the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behavior: Option<Behavior>,
    /// Scale-down waits until this many seconds proposed no more (the HPA controller's flag), unless `behavior` says otherwise.
    pub downscale_stabilization: Seconds,
    /// Directions in which nothing is changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
    /// Exactly this many replicas, whatever the policy proposes (it goes on proposing).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<i32>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { min_replicas: 1, max_replicas: 10, behavior: None, downscale_stabilization: 300.0, pause: None, pin: None }
    }
}

impl Limits {
    /// Refuses bounds that contradict themselves.
    pub fn check(&self) -> Result<(), SpecError> {
        SpecError::unless(self.min_replicas >= 0, "minReplicas", "must be 0 or more")?;
        SpecError::unless(self.max_replicas >= self.min_replicas.max(1), "maxReplicas", "must be 1 or more, and no less than minReplicas")?;
        SpecError::unless(self.downscale_stabilization >= 0.0, "downscaleStabilization", "must be 0 s or more")?;
        SpecError::unless(self.pin.is_none_or(|pin| pin >= 0), "pin", "must be 0 or more")
    }
}

/// Directions in which a workload is not scaled for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Pause {
    /// Never fewer.
    In,
    /// Never more.
    Out,
    /// Neither.
    All,
}

/// What the limits remember between decisions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitsState {
    /// What was proposed and when, before stabilisation; none: this workload was never seen before.
    pub recommendations: Option<Vec<Recommendation>>,
    /// Replicas added.
    pub scale_ups: Vec<ScaleEvent>,
    /// Replicas removed.
    pub scale_downs: Vec<ScaleEvent>,
}

/// A proposal of the past.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// When, in seconds.
    pub at: Seconds,
    /// Replicas.
    pub value: i32,
}

/// A change of the past.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScaleEvent {
    /// When, in seconds.
    pub at: Seconds,
    /// Replicas added or removed, above 0.
    pub change: i32,
}

impl LimitsState {
    /// A workload seen for the first time counts as if its replicas had just been proposed:
    /// a restart never scales down for one stabilisation window.
    pub fn first_sight(&mut self, at: Seconds, replicas: i32) {
        self.recommendations.get_or_insert_with(|| vec![Recommendation { at, value: replicas }]);
    }

    /// Notes that the replicas were changed, and forgets changes that no rate looks at any more.
    pub fn applied(&mut self, limits: &Limits, at: Seconds, from: i32, to: i32) {
        let Some(behavior) = &limits.behavior else { return };
        let (events, rules, change) = match to.cmp(&from) {
            std::cmp::Ordering::Greater => (&mut self.scale_ups, behavior.up(), to.saturating_sub(from)),
            std::cmp::Ordering::Less => (&mut self.scale_downs, behavior.down(limits.downscale_stabilization), from.saturating_sub(to)),
            std::cmp::Ordering::Equal => return,
        };
        let longest = rules.policies.iter().map(|policy| policy.period_seconds).max().unwrap_or(0);
        events.retain(|event| event.at >= at - f64::from(longest));
        events.push(ScaleEvent { at, change });
    }
}
