//! What is remembered of a workload, in the form in which it goes along when the workload moves to another cluster.
//!
//! Clocks of clusters differ, and a move takes some time, in which nothing is observed. So all times are shifted to the moment at which the
//! new place goes on: as if no time had passed. Q-tables are not part of it; they go along as documents of their own.

use serde::{Deserialize, Serialize};

use crate::kpa::{Collector, KpaMetric, KpaState};
use crate::{Limits, LimitsState, Policy, PolicyState, STATE_VERSION, ScalingState, Seconds};

/// Seconds after which what was remembered says nothing any more.
const STALE: Seconds = 600.0;

/// What an agent remembers of one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Carried {
    /// The [`STATE_VERSION`] with which it was written; what was written with another one is not used.
    pub version: u32,
    /// When it was written, by the clock of the old place.
    pub at: Seconds,
    /// Earlier proposals and changes: for the stabilisation windows and rates.
    pub limits: LimitsState,
    /// `kpa`: whether it panics, and earlier proposals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kpa: Option<KpaState>,
    /// `kpa`: what its windows hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<Samples>,
}

/// Samples of the windows of `kpa`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Samples {
    /// What was measured.
    pub metric: KpaMetric,
    /// Time and value, oldest first. Seconds in between without one count as zero.
    pub values: Vec<(Seconds, f64)>,
}

impl Carried {
    /// What is remembered at `at`.
    pub fn of(state: &ScalingState, at: Seconds, windows: Option<(KpaMetric, &Collector)>) -> Self {
        let kpa = match &state.policy {
            PolicyState::Kpa(kpa) => Some(kpa.clone()),
            PolicyState::Threshold | PolicyState::QLearning(_) => None,
        };
        let windows = windows.map(|(metric, collector)| Samples { metric, values: collector.samples() });
        Self {
            version: STATE_VERSION,
            at,
            limits: state.limits.clone(),
            kpa,
            windows: windows.filter(|windows| !windows.values.is_empty()),
        }
    }

    /// Whether it can be continued at `now`, by the clock of the new place.
    pub fn is_usable(&self, now: Seconds) -> bool {
        self.version == STATE_VERSION && (now - self.at).abs() <= STALE
    }

    /// The same as if it had been written at `now`.
    #[must_use]
    pub fn shifted_to(mut self, now: Seconds) -> Self {
        let by = now - self.at;
        self.at = now;
        self.limits.recommendations.iter_mut().flatten().for_each(|one| one.at += by);
        self.limits.scale_ups.iter_mut().chain(&mut self.limits.scale_downs).for_each(|one| one.at += by);
        if let Some(kpa) = &mut self.kpa {
            kpa.shift(by);
        }
        self.windows.iter_mut().flat_map(|windows| &mut windows.values).for_each(|(at, _)| *at += by);
        self
    }

    /// The state with which a policy goes on.
    pub fn state(&self, policy: &Policy, limits: &Limits) -> ScalingState {
        let mut state = ScalingState::new(policy, limits, self.at, 0);
        state.limits = self.limits.clone();
        if let (PolicyState::Kpa(new), Some(kpa)) = (&mut state.policy, &self.kpa) {
            *new = kpa.clone();
        }
        state
    }
}
