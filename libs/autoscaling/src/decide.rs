//! One decision of any policy: the policy's proposal, passed through the limits, with a record of both.

use crate::limits::{self, Filtered, WithoutBehavior};
use crate::{DecisionRecord, Limits, Observation, Policy, PolicyState, Reason, ScalingState, Steps};
use crate::{kpa, qlearning, threshold};

/// Decides how many replicas the workload should have, and returns the record of the decision and the next state.
/// If nothing can be decided, `want` in the record is none and its reason and message say why.
pub fn decide(policy: &Policy, limits: &Limits, mut state: ScalingState, observation: &Observation) -> (DecisionRecord, ScalingState) {
    if limits.behavior.is_some() {
        // With a `behavior`, its windows also apply after a restart, whatever the policy; without one, only `threshold` has a window.
        let (at, replicas) = observation.now();
        state.limits.record_first_observation(at, replicas);
    }
    let record = match (policy, &mut state.policy, observation) {
        (Policy::Threshold(spec), PolicyState::Threshold, Observation::Threshold(seen)) => {
            state.limits.record_first_observation(seen.at, seen.replicas);
            let mut record = blank(policy, observation, seen.replicas, Steps::Threshold(Default::default()));
            let (min, max) = (limits.min_replicas, limits.max_replicas);
            if seen.replicas == 0 && min != 0 {
                complete_without_metrics(
                    &mut record,
                    limits,
                    0,
                    Reason::ScalingDisabled,
                    "replicas are 0: the workload was switched off by hand and stays so until somebody sets replicas above 0",
                );
            } else if seen.replicas > max {
                complete_without_metrics(&mut record, limits, max, Reason::TooManyReplicas, "more replicas than the bounds allow");
            } else if seen.replicas < min {
                complete_without_metrics(&mut record, limits, min, Reason::TooFewReplicas, "fewer replicas than the bounds allow");
            } else {
                let proposed = threshold::propose(spec, limits, seen);
                record.steps = Steps::Threshold(proposed.steps);
                match proposed.replicas {
                    Ok(replicas) => {
                        let filtered = limits::filter(limits, WithoutBehavior::Legacy, &mut state.limits, seen.at, seen.replicas, replicas);
                        complete(&mut record, replicas, filtered);
                        if let Some(warning) = proposed.warning {
                            record.message = format!("{}; a metric could not be used: {warning}", record.message);
                        }
                    }
                    Err((reason, text)) => refuse(&mut record, reason, text),
                }
            }
            record
        }
        (Policy::Kpa(spec), PolicyState::Kpa(memory), Observation::Kpa(seen)) => {
            let mut record = blank(policy, observation, seen.replicas, Steps::Kpa(Default::default()));
            match kpa::propose(spec, memory, seen) {
                Some((want, steps)) => {
                    let calm = if steps.panic_since.is_some() { Reason::Panic } else { Reason::Stable };
                    record.steps = Steps::Kpa(steps);
                    let filtered = limits::filter(limits, WithoutBehavior::Bounds, &mut state.limits, seen.at, seen.replicas, want);
                    complete(&mut record, want, filtered);
                    use_own_reason(&mut record, calm);
                }
                None => {
                    let missing = [
                        ("ready pods", seen.ready.trouble()),
                        ("stable window", seen.stable.trouble()),
                        ("panic window", seen.panic.trouble()),
                    ];
                    refuse(&mut record, Reason::NoData, describe_missing(&missing));
                }
            }
            record
        }
        (Policy::QLearning(spec), PolicyState::QLearning(memory), Observation::QLearning(seen)) => {
            let mut record = blank(policy, observation, seen.pods, Steps::QLearning(Default::default()));
            match qlearning::propose(spec, memory, seen) {
                Some((want, steps)) => {
                    let how = if steps.guard.is_some() { Reason::Guarded } else { Reason::Learned };
                    record.steps = Steps::QLearning(steps);
                    let filtered = limits::filter(limits, WithoutBehavior::Bounds, &mut state.limits, seen.at, seen.pods, want);
                    memory.carried_out(filtered.want);
                    complete(&mut record, want, filtered);
                    use_own_reason(&mut record, how);
                }
                None => refuse(&mut record, Reason::NoData, describe_missing(&[("cpu", seen.cpu.trouble())])),
            }
            record
        }
        _ => {
            let mut record = blank(policy, observation, 0, Steps::Threshold(Default::default()));
            refuse(&mut record, Reason::NoData, "the stored state or the observation belongs to another policy".to_owned());
            record
        }
    };
    (record, state)
}

