//! StatefulSet: creates pods by ordinal, each with its claims, and updates them from the highest ordinal down.

use std::time::Duration;

use serde_json::{Value, json};

use super::common::{available, count, generation, owned, pod_of, put_status, replicas, template_hash, without_zeros};
use crate::key::Key;
use crate::object::{self, label, list, number, text};
use crate::state::ClusterState;
use crate::timers::Timer;

const REVISION: &str = "controller-revision-hash";

pub fn reconcile(state: &mut ClusterState, key: &Key, set: &Value) {
    let update = format!("{}-{}", key.name, template_hash(&set["spec"]["template"]));
    let current = Some(text(set, "/status/currentRevision")).filter(|r| !r.is_empty()).unwrap_or(&update).to_string();
    advance(state, key, set, &update);
    status(state, key, set, &current, &update);
}

fn pod_key(key: &Key, ordinal: i64) -> Key {
    Key::new(&"pods".into(), &key.namespace, &format!("{}-{ordinal}", key.name))
}

fn advance(state: &mut ClusterState, key: &Key, set: &Value, update: &str) {
    let (want, min_ready) = (replicas(set), number(set, "/spec/minReadySeconds").unwrap_or(0));
    let start = number(set, "/spec/ordinals/start").unwrap_or(0);
    let one_by_one = text(set, "/spec/podManagementPolicy") != "Parallel";
    let mut settled = true;
    for ordinal in start..start + want {
        let name = pod_key(key, ordinal);
        match state.store.get(&name) {
            Some(pod) if object::pod_finished(&pod) && !object::deleting(&pod) => {
                state.delete_object(&name, None, "Background");
                settled = false;
            }
            Some(pod) => settled &= !object::deleting(&pod) && available(state, &pod, min_ready).is_ok(),
            None => {
                settled = false;
                if create(state, key, set, ordinal, update).is_err() {
                    state.after(Duration::from_secs(1), Timer::Revisit(key.clone()));
                    return;
                }
            }
        }
        if one_by_one && !settled {
            return;
        }
    }
    let mut beyond: Vec<(i64, Key)> = owned(state, set, "pods")
        .into_iter()
        .filter_map(|(k, _)| Some((k.name.rsplit_once('-')?.1.parse::<i64>().ok()?, k)))
        .filter(|(ordinal, _)| !(start..start + want).contains(ordinal))
        .collect();
    beyond.sort();
    while let Some((_, name)) = beyond.pop() {
        let going = state.store.get(&name).is_some_and(|pod| object::deleting(&pod));
        if !going {
            state.delete_object(&name, None, "Background");
        }
        if one_by_one {
            return;
        }
    }
    let partition = number(set, "/spec/updateStrategy/rollingUpdate/partition").unwrap_or(0);
    if settled && set["spec"]["updateStrategy"]["type"] != "OnDelete" {
        let stale = (start + partition..start + want)
            .rev()
            .map(|ordinal| pod_key(key, ordinal))
            .find(|name| state.store.get(name).is_some_and(|pod| label(&pod, REVISION) != Some(update)));
        if let Some(name) = stale {
            state.delete_object(&name, None, "Background");
        }
    }
}

fn create(state: &mut ClusterState, key: &Key, set: &Value, ordinal: i64, revision: &str) -> Result<(), crate::error::ApiError> {
    let name = pod_key(key, ordinal);
    let mut pod = pod_of(&set["spec"]["template"]);
    for (label, value) in
        [("statefulset.kubernetes.io/pod-name", &*name.name), (REVISION, revision), ("apps.kubernetes.io/pod-index", &ordinal.to_string())]
    {
        pod["metadata"]["labels"][label] = json!(value);
    }
    pod["spec"]["hostname"] = json!(&*name.name);
    pod["spec"]["subdomain"] = set["spec"].get("serviceName").cloned().unwrap_or(json!(""));
    let mut volumes = list(&pod, "/spec/volumes").to_vec();
    for template in list(set, "/spec/volumeClaimTemplates") {
        let claim = format!("{}-{}", object::name(template), name.name);
        volumes.retain(|v| v["name"] != template["metadata"]["name"]);
        volumes.push(json!({"name": object::name(template), "persistentVolumeClaim": {"claimName": claim}}));
        let at = Key::new(&"persistentvolumeclaims".into(), &key.namespace, &claim);
        if !state.store.has(&at) {
            let mut metadata = json!({});
            let (own, of_set) = (&template["metadata"], json!({"labels": set["spec"]["selector"]["matchLabels"]}));
            for (field, from) in [("labels", own), ("annotations", own), ("labels", &of_set)] {
                for (key, value) in from[field].as_object().into_iter().flatten() {
                    metadata[field][key] = value.clone();
                }
            }
            let body = json!({"metadata": metadata, "spec": template["spec"]});
            state.create_owned(at.clone(), body, set)?;
            // Claims stay when their set is deleted: they are created like owned objects, and then the owner is removed.
            if let Some(mut claim) = state.store.get(&at).map(|c| Value::clone(&c)) {
                object::remove(&mut claim, &["metadata"], "ownerReferences");
                state.put(at, claim);
            }
        }
    }
    if !volumes.is_empty() {
        pod["spec"]["volumes"] = volumes.into();
    }
    state.create_owned(name, pod, set).map(drop)
}

fn status(state: &mut ClusterState, key: &Key, set: &Value, current: &str, update: &str) {
    let pods: Vec<_> = owned(state, set, "pods").into_iter().map(|(_, pod)| pod).filter(|pod| object::pod_active(pod)).collect();
    let min_ready = number(set, "/spec/minReadySeconds").unwrap_or(0);
    let all = count(state, key, pods.iter(), min_ready);
    let of = |revision: &str| pods.iter().filter(|pod| label(pod, REVISION) == Some(revision)).count() as i64;
    let updated = of(update);
    let done = updated == replicas(set) && all.replicas == updated && all.ready == updated;
    let current = if done { update } else { current };
    let mut status = without_zeros(&[
        ("observedGeneration", generation(set)),
        ("readyReplicas", all.ready),
        ("currentReplicas", of(current)),
        ("updatedReplicas", updated),
    ]);
    status.insert("replicas".into(), json!(all.replicas));
    status.insert("availableReplicas".into(), json!(all.available));
    status.insert("currentRevision".into(), json!(current));
    status.insert("updateRevision".into(), json!(update));
    status.insert("collisionCount".into(), json!(0));
    put_status(state, key, set, status.into());
}
