//! Scaling to zero and back as a state machine (Knative `pkg/reconciler/autoscaling/kpa/scaler.go`).
//!
//! Probing, patching and the clock are up to the caller, who does what [`ZeroStep`] says and calls [`step`] again.

use serde::{Deserialize, Serialize};

use super::KpaSpec;
use crate::Seconds;

/// Number of pods while it is not known how many are wanted.
pub const UNKNOWN: i32 = -1;
/// Seconds until an asynchronous step is checked again.
const SOON: Seconds = 3.0;
/// Seconds on top of the progress deadline after which a workload that never became active is scaled to zero.
const ACTIVATION_SLACK: Seconds = 30.0;

/// Whether a workload serves requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activity {
    /// It serves.
    Active,
    /// It is starting.
    Activating,
    /// It has no pods, or is about to lose the last one.
    Inactive,
}

/// The input of the state machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Situation {
    /// Pods wanted by the decider; below 0: unknown.
    pub desired: i32,
    /// Minimum pods.
    pub min: i32,
    /// Maximum pods; 0: no maximum.
    pub max: i32,
    /// Whether the initial scale has been reached once.
    pub initialized: bool,
    /// Whether scaling to zero is allowed.
    pub enabled: bool,
    pub activity: Activity,
    /// Seconds in this activity.
    pub activity_for: Seconds,
    /// Seconds for which the activator has been in the request path; none: it is not in the path.
    pub proxied_for: Option<Seconds>,
    /// Whether the activator answered the last probe; none: it was not probed.
    pub probe: Option<bool>,
    /// Seconds that a start may take.
    pub progress_deadline: Seconds,
}

/// What the caller has to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ZeroStep {
    /// Pods wanted after the bounds; below 0: unknown.
    pub want: i32,
    /// Write `want` now if it differs.
    pub apply: bool,
    /// Probe whether the activator answers, and call [`step`] again with the result.
    pub probe: bool,
    /// Call [`step`] again after this many seconds at the latest.
    pub again: Option<Seconds>,
}

impl ZeroStep {
    fn apply(want: i32) -> Self {
        Self { want, apply: true, probe: false, again: None }
    }
    fn wait(want: i32, again: Seconds) -> Self {
        Self { want, apply: false, probe: false, again: Some(again) }
    }
}

/// The next step towards the number of pods that the decider wants.
pub fn step(spec: &KpaSpec, seen: &Situation) -> ZeroStep {
    if seen.desired < 0 && seen.activity != Activity::Activating {
        return ZeroStep { want: seen.desired, apply: false, probe: false, again: None };
    }
    let mut min = if spec.reachable { seen.min } else { 0 };
    if spec.initial_scale > 1 && !seen.initialized && spec.reachable {
        min = min.max(spec.initial_scale);
    }
    let bounded = seen.desired.max(min);
    let want = if seen.max > 0 { bounded.min(seen.max) } else { bounded };
    if want != 0 {
        return if want < 0 { ZeroStep { want, apply: false, probe: false, again: None } } else { ZeroStep::apply(want) };
    }
    to_zero(spec, seen)
}

fn to_zero(spec: &KpaSpec, seen: &Situation) -> ZeroStep {
    if !seen.enabled {
        return ZeroStep::apply(1);
    }
    match seen.activity {
        Activity::Activating if seen.activity_for > seen.progress_deadline + ACTIVATION_SLACK => ZeroStep::apply(0),
        Activity::Activating => ZeroStep::wait(UNKNOWN, seen.progress_deadline + ACTIVATION_SLACK - seen.activity_for),
        Activity::Active if seen.activity_for >= spec.stable_window => {
            // Not yet: `want` 0 marks the workload inactive and brings the activator into the request path.
            ZeroStep { want: 0, apply: false, probe: false, again: seen.proxied_for.map(|_| SOON) }
        }
        Activity::Active => ZeroStep { again: Some(spec.stable_window - seen.activity_for), ..ZeroStep::apply(1) },
        Activity::Inactive => leave(spec, seen),
    }
}

/// Removes the last pod once the activator takes requests, and grace period and retention are over.
fn leave(spec: &KpaSpec, seen: &Situation) -> ZeroStep {
    if spec.target_burst_capacity != -1.0 && seen.probe != Some(true) {
        return ZeroStep { probe: seen.probe.is_none(), ..ZeroStep::wait(0, SOON) };
    }
    let retention = if spec.reachable { spec.scale_to_zero_pod_retention } else { 0.0 };
    let grace = spec.scale_to_zero_grace_period;
    if seen.activity_for >= grace.max(retention) {
        return ZeroStep::apply(0);
    }
    if retention > seen.activity_for {
        return ZeroStep::wait(0, retention - seen.activity_for);
    }
    // The activator has been in the path for the whole grace period, so it does not matter how long the workload has been inactive.
    let left = grace - seen.proxied_for.unwrap_or(0.0);
    if left <= 0.0 { ZeroStep::apply(0) } else { ZeroStep::wait(0, left) }
}

/// The activity that follows from the wanted and the ready pods (Knative `kpa.go`, computeActiveCondition).
pub fn activity(want: i32, ready: i32, min: i32, initial_scale: i32, initialized: bool, now: Activity) -> Activity {
    let least = if initialized { min.max(1) } else { min.max(initial_scale) };
    match want {
        0 => Activity::Inactive,
        UNKNOWN if ready >= least && least > 0 => {
            if now == Activity::Inactive {
                Activity::Inactive
            } else {
                Activity::Active
            }
        }
        UNKNOWN => {
            if now == Activity::Inactive || least == 0 {
                Activity::Inactive
            } else {
                Activity::Activating
            }
        }
        _ if ready < least => Activity::Activating,
        _ => Activity::Active,
    }
}

/// Whether the activator leaves the request path: pods are wanted and there is room for a burst.
pub fn serves_directly(want: i32, excess_burst_capacity: i32) -> bool {
    want > 0 && excess_burst_capacity >= 0
}
