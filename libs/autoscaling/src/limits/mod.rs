//! The limits that every policy's proposal passes before it becomes a decision: stabilisation, rates, bounds, pause and pin.
//!
//! The rules are those of the HPA controller's `behavior` (autoscaling/v2) for all three policies, so that a limit means
//! the same whichever policy proposes. Where a proposal comes from is not decided here.

mod behavior;
mod filter;
mod legacy;

use serde::{Deserialize, Serialize};

pub(crate) use behavior::clamp;
pub use behavior::{Behavior, PolicyType, ScalingPolicy, ScalingRules, SelectPolicy};
pub(crate) use filter::{Filtered, WithoutBehavior, filter, hold};

use crate::{Seconds, SpecError};

/// Bounds, rates, pause and pin of one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    /// Minimum replicas. 0 lets a policy that supports it scale to zero.
    pub min_replicas: i32,
    /// Maximum replicas.
    pub max_replicas: i32,
    /// Stabilisation windows and rates, as in autoscaling/v2. If absent, `threshold` uses the HPA's older fixed rules and the other policies have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behavior: Option<Behavior>,
    /// Scale-down stabilisation window in seconds (the HPA controller's flag), unless `behavior` sets one.
    pub downscale_stabilization: Seconds,
    /// Directions in which the workload is not scaled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
    /// Fixed number of replicas, whatever the policy proposes. Proposals are still made and recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<i32>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { min_replicas: 1, max_replicas: 10, behavior: None, downscale_stabilization: 300.0, pause: None, pin: None }
    }
}

impl Limits {
    /// Checks that the bounds do not contradict each other.
    ///
    /// # Errors
    /// If a bound, window or pin is negative, or the maximum is 0 or below the minimum.
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
    /// Do not scale down.
    In,
    /// Do not scale up.
    Out,
    /// Do not scale in either direction.
    All,
}

/// What the limits remember between decisions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitsState {
    /// Proposals before stabilisation, with their times. None: this workload was never decided on before.
    pub recommendations: Option<Vec<Recommendation>>,
    /// Replicas added earlier, as long as a rate's period covers them.
    pub scale_ups: Vec<ScaleEvent>,
    /// Replicas removed earlier, as long as a rate's period covers them.
    pub scale_downs: Vec<ScaleEvent>,
}

/// An earlier proposal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    pub at: Seconds,
    /// Replicas proposed.
    pub value: i32,
}

/// An earlier change of the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScaleEvent {
    pub at: Seconds,
    /// Replicas added or removed; always above 0.
    pub change: i32,
}

impl LimitsState {
    /// Treats the current replicas of a workload seen for the first time as a proposal,
    /// so that a restart does not scale down for one stabilisation window.
    pub fn record_first_observation(&mut self, at: Seconds, replicas: i32) {
        self.recommendations.get_or_insert_with(|| vec![Recommendation { at, value: replicas }]);
    }

    /// Records that the replicas were changed, and drops changes that are older than every rate's period.
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
