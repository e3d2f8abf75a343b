//! Single calculations by name (`drover autoscale decide --primitive NAME`): one JSON line in, one JSON line out.

use serde::Deserialize;
use serde_json::{Value, json};

use super::OfflineError;
use crate::SpecError;
use crate::kpa::{Averaging, KpaMetric, RequestEvent, RequestStats, Window, capacity, max_window, target};

/// Names of the calculations.
pub const PRIMITIVES: [&str; 7] =
    ["windowAverage", "maxWindow", "sampleSize", "requestStats", "numActivators", "pickIndices", "resolveTarget"];

/// Runs one calculation on one line.
///
/// # Errors
/// If the name is unknown, or the line is not valid input for this calculation.
pub fn primitive(name: &str, line: &str) -> Result<Value, OfflineError> {
    match name {
        "windowAverage" => window_average(read(line)?),
        "maxWindow" => max_over(&read(line)?),
        "sampleSize" => {
            let SampleSize { population } = read(line)?;
            Ok(json!({"result": whole(capacity::sample_size(population))}))
        }
        "requestStats" => request_stats(&read(line)?),
        "numActivators" => {
            let NumActivators { ready, total, target_burst_capacity, activator_capacity } = read(line)?;
            SpecError::unless(activator_capacity >= 1.0, "activatorCapacity", "must be 1 or more")?;
            Ok(json!({"result": whole(capacity::activators(ready, total, target_burst_capacity, activator_capacity))}))
        }
        "pickIndices" => {
            let PickIndices { pods, activators, index } = read(line)?;
            let capacity::Share { begin, end, remnants } = capacity::share(pods, activators, index);
            Ok(json!({"begin": begin, "end": end, "remnants": remnants}))
        }
        "resolveTarget" => Ok(resolve_target(&read(line)?)),
        _ => Err(OfflineError::Shape(format!("there is no primitive `{name}`; the names are {}", PRIMITIVES.join(", ")))),
    }
}

fn read<'a, T: Deserialize<'a>>(line: &'a str) -> Result<T, OfflineError> {
    serde_json::from_str(line).map_err(OfflineError::shape)
}

/// A whole number as JSON without a fraction.
#[expect(clippy::cast_possible_truncation, reason = "numbers of pods and samples fit")]
fn whole(value: f64) -> i64 {
    value as i64
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WindowAverage {
    window: f64,
    #[serde(default = "second")]
    granularity: f64,
    #[serde(default)]
    kind: Averaging,
    ops: Vec<Vec<Value>>,
}

fn second() -> f64 {
    1.0
}

fn window_average(asked: WindowAverage) -> Result<Value, OfflineError> {
    SpecError::unless(asked.granularity > 0.0, "granularity", "must be above 0 s")?;
    SpecError::unless(
        asked.window > 0.0 && asked.window / asked.granularity <= 1e6,
        "window",
        "must be above 0 s and at most a million buckets",
    )?;
    let mut window = Window::new(asked.window, asked.granularity, asked.kind);
    let mut results = Vec::new();
    for op in &asked.ops {
        let numbers: Vec<f64> = op.iter().skip(1).filter_map(Value::as_f64).collect();
        match (op.first().and_then(Value::as_str), numbers.as_slice()) {
            (Some("record"), &[at, value]) => window.record(at, value),
            (Some("avg"), &[at]) => results.push(window.average(at)),
            (Some("resize"), &[length]) if length > 0.0 && length / asked.granularity <= 1e6 => window.resize(length),
            _ => {
                let text = format!("{} is not one of [\"record\", t, value], [\"avg\", t], [\"resize\", window]", Value::from(op.clone()));
                return Err(SpecError::new("ops", text).into());
            }
        }
    }
    Ok(match asked.kind {
        Averaging::Linear => json!({"results": results}),
        Averaging::Weighted => json!({"results": results, "coefficient": window.coefficient()}),
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MaxWindow {
    size: i64,
    values: Vec<i32>,
    #[serde(default)]
    index: Option<Vec<i64>>,
}

fn max_over(asked: &MaxWindow) -> Result<Value, OfflineError> {
    SpecError::unless(asked.size >= 1, "size", "must be 1 or more")?;
    let counted: Vec<i64> = (0..).take(asked.values.len()).collect();
    let slots = asked.index.as_ref().unwrap_or(&counted);
    SpecError::unless(slots.len() == asked.values.len(), "index", "must have one entry per value")?;
    let mut window = Vec::new();
    let results: Vec<_> =
        slots.iter().zip(&asked.values).map(|(&slot, &value)| max_window::record(&mut window, asked.size, slot, value)).collect();
    Ok(json!({"results": results}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SampleSize {
    population: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestOps {
    ops: Vec<String>,
}

fn request_stats(asked: &RequestOps) -> Result<Value, OfflineError> {
    // Times are in milliseconds throughout: whole numbers, so that averages are exact.
    let mut stats = RequestStats::new(0.0);
    let mut reports = Vec::new();
    for op in &asked.ops {
        let word = op.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let event = match word {
            "in" => Some(RequestEvent::In { proxied: false }),
            "inproxied" => Some(RequestEvent::In { proxied: true }),
            "out" => Some(RequestEvent::Out { proxied: false }),
            "outproxied" => Some(RequestEvent::Out { proxied: true }),
            _ => None,
        };
        let at = op[word.len()..]
            .parse::<f64>()
            .map_err(|_| SpecError::new("ops", format!("`{op}` has no time in milliseconds, like in0 or r1000")))?;
        match event {
            Some(event) => stats.event(at, event),
            None if word == "r" => {
                let report = stats.report(at);
                reports.push([report.average_concurrency, report.average_proxied_concurrency, report.count, report.proxied_count]);
            }
            None => {
                return Err(
                    SpecError::new("ops", format!("`{op}` is not one of in, inproxied, out, outproxied, r with milliseconds")).into()
                );
            }
        }
    }
    Ok(json!({"reports": reports}))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NumActivators {
    ready: f64,
    total: f64,
    target_burst_capacity: f64,
    activator_capacity: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PickIndices {
    pods: usize,
    activators: usize,
    index: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResolveTarget {
    #[serde(default)]
    metric: KpaMetric,
    #[serde(default)]
    container_concurrency: f64,
    /// Annotation `autoscaling.knative.dev/target`.
    #[serde(default)]
    target_annotation: Option<f64>,
    /// Annotation `autoscaling.knative.dev/target-utilization-percentage`.
    #[serde(default)]
    utilization_annotation: Option<f64>,
    #[serde(default)]
    cluster_fraction: Option<f64>,
    #[serde(default)]
    cluster_default: Option<f64>,
}

fn resolve_target(asked: &ResolveTarget) -> Value {
    let (default, filled) = match asked.metric {
        KpaMetric::Concurrency => {
            (target::CONCURRENCY_TARGET, asked.cluster_fraction.map_or(target::CONCURRENCY_UTILIZATION, target::share))
        }
        // The share of the target of requests per second is not configurable.
        KpaMetric::Rps => (target::RPS_TARGET, target::RPS_UTILIZATION),
    };
    let filled = asked.utilization_annotation.map_or(filled, |percent| percent / 100.0);
    let default = asked.cluster_default.unwrap_or(default);
    let resolved = target::resolve(asked.metric, asked.container_concurrency, asked.target_annotation, filled, default);
    json!({"target": resolved.target, "total": resolved.total})
}
