//! What a policy is shown, and what it remembers. Both are serialisable, so that a restarted process goes on where it was.

use serde::{Deserialize, Serialize};

use crate::kpa::{KpaObservation, KpaState};
use crate::limits::LimitsState;
use crate::qlearning::{QLearningObservation, QLearningState};
use crate::threshold::ThresholdObservation;
use crate::{Limits, Policy, Seconds};

/// Version of [`State`]'s format; another one is refused, and the policy starts anew.
pub const STATE_VERSION: u32 = 1;

/// What one workload's policy was shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Observation {
    /// For `threshold`.
    Threshold(ThresholdObservation),
    /// For `kpa`.
    Kpa(KpaObservation),
    /// For `qlearning`.
    QLearning(QLearningObservation),
}

impl Observation {
    /// When it was made.
    pub fn at(&self) -> Seconds {
        self.now().0
    }

    /// When it was made, and the replicas that were asked for then.
    pub(crate) fn now(&self) -> (Seconds, i32) {
        match self {
            Self::Threshold(seen) => (seen.at, seen.replicas),
            Self::Kpa(seen) => (seen.at, seen.replicas),
            Self::QLearning(seen) => (seen.at, seen.pods),
        }
    }
}

/// What is remembered about one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// [`STATE_VERSION`].
    pub version: u32,
    /// Of the policy.
    pub policy: PolicyState,
    /// Of the limits.
    pub limits: LimitsState,
}

/// What a policy remembers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyState {
    /// `threshold` remembers nothing beyond the limits.
    Threshold,
    /// Of `kpa`.
    Kpa(KpaState),
    /// Of `qlearning`, with its table.
    QLearning(Box<QLearningState>),
}

impl State {
    /// The state of a workload never seen before, with `ready` replicas at `now`.
    /// KPA starts in panic when there are several: a restart never scales down for one stable window.
    pub fn new(policy: &Policy, limits: &Limits, now: Seconds, ready: i32) -> Self {
        let policy = match policy {
            Policy::Threshold(_) => PolicyState::Threshold,
            Policy::Kpa(_) => PolicyState::Kpa(KpaState::new(now, ready)),
            Policy::QLearning(_) => PolicyState::QLearning(Box::new(QLearningState::new(limits))),
        };
        Self { version: STATE_VERSION, policy, limits: LimitsState::default() }
    }

    /// Whether this state is of this version and policy.
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
