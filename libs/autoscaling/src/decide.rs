//! One decision of any policy: what it proposes, passed through the limits, with the record of both.

use crate::limits::{self, Filtered, Without};
use crate::{DecisionRecord, Limits, Observation, Policy, PolicyState, Reason, State, Steps};
use crate::{kpa, qlearning, threshold};

/// Decides. State in, record and state out; where nothing can be decided, `want` is none and only the record says why.
pub fn decide(policy: &Policy, limits: &Limits, mut state: State, observation: &Observation) -> (DecisionRecord, State) {
    if limits.behavior.is_some() {
        // Windows hold after a restart whoever proposes; without them only `threshold` has one of its own.
        let (at, replicas) = observation.now();
        state.limits.first_sight(at, replicas);
    }
    let record = match (policy, &mut state.policy, observation) {
        (Policy::Threshold(spec), PolicyState::Threshold, Observation::Threshold(seen)) => {
            state.limits.first_sight(seen.at, seen.replicas);
            let mut record = blank(policy, observation, seen.replicas, Steps::Threshold(Default::default()));
            let (min, max) = (limits.min_replicas, limits.max_replicas);
            if seen.replicas == 0 && min != 0 {
                settle(
                    &mut record,
                    limits,
                    0,
                    Reason::ScalingDisabled,
                    "replicas are 0: switched off by hand, until somebody sets them above 0",
                );
            } else if seen.replicas > max {
                settle(&mut record, limits, max, Reason::TooManyReplicas, "more replicas than the bounds allow");
            } else if seen.replicas < min {
                settle(&mut record, limits, min, Reason::TooFewReplicas, "fewer replicas than the bounds allow");
            } else {
                let proposed = threshold::propose(spec, limits, seen);
                record.steps = Steps::Threshold(proposed.steps);
                match proposed.replicas {
                    Ok(replicas) => {
                        let filtered = limits::filter(limits, Without::Legacy, &mut state.limits, seen.at, seen.replicas, replicas);
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
                    let filtered = limits::filter(limits, Without::Bounds, &mut state.limits, seen.at, seen.replicas, want);
                    complete(&mut record, want, filtered);
                    rename(&mut record, calm);
                }
                None => {
                    let missing = [
                        ("ready pods", seen.ready.trouble()),
                        ("stable window", seen.stable.trouble()),
                        ("panic window", seen.panic.trouble()),
                    ];
                    refuse(&mut record, Reason::NoData, troubles(&missing));
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
                    let filtered = limits::filter(limits, Without::Bounds, &mut state.limits, seen.at, seen.pods, want);
                    memory.carried_out(filtered.want);
                    complete(&mut record, want, filtered);
                    rename(&mut record, how);
                }
                None => refuse(&mut record, Reason::NoData, troubles(&[("cpu", seen.cpu.trouble())])),
            }
            record
        }
        _ => {
            let mut record = blank(policy, observation, 0, Steps::Threshold(Default::default()));
            refuse(&mut record, Reason::NoData, "the state or the observation belongs to another policy".to_owned());
            record
        }
    };
    (record, state)
}

/// Passes a number of replicas through the limits as `threshold` does, without metrics.
pub fn limit_only(limits: &Limits, mut state: State, at: f64, replicas: i32, desired: i32) -> (DecisionRecord, State) {
    let seen = crate::threshold::ThresholdObservation::without_metrics(at, replicas);
    let policy = Policy::Threshold(Default::default());
    let mut record = blank(&policy, &Observation::Threshold(seen), replicas, Steps::Threshold(Default::default()));
    let filtered = limits::filter(limits, Without::Legacy, &mut state.limits, at, replicas, desired);
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

/// The decision came through all limits.
fn complete(record: &mut DecisionRecord, raw: i32, filtered: Filtered) {
    let Filtered { stabilized, rate_limited, bounded, want, reason } = filtered;
    record.raw = Some(raw);
    record.stabilized = Some(stabilized);
    record.rate_limited = Some(rate_limited);
    record.bounded = Some(bounded);
    record.want = Some(want);
    record.reason = reason;
    let held = match reason {
        Reason::TooFewReplicas => ", held at the fewest allowed",
        Reason::TooManyReplicas => ", held at the most allowed",
        Reason::ScaleUpLimit => ", growing no faster than allowed",
        Reason::ScaleDownLimit => ", shrinking no faster than allowed",
        Reason::Paused => ", paused by hand",
        Reason::Pinned => ", pinned by hand",
        _ if stabilized != raw => ", held by the stabilisation window",
        _ => "",
    };
    record.message = format!("{} asked for, {raw} proposed, {want} decided{held}", record.current);
}

/// Decided before any metric is read.
fn settle(record: &mut DecisionRecord, limits: &Limits, replicas: i32, reason: Reason, message: &str) {
    let (want, reason) =
        if reason == Reason::ScalingDisabled { (replicas, reason) } else { limits::hold(limits, record.current, replicas, reason) };
    let filtered = Filtered { stabilized: replicas, rate_limited: replicas, bounded: replicas, want, reason };
    complete(record, replicas, filtered);
    record.message = message.to_owned();
}

/// Nothing is decided.
fn refuse(record: &mut DecisionRecord, reason: Reason, text: String) {
    record.reason = reason;
    record.message = format!("nothing is changed: {text}");
}

/// A policy's own word where no limit has one.
fn rename(record: &mut DecisionRecord, own: Reason) {
    if record.reason == Reason::DesiredWithinRange {
        record.reason = own;
    }
}

fn troubles(readings: &[(&str, Option<String>)]) -> String {
    let texts: Vec<_> = readings.iter().filter_map(|(name, trouble)| Some(format!("{name} {}", trouble.as_deref()?))).collect();
    if texts.is_empty() { "a reading is no number".to_owned() } else { texts.join(", ") }
}
