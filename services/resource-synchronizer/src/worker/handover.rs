//! The volumes of an app that moves pod by pod: given up here, or taken over.
//!
//! ```text
//! give up:   keep the data (reclaim policy) ─ pin the pod ─ [fewer replicas are applied] ─ containers ended? unpin ─ delete claim, volume
//! take over: make volume, claim ─ [replicas are applied]
//! ```
//! A pinned pod has a finalizer, so it stays in the API server until its kubelet has reported that each of its containers ended, even if
//! somebody deletes it by force. Invariant: the claim and the volume of a pod are deleted only when nothing of the pod runs, and a claim that
//! is bound to another volume is never touched. Every pass looks again, so it may end anywhere.
//!
//! All of it is written with Drover's own account, also where a logical cloud names another one: volumes belong to no namespace.

use std::sync::Arc;

use drover_api::bindings::{Release, Share, TakenVolume};
use drover_members::{Member, MemberError, labels};
use serde_json::{Value, json};
use uuid::Uuid;

use super::binding_state::Failure;
use super::{Outcome, Worker};
use crate::app::Error;
use crate::volumes::{core, same_source, stateful_set, whole};

impl Worker {
    /// What must be true before the objects of a share are applied. `None`: it is.
    pub(super) async fn before_share(&mut self, member: &Arc<Member>, id: Uuid) -> Result<Option<Outcome>, Error> {
        let Some(share) = self.open_share(id) else { return Ok(None) };
        let member = &member.acting_as(None);
        for release in &share.releases {
            if !self.bindings[&id].released.contains(&release.key()) && !prepare_release(member, id, release).await? {
                return Ok(Some(Outcome::Again));
            }
        }
        for volume in &share.volumes {
            if let Err(reason) = take_over(member, volume, self.app.hub).await? {
                return Ok(Some(self.fail(id, Failure::new("preflight_failed", reason))));
            }
        }
        Ok(None)
    }

    /// What follows when the objects of a share are applied. `None`: everything that was to be given up is.
    pub(super) async fn after_share(&mut self, member: &Arc<Member>, id: Uuid) -> Result<Option<Outcome>, Error> {
        let Some(share) = self.open_share(id) else { return Ok(None) };
        let member = &member.acting_as(None);
        let mut waits = !unpin(member, id, &share).await?;
        for release in &share.releases {
            if self.bindings[&id].released.contains(&release.key()) {
                continue;
            }
            match give_up(member, id, release).await? {
                true => drop(self.bound(id).released.insert(release.key())),
                false => waits = true,
            }
        }
        if waits {
            return Ok(Some(Outcome::Again));
        }
        self.bound(id).share_settled = true;
        Ok(None)
    }

    /// The share of a binding, unless everything that follows from it is done.
    fn open_share(&self, id: Uuid) -> Option<Arc<Share>> {
        let bound = &self.bindings[&id];
        bound.row.desired.share.clone().filter(|_| !bound.share_settled)
    }
}

/// The objects of a bundle, with the pods of its StatefulSets that run here.
pub(super) fn shared_out(mut objects: Vec<Value>, share: &Share, default: &str) -> Vec<Value> {
    for object in objects.iter_mut().filter(|object| object["kind"] == "StatefulSet") {
        let namespace = object["metadata"]["namespace"].as_str().filter(|own| !own.is_empty()).unwrap_or(default);
        let Some(set) = share.sets.iter().find(|set| set.namespace == namespace && object["metadata"]["name"] == set.name.as_str()) else {
            continue;
        };
        object["spec"]["replicas"] = json!(set.replicas);
        object["spec"]["ordinals"] = json!({"start": set.start});
        // Nobody else chooses the number meanwhile.
        object["metadata"]["annotations"][labels::REPLICAS_OWNER] = json!(labels::FIELD_MANAGER);
    }
    objects
}

/// Keeps the data, and pins the pod. False: the pod goes at the moment and may come again, so it cannot be pinned yet.
async fn prepare_release(member: &Member, id: Uuid, release: &Release) -> Result<bool, MemberError> {
    for claim in &release.claims {
        let volume = core("PersistentVolume", "", &claim.volume);
        let found = whole(member, &volume).await?;
        let of_claim = found["spec"]["claimRef"]["namespace"] == release.namespace && found["spec"]["claimRef"]["name"] == claim.name;
        if of_claim && found["spec"]["persistentVolumeReclaimPolicy"] != "Retain" {
            member.merge(&volume, &json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}})).await?;
        }
    }
    let address = core("Pod", &release.namespace, &release.pod);
    let pod = whole(member, &address).await?;
    if !belongs(&pod, id) || is_pinned(&pod) {
        return Ok(true);
    }
    if pod["metadata"]["deletionTimestamp"].is_string() {
        return Ok(false);
    }
    pin(member, release, &pod).await
}

