//! DaemonSet: one pod on every matching node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::common::{available, generation, owned, pod_of, put_status, share, template_hash, without_zeros};
use crate::api::random_suffix;
use crate::key::Key;
use crate::object::{self, label, list, number, text};
use crate::scheduler::{selected, tolerates};
use crate::state::ClusterState;
use crate::timers::Timer;

const REVISION: &str = "controller-revision-hash";

pub fn reconcile(state: &mut ClusterState, key: &Key, set: &Value) {
    let hash = template_hash(&set["spec"]["template"]);
    let pod = template_pod(key, set, &hash);
    let nodes: Vec<String> = state
        .store
        .list(&"nodes".into(), "")
        .filter(|(_, node)| selected(&pod, node) && tolerates(&pod, node))
        .map(|(key, _)| key.name.to_string())
        .collect();
    let mut here: BTreeMap<String, (Key, Arc<Value>)> = BTreeMap::new();
    let mut misplaced = 0;
    for (pod_key, pod) in owned(state, set, "pods") {
        let node = target(&pod);
        if object::deleting(&pod) {
            // The next pod is created only when this one is gone.
            here.insert(node, (pod_key, pod));
        } else if object::pod_finished(&pod) || !nodes.contains(&node) || here.contains_key(&node) {
            misplaced += i64::from(!nodes.contains(&node));
            state.delete_object(&pod_key, None, "Background");
        } else {
            here.insert(node, (pod_key, pod));
        }
    }
    for node in nodes.iter().filter(|node| !here.contains_key(*node)) {
        let mut pod = pod.clone();
        // Like the real controller: the scheduler binds the pod, but only to this node.
        pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]});
        let name = Key::new(&"pods".into(), &key.namespace, &format!("{}-{}", key.name, random_suffix()));
        if state.create_owned(name, pod, set).is_err() {
            state.after(Duration::from_secs(1), Timer::Revisit(key.clone()));
            break;
        }
    }
    if set["spec"]["updateStrategy"]["type"] != "OnDelete" {
        update(state, set, &hash, &here, nodes.len());
    }
    status(state, key, set, &hash, nodes.len() as i64, misplaced);
}

fn template_pod(key: &Key, set: &Value, hash: &str) -> Value {
    let mut pod = pod_of(&set["spec"]["template"]);
    pod["metadata"]["generateName"] = json!(format!("{}-", key.name));
    pod["metadata"]["labels"][REVISION] = json!(hash);
    let mut tolerations = list(&pod, "/spec/tolerations").to_vec();
    for (taint, effect) in [
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    ] {
        tolerations.push(json!({"key": format!("node.kubernetes.io/{taint}"), "operator": "Exists", "effect": effect}));
    }
    pod["spec"]["tolerations"] = tolerations.into();
    pod
}

/// The node for which a pod of a DaemonSet was created.
fn target(pod: &Value) -> String {
    let terms = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0";
    let wanted = text(pod, terms);
    if wanted.is_empty() { text(pod, "/spec/nodeName").to_string() } else { wanted.to_string() }
}

/// Deletes pods of an older template, as many at a time as may be unavailable.
fn update(state: &mut ClusterState, set: &Value, hash: &str, here: &BTreeMap<String, (Key, Arc<Value>)>, nodes: usize) {
    let most = share(&set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"], nodes as i64, true).max(1);
    let ready = here.values().filter(|(_, pod)| object::pod_active(pod) && object::pod_ready(pod)).count();
    let mut budget = most - (nodes as i64 - ready as i64);
    for (key, pod) in here.values().filter(|(_, pod)| label(pod, REVISION) != Some(hash) && object::pod_active(pod)) {
        let costs = object::pod_ready(pod);
        if costs && budget <= 0 {
            continue;
        }
        budget -= i64::from(costs);
        state.delete_object(key, None, "Background");
    }
}

fn status(state: &mut ClusterState, key: &Key, set: &Value, hash: &str, desired: i64, misplaced: i64) {
    let pods: Vec<_> = owned(state, set, "pods").into_iter().map(|(_, pod)| pod).filter(|pod| object::pod_active(pod)).collect();
    let min_ready = number(set, "/spec/minReadySeconds").unwrap_or(0);
    let ready = pods.iter().filter(|pod| object::pod_ready(pod)).count() as i64;
    let usable = pods.iter().filter(|pod| available(state, pod, min_ready).is_ok()).count() as i64;
    let updated = pods.iter().filter(|pod| label(pod, REVISION) == Some(hash)).count() as i64;
    let mut status = without_zeros(&[
        ("observedGeneration", generation(set)),
        ("updatedNumberScheduled", updated),
        ("numberAvailable", usable),
        ("numberUnavailable", (desired - usable).max(0)),
    ]);
    for (field, value) in [
        ("desiredNumberScheduled", desired),
        ("currentNumberScheduled", pods.len() as i64),
        ("numberReady", ready),
        ("numberMisscheduled", misplaced),
    ] {
        status.insert(field.into(), json!(value));
    }
    put_status(state, key, set, status.into());
}
