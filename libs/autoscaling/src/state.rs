//! What a policy observes and what it remembers. Both are serialisable, so that a restarted process continues from the same state.

use serde::{Deserialize, Serialize};

use crate::kpa::{KpaObservation, KpaState};
use crate::limits::LimitsState;
use crate::qlearning::{QLearningObservation, QLearningState};
use crate::threshold::ThresholdObservation;
use crate::{Limits, Policy, Seconds};

/// Version of the format of [`ScalingState`]. A state of another version is not used, and the policy starts without one.
pub const STATE_VERSION: u32 = 1;

/// What was observed of one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Observation {
    Threshold(ThresholdObservation),
    Kpa(KpaObservation),
    QLearning(QLearningObservation),
}

impl Observation {
    /// When the observation was made.
    pub fn at(&self) -> Seconds {
        self.now().0
    }

    /// When the observation was made, and the replicas that were set then.
    pub(crate) fn now(&self) -> (Seconds, i32) {
        match self {
            Self::Threshold(seen) => (seen.at, seen.replicas),
            Self::Kpa(seen) => (seen.at, seen.replicas),
            Self::QLearning(seen) => (seen.at, seen.pods),
        }
    }
}

/// What is remembered about one workload between decisions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScalingState {
    /// [`STATE_VERSION`].
    pub version: u32,
    pub policy: PolicyState,
    pub limits: LimitsState,
}

/// What a policy remembers between decisions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyState {
    /// `threshold` remembers nothing except what the limits remember.
    Threshold,
    Kpa(KpaState),
    /// Includes the Q-table.
    QLearning(Box<QLearningState>),
}

impl ScalingState {
    /// The state of a workload never decided on before, with `ready` replicas at `now`.
    /// With several ready replicas KPA starts in panic mode, so that a restart does not scale down for one stable window.
    pub fn new(policy: &Policy, limits: &Limits, now: Seconds, ready: i32) -> Self {
        let policy = match policy {
            Policy::Threshold(_) => PolicyState::Threshold,
            Policy::Kpa(_) => PolicyState::Kpa(KpaState::new(now, ready)),
            Policy::QLearning(_) => PolicyState::QLearning(Box::new(QLearningState::new(limits))),
        };
        Self { version: STATE_VERSION, policy, limits: LimitsState::default() }
    }

    /// Whether this state has the current version and belongs to this policy.
    pub fn fits(&self, policy: &Policy) -> bool {
        self.version == STATE_VERSION
            && matches!(
                (&self.policy, policy),
                (PolicyState::Threshold, Policy::Threshold(_))
                    | (PolicyState::Kpa(_), Policy::Kpa(_))
                    | (PolicyState::QLearning(_), Policy::QLearning(_))
            )
    }
}