/// Passes a number of replicas through the limits as `threshold` does, without reading metrics.
pub fn limit_only(limits: &Limits, mut state: ScalingState, at: f64, replicas: i32, desired: i32) -> (DecisionRecord, ScalingState) {
    let seen = crate::threshold::ThresholdObservation::without_metrics(at, replicas);
    let policy = Policy::Threshold(Default::default());
    let mut record = blank(&policy, &Observation::Threshold(seen), replicas, Steps::Threshold(Default::default()));
    let filtered = limits::filter(limits, WithoutBehavior::Legacy, &mut state.limits, at, replicas, desired);
    complete(&mut record, desired, filtered);
    (record, state)
}

fn blank(policy: &Policy, observation: &Observation, current: i32, steps: Steps) -> DecisionRecord {
    DecisionRecord {
        at: observation.at(),
        policy: policy.kind(),
        current,
        inputs: observation.clone(),
        steps,
        raw: None,
        stabilized: None,
        rate_limited: None,
        bounded: None,
        want: None,
        reason: Reason::NoData,
        message: String::new(),
    }
}

/// Records a proposal that passed all limits.
fn complete(record: &mut DecisionRecord, raw: i32, filtered: Filtered) {
    let Filtered { stabilized, rate_limited, bounded, want, reason } = filtered;
    record.raw = Some(raw);
    record.stabilized = Some(stabilized);
    record.rate_limited = Some(rate_limited);
    record.bounded = Some(bounded);
    record.want = Some(want);
    record.reason = reason;
    let held = match reason {
        Reason::TooFewReplicas => ", raised to the minimum",
        Reason::TooManyReplicas => ", lowered to the maximum",
        Reason::ScaleUpLimit => ", limited by the scale-up rates",
        Reason::ScaleDownLimit => ", limited by the scale-down rates",
        Reason::Paused => ", paused by hand",
        Reason::Pinned => ", pinned by hand",
        _ if stabilized != raw => ", limited by the stabilisation window",
        _ => "",
    };
    record.message = format!("{} replicas set, {raw} proposed, {want} decided{held}", record.current);
}

/// Records a decision that needs no metric.
fn complete_without_metrics(record: &mut DecisionRecord, limits: &Limits, replicas: i32, reason: Reason, message: &str) {
    let (want, reason) =
        if reason == Reason::ScalingDisabled { (replicas, reason) } else { limits::hold(limits, record.current, replicas, reason) };
    let filtered = Filtered { stabilized: replicas, rate_limited: replicas, bounded: replicas, want, reason };
    complete(record, replicas, filtered);
    record.message = message.to_owned();
}

/// Records that nothing is decided, and why.
fn refuse(record: &mut DecisionRecord, reason: Reason, text: String) {
    record.reason = reason;
    record.message = format!("no change: {text}");
}

/// Uses the policy's own reason if no limit gave one.
fn use_own_reason(record: &mut DecisionRecord, own: Reason) {
    if record.reason == Reason::DesiredWithinRange {
        record.reason = own;
    }
}

fn describe_missing(readings: &[(&str, Option<String>)]) -> String {
    let texts: Vec<_> = readings.iter().filter_map(|(name, trouble)| Some(format!("{name} {}", trouble.as_deref()?))).collect();
    if texts.is_empty() { "a reading is not a finite number".to_owned() } else { texts.join(", ") }
}
