//! Deployment: one ReplicaSet per pod template, and the status. `rollout` moves replicas from the old sets to the new one.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::common::{Objects, generation, owned, put_status, replicas, template_hash, without_zeros};
use super::rollout;
use crate::key::Key;
use crate::object::{self, annotation, condition, label, list, number, text};
use crate::state::ClusterState;
use crate::timers::Timer;

const REVISION: &str = "deployment.kubernetes.io/revision";
const HASH: &str = "pod-template-hash";

pub fn reconcile(state: &mut ClusterState, key: &Key, deployment: &Value) {
    let hash = template_hash(&deployment["spec"]["template"]);
    let sets = owned(state, deployment, "replicasets.apps");
    let is_new = |set: &Value| label(set, HASH) == Some(hash.as_str());
    let paused = deployment["spec"]["paused"] == true;
    if !sets.iter().any(|(_, set)| is_new(set)) && !paused {
        let old_pods = sets.iter().any(|(_, set)| number(set, "/status/replicas").unwrap_or(0) > 0);
        if deployment["spec"]["strategy"]["type"] != "Recreate" || !old_pods {
            create_set(state, key, deployment, &hash, &sets);
        }
    }
    let sets = owned(state, deployment, "replicasets.apps");
    let (new, old): (Objects, Objects) = sets.into_iter().partition(|(_, set)| is_new(set));
    let revision = new.first().and_then(|(_, set)| annotation(set, REVISION)).map(String::from);
    let revised = stamp_revision(state, key, deployment, &new, &old, revision);
    let deployment = revised.as_deref().unwrap_or(deployment);
    rollout::advance(state, deployment, &new, &old, paused);
    status(state, key, deployment, &hash);
    clean_up(state, deployment, &hash);
}

fn create_set(state: &mut ClusterState, key: &Key, deployment: &Value, hash: &str, sets: &Objects) {
    let mut template = deployment["spec"]["template"].clone();
    template["metadata"]["labels"][HASH] = json!(hash);
    let mut selector = deployment["spec"]["selector"].clone();
    selector["matchLabels"][HASH] = json!(hash);
    let total: i64 = sets.iter().map(|(_, set)| replicas(set)).sum();
    let first = rollout::room_for_new(deployment, total, 0);
    let mut spec = json!({"replicas": first, "selector": selector, "template": template});
    if let Some(min_ready) = deployment["spec"].get("minReadySeconds") {
        spec["minReadySeconds"] = min_ready.clone();
    }
    let revision = next_revision(sets);
    let set = json!({"metadata": {"labels": template["metadata"]["labels"], "annotations": {
            REVISION: revision.to_string(), "deployment.kubernetes.io/desired-replicas": replicas(deployment).to_string()}},
        "spec": spec, "status": {"replicas": 0}});
    let name = Key::new(&"replicasets.apps".into(), &key.namespace, &format!("{}-{hash}", key.name));
    if let Err(refusal) = state.create_owned(name, set, deployment) {
        // Another ReplicaSet has that name: the real controller counts collisions, this one waits until the name is free.
        tracing::debug!(deployment = %key.name, %refusal.message, "no replica set");
        state.after(Duration::from_secs(1), Timer::Revisit(key.clone()));
    }
}

fn revision_of(set: &Value) -> i64 {
    annotation(set, REVISION).and_then(|r| r.parse().ok()).unwrap_or(0)
}

fn next_revision(sets: &Objects) -> i64 {
    sets.iter().map(|(_, set)| revision_of(set)).max().unwrap_or(0) + 1
}

/// Gives the new set the highest revision, also if its template was used before.
fn stamp_revision(
    state: &mut ClusterState,
    key: &Key,
    deployment: &Value,
    new: &Objects,
    old: &Objects,
    have: Option<String>,
) -> Option<Arc<Value>> {
    let (set_key, set) = new.first()?;
    let newest = next_revision(old).max(have.and_then(|h| h.parse().ok()).unwrap_or(0));
    if revision_of(set) < newest {
        let mut set = Value::clone(set);
        set["metadata"]["annotations"][REVISION] = json!(newest.to_string());
        state.put(set_key.clone(), set);
    }
    let newest = newest.to_string();
    if annotation(deployment, REVISION) == Some(newest.as_str()) {
        return None;
    }
    let mut deployment = deployment.clone();
    deployment["metadata"]["annotations"][REVISION] = json!(newest);
    Some(state.put(key.clone(), deployment))
}

