//! Serves metrics.k8s.io from the annotations `kit/cpu`, `kit/mem` and `kit/wave`, like the kwok usage of deploy/local-kube.
//!
//! Samples are current; those of a real metrics-server are up to half a minute old, and it has none of a pod's first seconds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api::ApiResult;
use crate::clock::stamp;
use crate::error::ApiError;
use crate::object::{self, annotation, list, text};
use crate::quantity;
use crate::selectors::Labels;
use crate::state::ClusterState;

/// The fields of a pod from which its usage is computed.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Pod {
    metadata: PodMeta,
    spec: PodSpec,
    status: PodStatus,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct PodMeta {
    name: Value,
    namespace: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    labels: Value,
    annotations: Value,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    node_name: Value,
    containers: Vec<Container>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Container {
    name: Value,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct PodStatus {
    phase: Value,
}

/// Answers `nodes[/name]`, `pods`, `namespaces/<ns>/pods[/name]`.
pub fn serve(state: &ClusterState, path: &[String], labels: &Labels) -> ApiResult {
    if !state.settings.metrics {
        return Err(ApiError::no_such_resource());
    }
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let pods = |namespace: &str| -> Vec<Value> {
        let resource = "pods".into();
        let all = state.store.range(&resource, namespace).map(|(_, pod)| pod.part::<Pod>());
        all.filter(|pod| labels.matches(pod)).filter_map(|pod| of_pod(state, &pod)).collect()
    };
    let nodes = || -> Vec<Value> {
        let (resource, used) = ("nodes".into(), usage_by_node(state));
        let all = state.store.list(&resource, "").filter(|(_, node)| labels.matches(node));
        all.filter(|(_, node)| object::condition_is_true(node, "Ready"))
            .map(|(_, node)| of_node(state, &node, used.get(object::name(&node))))
            .collect()
    };
    let list = |kind: &str, items: Vec<Value>| {
        Ok(json!({"kind": format!("{kind}MetricsList"), "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items}))
    };
    let one = |items: Vec<Value>, resource: &str, name: &str| {
        items.into_iter().find(|item| object::name(item) == name).ok_or_else(|| ApiError::not_found(resource, name))
    };
    match path.as_slice() {
        ["nodes"] => list("Node", nodes()),
        ["nodes", name] => one(nodes(), "nodes.metrics.k8s.io", name),
        ["pods"] => list("Pod", pods("")),
        ["namespaces", namespace, "pods"] => list("Pod", pods(namespace)),
        ["namespaces", namespace, "pods", name] => one(pods(namespace), "pods.metrics.k8s.io", name),
        _ => Err(ApiError::no_such_resource()),
    }
}

/// Usage of each container of a pod, in nanocores and bytes.
fn usage(state: &ClusterState, pod: &Value) -> (i128, i128) {
    let amount = |name: &str, default: &str| annotation(pod, name).and_then(quantity::milli).or(quantity::milli(default)).unwrap_or(0);
    let wave = annotation(pod, "kit/wave").and_then(|w| w.parse::<i64>().ok()).filter(|w| *w > 0);
    let factor = wave.map_or(1.0, |period| {
        let at = state.clock.now().as_second().rem_euclid(period) as f64 / period as f64;
        if at < 0.5 { 2.0 * at } else { 2.0 - 2.0 * at }
    });
    let cpu = amount("kit/cpu", "5m") as f64 * 1e6 * factor;
    (cpu as i128, amount("kit/mem", "16Mi") / 1000)
}

fn shown(cpu: i128, memory: i128) -> Value {
    json!({"cpu": format!("{cpu}n"), "memory": format!("{}Ki", memory / 1024)})
}

fn sample(state: &ClusterState, of: &Value, kind: &str) -> Value {
    json!({"kind": kind, "apiVersion": "metrics.k8s.io/v1beta1", "timestamp": stamp(state.clock.now()), "window": "10s",
        "metadata": {"name": object::name(of), "labels": of["metadata"].get("labels").cloned().unwrap_or(json!({})),
            "creationTimestamp": stamp(state.clock.now())}})
}

fn of_pod(state: &ClusterState, pod: &Value) -> Option<Value> {
    if text(pod, "/status/phase") != "Running" {
        return None;
    }
    let (cpu, memory) = usage(state, pod);
    let mut metrics = sample(state, pod, "PodMetrics");
    metrics["metadata"]["namespace"] = json!(object::namespace(pod));
    metrics["containers"] = list(pod, "/spec/containers").iter().map(|c| json!({"name": c["name"], "usage": shown(cpu, memory)})).collect();
    Some(metrics)
}

/// The sum of the usage of all pods on each node, in one pass over all pods.
fn usage_by_node(state: &ClusterState) -> BTreeMap<String, (i128, i128)> {
    let pods = "pods".into();
    let mut sums: BTreeMap<String, (i128, i128)> = BTreeMap::new();
    let all = state.store.range(&pods, "").map(|(_, pod)| pod.part::<Pod>());
    for pod in all.filter(|pod| text(pod, "/status/phase") == "Running") {
        let (cpu, memory) = usage(state, &pod);
        let containers = list(&pod, "/spec/containers").len() as i128;
        let sum = sums.entry(text(&pod, "/spec/nodeName").to_owned()).or_default();
        *sum = (sum.0 + cpu * containers, sum.1 + memory * containers);
    }
    sums
}

/// The sample of a node: its pods and a base load of 50m and 300 MB.
fn of_node(state: &ClusterState, node: &Value, pods: Option<&(i128, i128)>) -> Value {
    let (cpu, memory) = pods.copied().unwrap_or_default();
    let (cpu, memory) = (50_000_000 + cpu, 300_000_000 + memory);
    let mut metrics = sample(state, node, "NodeMetrics");
    metrics["usage"] = shown(cpu, memory);
    metrics
}