/// Takes the finalizer off the pods that run here: they were pinned for a move that goes back. Returns whether none of them is pinned.
async fn unpin(member: &Member, id: Uuid, share: &Share) -> Result<bool, MemberError> {
    let mut none_pinned = true;
    for set in &share.sets {
        for ordinal in set.start..set.start.saturating_add(set.replicas) {
            let pod_name = format!("{}-{ordinal}", set.name);
            let pod = whole(member, &core("Pod", &set.namespace, &pod_name)).await?;
            let deleting = pod["metadata"]["deletionTimestamp"].is_string();
            if !belongs(&pod, id) || !is_pinned(&pod) {
                continue;
            }
            let release = Release { namespace: set.namespace.clone(), pod: pod_name, ..Release::default() };
            none_pinned &= (!deleting || has_stopped(&pod)) && set_finalizers(member, &release, &pod, without_pin(&pod)).await?;
        }
    }
    Ok(none_pinned)
}

/// Sets the finalizer. False: the pod has changed since it was read.
async fn pin(member: &Member, release: &Release, pod: &Value) -> Result<bool, MemberError> {
    let mut finalizers = finalizers(pod);
    finalizers.push(labels::STOPS.into());
    set_finalizers(member, release, pod, finalizers).await
}

async fn set_finalizers(member: &Member, release: &Release, pod: &Value, finalizers: Vec<Value>) -> Result<bool, MemberError> {
    let metadata = json!({"resourceVersion": pod["metadata"]["resourceVersion"], "uid": pod["metadata"]["uid"], "finalizers": finalizers});
    match member.merge(&core("Pod", &release.namespace, &release.pod), &json!({ "metadata": metadata })).await {
        Ok(()) => Ok(true),
        Err(MemberError::Conflict(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

fn finalizers(pod: &Value) -> Vec<Value> {
    pod["metadata"]["finalizers"].as_array().cloned().unwrap_or_default()
}

fn without_pin(pod: &Value) -> Vec<Value> {
    finalizers(pod).into_iter().filter(|finalizer| finalizer != labels::STOPS).collect()
}

fn is_pinned(pod: &Value) -> bool {
    finalizers(pod).iter().any(|finalizer| finalizer == labels::STOPS)
}

fn belongs(pod: &Value, id: Uuid) -> bool {
    pod["metadata"]["labels"][labels::BINDING] == id.to_string().as_str()
}

/// Whether nothing of a pod runs: it was never bound to a node, or its kubelet has reported the end of each of its containers. The phase
/// alone says nothing, because controllers set it too when a node is lost.
fn has_stopped(pod: &Value) -> bool {
    if pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty) {
        return true;
    }
    let list = |pointer: &str| pod.pointer(pointer).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let ended = |status: &Value| status["state"]["terminated"].is_object();
    let runs = |status: &Value| status["state"]["running"].is_object();
    let (containers, statuses) = (list("/spec/containers"), list("/status/containerStatuses"));
    let others = ["/status/initContainerStatuses", "/status/ephemeralContainerStatuses"];
    statuses.len() == containers.len() && statuses.iter().all(ended) && !others.iter().any(|pointer| list(pointer).iter().any(runs))
}

/// Unpins the pod when it has stopped; deletes claim and volume when it is gone. Returns whether all of that is done.
async fn give_up(member: &Member, id: Uuid, release: &Release) -> Result<bool, MemberError> {
    let pod = whole(member, &core("Pod", &release.namespace, &release.pod)).await?;
    if belongs(&pod, id) {
        let deleting = pod["metadata"]["deletionTimestamp"].is_string();
        match (deleting, is_pinned(&pod)) {
            (true, true) if has_stopped(&pod) => {
                set_finalizers(member, release, &pod, without_pin(&pod)).await?;
            }
            // It came between the pinning and the change of the replicas.
            (false, false) => drop(pin(member, release, &pod).await?),
            _ => {}
        }
        return Ok(false);
    }
    // While the controller has not seen the new number of replicas it may make the pod again.
    let set = whole(member, &stateful_set(&release.namespace, &release.set)).await?;
    let observed = set["status"]["observedGeneration"].as_i64().unwrap_or_default();
    if !set.is_null() && observed < set["metadata"]["generation"].as_i64().unwrap_or_default() {
        return Ok(false);
    }
    let mut given_up = true;
    for claim in &release.claims {
        let address = core("PersistentVolumeClaim", &release.namespace, &claim.name);
        let found = whole(member, &address).await?;
        if found["spec"]["volumeName"] == claim.volume.as_str() {
            // Its volume is looked at when it is gone.
            member.delete_exactly(&address, found["metadata"]["uid"].as_str().unwrap_or_default()).await?;
            given_up = false;
            continue;
        }
        let address = core("PersistentVolume", "", &claim.volume);
        let volume = whole(member, &address).await?;
        let spec = &volume["spec"];
        let of_claim = spec["claimRef"]["namespace"] == release.namespace && spec["claimRef"]["name"] == claim.name;
        // With another reclaim policy the data would go with it.
        if of_claim && spec["persistentVolumeReclaimPolicy"] == "Retain" {
            given_up &= member.delete_exactly(&address, volume["metadata"]["uid"].as_str().unwrap_or_default()).await?;
        }
    }
    Ok(given_up)
}

/// Makes a volume and its claim. `Err`: something else is there under one of their names.
async fn take_over(member: &Member, taken: &TakenVolume, hub: Uuid) -> Result<Result<(), String>, MemberError> {
    let (namespace, name) = taken.claim_name();
    let address = core("PersistentVolume", "", taken.volume_name());
    let found = whole(member, &address).await?;
    if found.is_null() {
        member.create(&address, &taken.volume).await?;
    } else {
        let reference = &found["spec"]["claimRef"];
        if reference["namespace"] != namespace || reference["name"] != name || !same_source(&taken.volume, &found) {
            return Ok(Err(format!("the volume {} exists in the member and is not that of the claim {namespace}/{name}", address.name)));
        }
    }
    let address = core("PersistentVolumeClaim", namespace, name);
    let claim = whole(member, &address).await?;
    if claim.is_null() {
        // A volume that an earlier claim of this name was bound to refers to that claim's uid.
        if found["spec"]["claimRef"]["uid"].is_string() {
            let forget = json!({"spec": {"claimRef": {"uid": null, "resourceVersion": null}}});
            member.merge(&core("PersistentVolume", "", taken.volume_name()), &forget).await?;
        }
        member.ensure_namespace(namespace, hub).await?;
        member.create(&address, &taken.claim).await?;
    } else if claim["spec"]["volumeName"] != taken.volume_name() {
        return Ok(Err(format!("the volume claim {namespace}/{name} exists in the member and is bound to another volume")));
    }
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(node: &str, states: &[&str]) -> Value {
        let containers: Vec<Value> = states.iter().map(|_| json!({"name": "c"})).collect();
        let statuses: Vec<Value> = states.iter().filter(|state| !state.is_empty()).map(|state| json!({"state": {*state: {}}})).collect();
        json!({"spec": {"nodeName": node, "containers": containers}, "status": {"phase": "Failed", "containerStatuses": statuses}})
    }

    #[test]
    fn pod_has_stopped_when_its_kubelet_has_said_so_of_every_container() {
        assert!(has_stopped(&pod("", &["", ""])), "no node");
        assert!(has_stopped(&pod("n1", &["terminated", "terminated"])));
        for states in [["terminated", "running"], ["terminated", "waiting"], ["terminated", ""], ["", ""]] {
            assert!(!has_stopped(&pod("n1", &states)), "{states:?}: the node may be lost");
        }
    }

    #[test]
    fn share_sets_the_pods_of_its_set_only() {
        let set = |name: &str| json!({"kind": "StatefulSet", "metadata": {"name": name}, "spec": {"replicas": 3}});
        let sets = vec![drover_api::bindings::SetShare { namespace: "n".into(), name: "db".into(), start: 2, replicas: 1 }];
        let made = shared_out(vec![set("db"), set("other")], &Share { sets, ..Share::default() }, "n");
        assert_eq!((&made[0]["spec"]["replicas"], &made[0]["spec"]["ordinals"]["start"]), (&json!(1), &json!(2)));
        assert_eq!(made[0]["metadata"]["annotations"][labels::REPLICAS_OWNER], "drover");
        assert_eq!(made[1], set("other"));
    }
}
