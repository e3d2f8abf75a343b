//! Passes one proposal through the limits, step by step.

use std::cmp::Ordering;

use super::behavior::History;
use super::{Limits, LimitsState, Pause, Recommendation, legacy};
use crate::{Reason, Seconds};

/// A proposal after each limit; `want` is the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filtered {
    pub stabilized: i32,
    pub rate_limited: i32,
    pub bounded: i32,
    /// After pause and pin.
    pub want: i32,
    pub reason: Reason,
}

/// Which limits apply when there is no `behavior`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WithoutBehavior {
    /// The HPA's rules from before `behavior` existed.
    Legacy,
    /// Only the bounds, because the policy stabilises its proposals itself.
    Bounds,
}

/// Passes `proposal` through the limits and records it in `state`.
pub(crate) fn filter(
    limits: &Limits,
    without: WithoutBehavior,
    state: &mut LimitsState,
    now: Seconds,
    current: i32,
    proposal: i32,
) -> Filtered {
    let (min, max) = (limits.min_replicas, limits.max_replicas);
    let (stabilized, rate_limited, bounded) = match (&limits.behavior, without) {
        (Some(behavior), _) => {
            let (up, down) = (behavior.up(), behavior.down(limits.downscale_stabilization));
            let stabilized = stabilize(state, (up.window, down.window), now, current, proposal);
            let history = History { now, ups: &state.scale_ups, downs: &state.scale_downs };
            let rate_limited = stabilized.min(up.highest(current, history)).max(down.lowest(current, history));
            // A bound only applies in the direction of the change: a workload outside of its bounds is brought back before this step.
            let bounded = match stabilized.cmp(&current) {
                Ordering::Greater => rate_limited.min(max),
                Ordering::Less => rate_limited.max(min),
                Ordering::Equal => current,
            };
            (stabilized, rate_limited, bounded)
        }
        (None, WithoutBehavior::Legacy) => {
            let stabilized = legacy::stabilize(state, limits.downscale_stabilization, now, proposal);
            let rate_limited = stabilized.min(legacy::highest(current));
            (stabilized, rate_limited, if stabilized < min { min } else { rate_limited.min(max) })
        }
        (None, WithoutBehavior::Bounds) => (proposal, proposal, proposal),
    };
    let bounded = if without == WithoutBehavior::Bounds { bounded.max(min).min(max) } else { bounded };
    let reason = match bounded.cmp(&stabilized) {
        Ordering::Less if bounded == rate_limited && bounded < max => Reason::ScaleUpLimit,
        Ordering::Less => Reason::TooManyReplicas,
        Ordering::Greater if bounded == rate_limited && bounded > min => Reason::ScaleDownLimit,
        Ordering::Greater => Reason::TooFewReplicas,
        Ordering::Equal => Reason::DesiredWithinRange,
    };
    let (want, reason) = hold(limits, current, bounded, reason);
    Filtered { stabilized, rate_limited, bounded, want, reason }
}

/// Applies pause and pin, which take precedence over everything else.
pub(crate) fn hold(limits: &Limits, current: i32, bounded: i32, reason: Reason) -> (i32, Reason) {
    if let Some(pin) = limits.pin {
        return (pin, Reason::Pinned);
    }
    let held = match limits.pause {
        Some(Pause::All) => bounded != current,
        Some(Pause::In) => bounded < current,
        Some(Pause::Out) => bounded > current,
        None => false,
    };
    if held { (current, Reason::Paused) } else { (bounded, reason) }
}

/// Both windows always apply: the result is not above what the scale-up window allows and not below what the scale-down window asks for.
fn stabilize(state: &mut LimitsState, windows: (Seconds, Seconds), now: Seconds, current: i32, proposal: i32) -> i32 {
    let recommendations = state.recommendations.get_or_insert_default();
    let younger = |window: Seconds| {
        let since = now - window;
        recommendations.iter().filter(move |past| past.at > since).map(|past| past.value)
    };
    let up = younger(windows.0).fold(proposal, i32::min);
    let down = younger(windows.1).fold(proposal, i32::max);
    let oldest = now - windows.0.max(windows.1);
    recommendations.retain(|past| past.at >= oldest);
    recommendations.push(Recommendation { at: now, value: proposal });
    current.max(up).min(down)
}
