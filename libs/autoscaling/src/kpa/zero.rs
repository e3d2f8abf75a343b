//! Scale to zero, and up from it, as a state machine (Knative `pkg/reconciler/autoscaling/kpa/scaler.go`).
//!
//! Not here: probing, patching and the clock; the caller does what [`Step`] says and calls again.

use serde::{Deserialize, Serialize};

use super::KpaSpec;
use crate::Seconds;

/// Pods wanted when nothing is known yet.
pub const UNKNOWN: i32 = -1;
/// Seconds after which an asynchronous step is looked at again.
const SOON: Seconds = 3.0;
/// Slack on top of the progress deadline before a workload that never became active is given up.
const ACTIVATION_SLACK: Seconds = 30.0;

/// Whether a workload serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activity {
    /// It does.
    Active,
    /// It is on its way.
    Activating,
    /// It has no pods, or is about to lose the last.
    Inactive,
}

/// What the state machine is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Situation {
    /// Pods wanted by the decider; below 0: unknown.
    pub desired: i32,
    /// Bounds; a highest of 0 is none.
    pub min: i32,
    /// See `min`.
    pub max: i32,
    /// Whether the initial scale was reached once.
    pub initialized: bool,
    /// Whether scaling to zero is allowed at all.
    pub enabled: bool,
    /// Activity, and for how long.
    pub activity: Activity,
    /// Seconds in this activity.
    pub activity_for: Seconds,
    /// Seconds for which the activator has been in the path; none: it is not.
    pub proxied_for: Option<Seconds>,
    /// Whether the activator answered when probed just now; none: not asked yet.
    pub probe: Option<bool>,
    /// Seconds that a start may take.
    pub progress_deadline: Seconds,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Pods wanted after the bounds; below 0: unknown.
    pub want: i32,
    /// Write them now (if they differ).
    pub apply: bool,
    /// Ask whether the activator answers, and look again with the result.
    pub probe: bool,
    /// Look again in so many seconds at the latest.
    pub again: Option<Seconds>,
}

impl Step {
    fn apply(want: i32) -> Self {
        Self { want, apply: true, probe: false, again: None }
    }
    fn wait(want: i32, again: Seconds) -> Self {
        Self { want, apply: false, probe: false, again: Some(again) }
    }
}

/// The next step towards what the decider wants.
pub fn step(spec: &KpaSpec, seen: &Situation) -> Step {
    if seen.desired < 0 && seen.activity != Activity::Activating {
        return Step { want: seen.desired, apply: false, probe: false, again: None };
    }
    let mut min = if spec.reachable { seen.min } else { 0 };
    if spec.initial_scale > 1 && !seen.initialized && spec.reachable {
        min = min.max(spec.initial_scale);
    }
    let bounded = seen.desired.max(min);
    let want = if seen.max > 0 { bounded.min(seen.max) } else { bounded };
    if want != 0 {
        return if want < 0 { Step { want, apply: false, probe: false, again: None } } else { Step::apply(want) };
    }
    to_zero(spec, seen)
}

fn to_zero(spec: &KpaSpec, seen: &Situation) -> Step {
    if !seen.enabled {
        return Step::apply(1);
    }
    match seen.activity {
        Activity::Activating if seen.activity_for > seen.progress_deadline + ACTIVATION_SLACK => Step::apply(0),
        Activity::Activating => Step::wait(UNKNOWN, seen.progress_deadline + ACTIVATION_SLACK - seen.activity_for),
        Activity::Active if seen.activity_for >= spec.stable_window => {
            // Not yet: returning 0 marks it inactive and brings the activator into the path.
            Step { want: 0, apply: false, probe: false, again: seen.proxied_for.map(|_| SOON) }
        }
        Activity::Active => Step { again: Some(spec.stable_window - seen.activity_for), ..Step::apply(1) },
        Activity::Inactive => leave(spec, seen),
    }
}

/// The last pod goes when the activator takes requests, and grace and retention are over.
fn leave(spec: &KpaSpec, seen: &Situation) -> Step {
    if spec.target_burst_capacity != -1.0 && seen.probe != Some(true) {
        return Step { probe: seen.probe.is_none(), ..Step::wait(0, SOON) };
    }
    let retention = if spec.reachable { spec.scale_to_zero_pod_retention } else { 0.0 };
    let grace = spec.scale_to_zero_grace_period;
    if seen.activity_for >= grace.max(retention) {
        return Step::apply(0);
    }
    if retention > seen.activity_for {
        return Step::wait(0, retention - seen.activity_for);
    }
    // The fast path: the activator has been in the path for long enough, whatever the workload's own clock says.
    let left = grace - seen.proxied_for.unwrap_or(0.0);
    if left <= 0.0 { Step::apply(0) } else { Step::wait(0, left) }
}

/// Activity that follows from what is wanted and what is ready (Knative `kpa.go`, computeActiveCondition).
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

/// Whether the activator leaves the path: pods are wanted and a burst would find room.
pub fn serves_directly(want: i32, excess_burst_capacity: i32) -> bool {
    want > 0 && excess_burst_capacity >= 0
}
