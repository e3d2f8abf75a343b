//! ReplicaSet and ReplicationController: keep the wanted number of active pods.

use std::time::Duration;

use serde_json::{Value, json};

use super::common::{count, generation, owned, pod_of, put_status, replicas, without_zeros};
use crate::api::random_suffix;
use crate::key::Key;
use crate::object::{self, list, number, text};
use crate::state::ClusterState;
use crate::timers::Timer;

pub fn reconcile(state: &mut ClusterState, key: &Key, set: &Value) {
    let mut pods = owned(state, set, "pods");
    pods.retain(|(_, pod)| object::pod_active(pod));
    let want = usize::try_from(replicas(set)).unwrap_or(0);
    let mut failure = None;
    if pods.len() < want {
        for _ in pods.len()..want {
            if let Err(refusal) = add(state, key, set) {
                failure = Some(("FailedCreate", refusal.message));
                break;
            }
        }
    } else {
        // Deleted first: unscheduled pods, then those that are not ready, then the youngest.
        pods.sort_by_cached_key(|(_, pod)| {
            let youngest = std::cmp::Reverse(text(pod, "/metadata/creationTimestamp").to_string());
            (!text(pod, "/spec/nodeName").is_empty(), object::pod_ready(pod), youngest)
        });
        for (key, _) in pods.iter().take(pods.len() - want) {
            state.delete_object(key, None, "Background");
        }
    }
    status(state, key, set, failure);
}

fn add(state: &mut ClusterState, key: &Key, set: &Value) -> Result<(), crate::error::ApiError> {
    let mut pod = pod_of(&set["spec"]["template"]);
    pod["metadata"]["generateName"] = json!(format!("{}-", key.name));
    let name = Key::new(&"pods".into(), &key.namespace, &format!("{}-{}", key.name, random_suffix()));
    state.create_owned(name, pod, set).map(drop)
}

fn status(state: &mut ClusterState, key: &Key, set: &Value, failure: Option<(&str, String)>) {
    let pods: Vec<_> = owned(state, set, "pods").into_iter().map(|(_, pod)| pod).filter(|pod| object::pod_active(pod)).collect();
    let count = count(state, key, pods.iter(), number(set, "/spec/minReadySeconds").unwrap_or(0));
    let mut status = without_zeros(&[
        ("fullyLabeledReplicas", count.replicas),
        ("readyReplicas", count.ready),
        ("availableReplicas", count.available),
        ("observedGeneration", generation(set)),
    ]);
    status.insert("replicas".into(), json!(count.replicas));
    let mut conditions: Vec<Value> = list(set, "/status/conditions").to_vec();
    match failure {
        Some((reason, message)) => {
            // Each refusal names another pod; the first message stays until pods can be created again.
            if !conditions.iter().any(|c| c["type"] == "ReplicaFailure") {
                object::set_condition(
                    &mut conditions,
                    json!({"type": "ReplicaFailure", "status": "True", "reason": reason, "message": message}),
                    &state.clock.stamp(),
                    false,
                );
            }
            state.after(Duration::from_secs(1), Timer::Revisit(key.clone()));
        }
        None => conditions.retain(|c| c["type"] != "ReplicaFailure"),
    }
    if !conditions.is_empty() {
        status.insert("conditions".into(), conditions.into());
    }
    put_status(state, key, set, status.into());
}
