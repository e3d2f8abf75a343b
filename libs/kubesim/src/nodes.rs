//! Status and taints of nodes (ready, down by label, lost), and eviction from a node that stays lost.

use std::time::Duration;

use drover_quantity::image_name;
use serde_json::{Value, json};

use crate::duration::duration;
use crate::key::Key;
use crate::object::{self, annotation, condition, label, list, map, text};
use crate::state::ClusterState;
use crate::timers::Timer;

/// How long pods stay on a node that is not ready, by the default tolerations.
const EVICT_AFTER: Duration = Duration::from_secs(300);
/// Size of an image without the annotation `kit/image-bytes`.
const IMAGE_BYTES: u64 = 100_000_000;
/// How many images a kubelet reports at most (`nodeStatusMaxImages`).
const REPORTED_IMAGES: usize = 50;
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// Reconciles a node that takes time to boot again when it has booted.
pub fn observe(state: &mut ClusterState, key: &Key, old: Option<&Value>, node: &Value) {
    if old.is_none()
        && let Some(delay) = annotation(node, "kit/boot-delay").and_then(duration)
    {
        state.after(delay + Duration::from_secs(1), Timer::Revisit(key.clone()));
    }
}

/// A node as the kubelet registers it.
pub fn new(name: &str, labels: &Value, taints: &Value, room: &Value) -> Value {
    let mut node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64", "type": "kwok"}},
        "spec": {}, "status": {"allocatable": room, "capacity": room}});
    for (key, value) in labels.as_object().into_iter().flatten() {
        node["metadata"]["labels"][key] = value.clone();
    }
    if taints.as_array().is_some_and(|taints| !taints.is_empty()) {
        node["spec"]["taints"] = taints.clone();
    }
    node
}

/// Adds the images of a pod to its node, by the names that containerd gives them; the node reports the largest, like a kubelet.
pub fn pull(state: &mut ClusterState, pod: &Value) {
    let key = Key::new(&"nodes".into(), "", text(pod, "/spec/nodeName"));
    let Some(node) = state.store.get(&key) else { return };
    let mut images = list(&node, "/status/images").to_vec();
    let before = images.len();
    let size = annotation(pod, "kit/image-bytes").and_then(|bytes| bytes.parse::<u64>().ok()).unwrap_or(IMAGE_BYTES);
    for container in list(pod, "/spec/initContainers").iter().chain(list(pod, "/spec/containers")) {
        let name = image_name(text(container, "/image"));
        if images.iter().all(|image| image["names"][0] != *name) {
            images.push(json!({"names": [name], "sizeBytes": size}));
        }
    }
    if images.len() > before {
        images.sort_by_key(|image| std::cmp::Reverse(image["sizeBytes"].as_u64()));
        images.truncate(REPORTED_IMAGES);
        let mut node = Value::clone(&node);
        node["status"]["images"] = images.into();
        state.put(key, node);
    }
}

/// Sets status and taints of a node, and evicts pods from one that has not been ready for long.
pub fn reconcile(state: &mut ClusterState, key: &Key, node: &Value) {
    let now = state.clock.stamp();
    if condition(node, "Ready").is_none()
        && let Some(delay) = annotation(node, "kit/boot-delay").and_then(duration)
        && age(state, text(node, "/metadata/creationTimestamp")) < delay
    {
        return;
    }
    let lost = state.lost.contains(&*key.name);
    let (status, reason, message) = if lost {
        ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
    } else if label(node, "kit/down") == Some("true") {
        ("False", "KitDown", "label kit/down=true")
    } else {
        ("True", "KubeletReady", "kubelet is posting ready status")
    };
    let mut new = node.clone();
    let mut conditions = list(node, "/status/conditions").to_vec();
    let was = condition(node, "Ready").map(|c| c["status"].clone());
    if was.as_ref().is_none_or(|was| was != status) {
        object::set_condition(
            &mut conditions,
            json!({"type": "Ready", "status": status, "reason": reason, "message": message, "lastHeartbeatTime": now}),
            &now,
            false,
        );
        new["status"]["conditions"] = conditions.into();
    }
    describe(&mut new, &key.name);
    let taint = match status {
        "Unknown" => Some(UNREACHABLE),
        "False" => Some(NOT_READY),
        _ => None,
    };
    set_taints(&mut new, taint, &now);
    if new != *node {
        state.put(key.clone(), new);
    }
    if lost && was.is_some_and(|was| was == "True") {
        forget_pods(state, &key.name);
    }
    if status != "True" {
        evict(state, key, node);
    }
}

