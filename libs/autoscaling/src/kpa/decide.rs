//! One KPA decision (Knative `pkg/autoscaler/scaling/autoscaler.go`): panic, rates, scale-down delay, burst capacity.

use super::{KpaObservation, KpaSpec, KpaState, KpaSteps, max_window};
use crate::limits::clamp;

/// Seconds per slot of the scale-down delay; Knative's tick.
pub const TICK: f64 = 2.0;

/// Proposes a number of pods and gives the steps to it. None: a value was not read, and the state is unchanged.
pub(crate) fn propose(spec: &KpaSpec, state: &mut KpaState, seen: &KpaObservation) -> Option<(i32, KpaSteps)> {
    let (&ready, &stable, &panic) = (seen.ready.fresh()?, seen.stable.fresh()?, seen.panic.fresh()?);
    if !stable.is_finite() || !panic.is_finite() {
        return None;
    }
    let resolved = spec.resolve();
    let base = f64::from(ready).max(1.0);
    let most = (spec.max_scale_up_rate * base).ceil();
    let fewest = if spec.reachable { (base / spec.max_scale_down_rate).floor() } else { 0.0 };
    let (by_stable, by_panic) = ((stable / resolved.target).ceil(), (panic / resolved.target).ceil());
    let within = |pods: f64| {
        let clamped = clamp(pods.max(fewest).min(most));
        if spec.activation_scale > 1 && pods > 0.0 { clamped.max(spec.activation_scale) } else { clamped }
    };
    let (clamped_stable, clamped_panic) = (within(by_stable), within(by_panic));

    // Panic begins or is extended while the load is over the threshold; it ends a stable window after the last time.
    if by_panic / base >= spec.panic_threshold {
        state.panic_since = Some(seen.at);
    } else if state.panic_since.is_some_and(|since| since + spec.stable_window < seen.at) {
        state.panic_since = None;
        state.max_panic_pods = 0;
    }
    let mut want = clamped_stable;
    if state.panic_since.is_some() {
        // The stable window may want more than the panic window. During panic the number never falls.
        state.max_panic_pods = state.max_panic_pods.max(want).max(clamped_panic);
        want = state.max_panic_pods;
    }
    let undelayed = want;
    if spec.reachable && spec.scale_down_delay > 0.0 {
        let slots = clamp((spec.scale_down_delay / TICK).ceil());
        want = max_window::record(&mut state.delayed, i64::from(slots), slot(seen.at), want);
    }
    let steps = KpaSteps {
        raw_stable: clamp(by_stable),
        raw_panic: clamp(by_panic),
        clamped_stable,
        clamped_panic,
        undelayed,
        excess_burst_capacity: excess_burst_capacity(spec.target_burst_capacity, ready, resolved.total, panic),
        panic_since: state.panic_since,
        max_panic_pods: state.max_panic_pods,
    };
    Some((want, steps))
}

/// Burst capacity that is left: what the ready pods can take at full use, less the load and the burst to keep room for.
fn excess_burst_capacity(target: f64, ready: i32, total: f64, panic: f64) -> i32 {
    if target == 0.0 {
        0
    } else if target < 0.0 {
        -1
    } else {
        clamp((f64::from(ready) * total - target - panic).floor())
    }
}

/// The slot of the scale-down delay that contains a time.
#[expect(clippy::cast_possible_truncation, reason = "seconds of any origin fit")]
pub(super) fn slot(at: f64) -> i64 {
    (at / TICK).floor() as i64
}