fn status(state: &mut ClusterState, key: &Key, deployment: &Value, hash: &str) {
    let sets = owned(state, deployment, "replicasets.apps");
    let sum = |field: &str| -> i64 { sets.iter().map(|(_, set)| number(set, &format!("/status/{field}")).unwrap_or(0)).sum() };
    let new = sets.iter().find(|(_, set)| label(set, HASH) == Some(hash)).map(|(_, set)| set.clone());
    let updated = new.as_ref().map_or(0, |set| number(set, "/status/replicas").unwrap_or(0));
    let (total, ready, available) = (sum("replicas"), sum("readyReplicas"), sum("availableReplicas"));
    let want = replicas(deployment);
    let mut status: Map<String, Value> = without_zeros(&[
        ("observedGeneration", generation(deployment)),
        ("replicas", total),
        ("updatedReplicas", updated),
        ("readyReplicas", ready),
        ("availableReplicas", available),
        ("unavailableReplicas", (total.max(want) - available).max(0)),
    ]);
    let now = state.clock.stamp();
    let mut conditions = list(deployment, "/status/conditions").to_vec();
    let (_, unavailable) = rollout::limits(deployment);
    let enough = if available >= want - unavailable {
        json!({"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "message": "Deployment has minimum availability."})
    } else {
        json!({"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable", "message": "Deployment does not have minimum availability."})
    };
    object::set_condition(&mut conditions, enough, &now, true);
    match sets.iter().find_map(|(_, set)| condition(set, "ReplicaFailure").cloned()) {
        Some(failure) => object::set_condition(&mut conditions, failure, &now, true),
        None => conditions.retain(|c| c["type"] != "ReplicaFailure"),
    }
    let complete = updated == want && total == want && available == want && new.is_some();
    let set_name = new.as_ref().map_or("", |set| object::name(set)).to_string();
    progress(state, key, deployment, &mut conditions, &status, complete, &set_name, &now);
    status.insert("conditions".into(), conditions.into());
    put_status(state, key, deployment, status.into());
}

/// The condition Progressing: updated with every progress, False if there was none before the deadline.
#[expect(clippy::too_many_arguments, reason = "one place computes them all, one place uses them")]
fn progress(
    state: &mut ClusterState,
    key: &Key,
    deployment: &Value,
    conditions: &mut Vec<Value>,
    status: &Map<String, Value>,
    complete: bool,
    set: &str,
    now: &str,
) {
    let old = conditions.iter().position(|c| c["type"] == "Progressing").map(|at| conditions.remove(at));
    let deadline = number(deployment, "/spec/progressDeadlineSeconds").unwrap_or(600);
    let before = |field: &str| number(deployment, &format!("/status/{field}")).unwrap_or(0);
    let after = |field: &str| status.get(field).and_then(Value::as_i64).unwrap_or(0);
    let forward = ["updatedReplicas", "readyReplicas", "availableReplicas"].iter().any(|f| after(f) > before(f))
        || after("replicas") - after("updatedReplicas") < before("replicas") - before("updatedReplicas")
        || before("observedGeneration") < generation(deployment);
    let since = old.as_ref().and_then(|c| text(c, "/lastUpdateTime").parse::<jiff::Timestamp>().ok());
    let late = since.is_some_and(|since| state.clock.now().as_second() - since.as_second() > deadline);
    let reason_before = old.as_ref().map_or("", |c| text(c, "/reason")).to_string();
    let (value, reason, message) = if complete {
        ("True", "NewReplicaSetAvailable", format!("ReplicaSet \"{set}\" has successfully progressed."))
    } else if forward || old.is_none() {
        let reason = if old.is_none() { "NewReplicaSetCreated" } else { "ReplicaSetUpdated" };
        ("True", reason, format!("ReplicaSet \"{set}\" is progressing."))
    } else if late && reason_before != "NewReplicaSetAvailable" {
        ("False", "ProgressDeadlineExceeded", format!("ReplicaSet \"{set}\" has timed out progressing."))
    } else {
        conditions.extend(old);
        return;
    };
    if let Some(old) = old.as_ref().filter(|old| reason_before == reason && old["message"] == *message && (complete || !forward)) {
        conditions.push(old.clone());
        return;
    }
    let moved = old.as_ref().filter(|c| c["status"] == value).map_or(json!(now), |c| c["lastTransitionTime"].clone());
    conditions.push(json!({"type": "Progressing", "status": value, "reason": reason, "message": message,
        "lastUpdateTime": now, "lastTransitionTime": moved}));
    if value == "True" && !complete {
        state.after(Duration::from_secs(deadline.unsigned_abs() + 1), Timer::Revisit(key.clone()));
    }
}

/// Deletes old sets without pods, except those that the history keeps.
fn clean_up(state: &mut ClusterState, deployment: &Value, hash: &str) {
    let keep = usize::try_from(number(deployment, "/spec/revisionHistoryLimit").unwrap_or(10)).unwrap_or(0);
    let mut empty: Objects = owned(state, deployment, "replicasets.apps")
        .into_iter()
        .filter(|(_, set)| label(set, HASH) != Some(hash))
        .filter(|(_, set)| replicas(set) == 0 && number(set, "/status/replicas").unwrap_or(0) == 0)
        .collect();
    empty.sort_by_key(|(_, set)| revision_of(set));
    let excess = empty.len().saturating_sub(keep);
    for (key, _) in empty.into_iter().take(excess) {
        state.delete_object(&key, None, "Background");
    }
}
