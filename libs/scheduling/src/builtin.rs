//! The built-in algorithms and parameters. They are data, so that an operator can read and copy them.

use std::collections::BTreeMap;

use crate::{Algorithm, Missing, Parameter, ParameterScope, ParameterSource, Prefer};

/// Assumed rate of image downloads, in bytes per second.
const BANDWIDTH: f64 = 50_000_000.0;

/// The built-in parameters by name.
pub fn builtin_parameters() -> BTreeMap<String, Parameter> {
    let metric = |name: &str| {
        let parameter = Parameter { source: ParameterSource::Metric, metric: Some(name.into()), ..Parameter::default() };
        (name.to_owned(), parameter)
    };
    let topology = |name: &str, scope: ParameterScope| {
        let parameter = Parameter { source: ParameterSource::Topology, scope, fact: Some(name.into()), ..Parameter::default() };
        (name.to_owned(), parameter)
    };
    let bandwidth = Parameter { source: ParameterSource::Constant, value: Some(BANDWIDTH), ..Parameter::default() };
    let metrics = [
        "cpu_used",
        "cpu_requested",
        "memory_used",
        "memory_requested",
        "age",
        "image_bytes_missing",
        "ready_seconds",
        "memory_pressure",
        "unmet_pods",
    ];
    let mut all: BTreeMap<String, Parameter> = metrics.into_iter().map(metric).collect();
    all.extend(["clusters_of_application", "apps_of_application"].map(|fact| topology(fact, ParameterScope::Service)));
    all.extend(["volumes", "pods", "provider_priority"].map(|fact| topology(fact, ParameterScope::App)));
    let dependency = Parameter { source: ParameterSource::Topology, fact: Some("call_dependency".into()), ..Parameter::default() };
    all.insert("CallDependency".into(), dependency);
    all.insert("bandwidth".into(), bandwidth);
    all
}

/// The built-in algorithms by name.
///
/// `Age` prefers low values: an app that started recently loses least by a restart. `MemoryPressure` and `UnmetDemand` prefer high ones: an
/// app leaves the node whose memory runs out, or the member where it may not have as many pods as its load needs.
pub fn builtin_algorithms() -> BTreeMap<String, Algorithm> {
    let algorithm = |name: &str, expression: &str, prefer: Prefer| {
        (name.to_owned(), Algorithm { expression: expression.into(), prefer, missing: Missing::default() })
    };
    BTreeMap::from([
        algorithm("CPUUtilization", "cpu_used * 100 / cpu_requested", Prefer::Low),
        algorithm("MemoryUtilization", "memory_used * 100 / memory_requested", Prefer::Low),
        algorithm("Dispersion", "clusters_of_application / apps_of_application", Prefer::High),
        algorithm("CallDependency", "CallDependency", Prefer::Low),
        algorithm("Age", "age", Prefer::Low),
        algorithm("MemoryPressure", "memory_pressure", Prefer::High),
        algorithm("UnmetDemand", "unmet_pods", Prefer::High),
        algorithm("MoveCost", "image_bytes_missing / bandwidth + ready_seconds + 60 * volumes", Prefer::Low),
    ])
}
