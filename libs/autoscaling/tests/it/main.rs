//! The policies through their public interface, configurations and JSON lines, as outside checks use them.
#![allow(clippy::unwrap_used, reason = "tests")]

mod carried;
mod hour;
mod hpa;
mod kpa;
mod limits;
mod primitives;
mod properties;
mod qlearning;
#[cfg(feature = "schema")]
mod schemas;
mod shares;
mod zero;

use drover_autoscaling::offline::{Config, Decider, LineDecision};
use serde_json::{Value, json};

/// A decider for a configuration.
fn decider(config: Value) -> Decider {
    try_decider(config).unwrap()
}

fn try_decider(config: Value) -> Result<Decider, String> {
    let config: Config = serde_json::from_value(config).map_err(|error| error.to_string())?;
    Decider::new(&config, None).map_err(|error| error.to_string())
}

/// The decision on one line.
fn decide(decider: &mut Decider, line: Value) -> LineDecision {
    decider.line(&line.to_string()).unwrap()
}

/// The decision of a fresh threshold decider with these metrics, between 0 and 1,000 replicas.
fn threshold(metrics: Value, line: Value) -> LineDecision {
    let section =
        json!({"minReplicas": 0, "maxReplicas": 1000, "metrics": metrics, "cpuInitializationPeriod": 120, "initialReadinessDelay": 10});
    decide(&mut decider(json!({"policy": "threshold", "threshold": section})), line)
}

/// A metric: CPU of whole pods, with a target in per cent of the request.
fn cpu(percent: i32) -> Value {
    json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}}])
}