fn age(state: &ClusterState, since: &str) -> Duration {
    let since: jiff::Timestamp = since.parse().unwrap_or(state.clock.now());
    Duration::try_from(state.clock.now().duration_since(since)).unwrap_or_default()
}

/// Fills in the fields that every kubelet reports.
fn describe(node: &mut Value, name: &str) {
    let room = json!({"cpu": "16", "memory": "64Gi", "ephemeral-storage": "100Gi", "pods": "110"});
    let status = object::map_mut(node, &["status"]);
    for field in ["allocatable", "capacity"] {
        status.entry(field).or_insert_with(|| room.clone());
    }
    status.entry("phase").or_insert_with(|| json!("Running"));
    status
        .entry("addresses")
        .or_insert_with(|| json!([{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}]));
    status.entry("nodeInfo").or_insert_with(|| {
        json!({"architecture": "amd64", "operatingSystem": "linux", "osImage": "fake", "bootID": "", "machineID": "", "systemUUID": "",
            "kernelVersion": "kubesim", "containerRuntimeVersion": "kubesim", "kubeProxyVersion": "kubesim", "kubeletVersion": "kubesim-v1.36.3"})
    });
}

fn set_taints(node: &mut Value, wanted: Option<&str>, now: &str) {
    let before = list(node, "/spec/taints").to_vec();
    let mut taints: Vec<Value> = before
        .iter()
        .filter(|taint| ![NOT_READY, UNREACHABLE].iter().any(|ours| taint["key"] == *ours && wanted != Some(ours)))
        .cloned()
        .collect();
    for effect in ["NoSchedule", "NoExecute"] {
        if let Some(key) = wanted
            && !taints.iter().any(|taint| taint["key"] == key && taint["effect"] == effect)
        {
            taints.push(json!({"key": key, "effect": effect, "timeAdded": now}));
        }
    }
    if taints == before {
        return;
    }
    let spec = object::map_mut(node, &["spec"]);
    if taints.is_empty() {
        spec.remove("taints");
    } else {
        spec.insert("taints".into(), taints.into());
    }
}

fn pods_on(state: &ClusterState, node: &str) -> Vec<(Key, Value)> {
    let pods = "pods".into();
    let here = state.store.list(&pods, "").filter(|(_, pod)| text(pod, "/spec/nodeName") == node);
    here.map(|(key, pod)| (key.clone(), Value::clone(&pod))).collect()
}

/// Marks the pods of a lost node as not ready; nothing else of them changes.
fn forget_pods(state: &mut ClusterState, node: &str) {
    let now = state.clock.stamp();
    for (key, mut pod) in pods_on(state, node) {
        let mut conditions = list(&pod, "/status/conditions").to_vec();
        if !object::pod_ready(&pod) {
            continue;
        }
        object::set_condition(&mut conditions, json!({"type": "Ready", "status": "False", "lastProbeTime": null}), &now, false);
        pod["status"]["conditions"] = conditions.into();
        state.put(key, pod);
    }
}

fn evict(state: &mut ClusterState, key: &Key, node: &Value) {
    let since = condition(node, "Ready").filter(|c| c["status"] != "True").map_or("", |c| text(c, "/lastTransitionTime"));
    let away = age(state, since);
    if since.is_empty() || away < EVICT_AFTER {
        if !since.is_empty() {
            state.after(EVICT_AFTER - away + Duration::from_secs(1), Timer::Revisit(key.clone()));
        }
        return;
    }
    for (key, pod) in pods_on(state, &key.name) {
        let stays = list(&pod, "/metadata/ownerReferences").iter().any(|owner| owner["kind"] == "DaemonSet")
            || list(&pod, "/spec/tolerations")
                .iter()
                .any(|t| t["operator"] == "Exists" && map(t, "").is_some_and(|t| !t.contains_key("key")));
        if !stays && !object::deleting(&pod) {
            state.delete_object(&key, None, "Background");
        }
    }
}
