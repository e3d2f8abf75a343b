//! Binds volume claims to volumes, and says what becomes of a volume whose claim is gone.
//!
//! A claim takes the volume that it names, or that names it, or a free one of its class. Where a StorageClass has a provisioner, a volume is
//! made. A claim whose class nobody has defined is bound to a volume that exists by name only, so that workloads run in a cluster that was
//! not given any storage.

use serde_json::{Value, json};

use crate::key::Key;
use crate::object::{self, text};
use crate::state::ClusterState;

const NONE: &str = "kubernetes.io/no-provisioner";

/// Binds a claim that is not bound.
pub fn bind(state: &mut ClusterState, key: &Key, claim: &Value) {
    if text(claim, "/status/phase") == "Bound" {
        return;
    }
    let named = text(claim, "/spec/volumeName");
    let class_name = text(claim, "/spec/storageClassName");
    let class = state.store.get(&Key::new(&"storageclasses.storage.k8s.io".into(), "", class_name));
    let volume = match named {
        "" => find(state, claim),
        _ => state.store.get(&volume_key(named)).filter(|volume| fits(volume, claim)).map(|_| named.to_owned()),
    };
    let volume = match (volume, class) {
        (Some(volume), _) => volume,
        (None, _) if !named.is_empty() => return,
        (None, Some(class)) if text(&class, "/provisioner") == NONE => return,
        (None, Some(class)) => provision(state, claim, &class),
        (None, None) => format!("pvc-{}", object::uid(claim)),
    };
    if let Some(mut bound) = state.store.get(&volume_key(&volume)).map(|found| Value::clone(&found)) {
        bound["spec"]["claimRef"] = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": &*key.namespace,
            "name": &*key.name, "uid": object::uid(claim)});
        bound["status"] = json!({"phase": "Bound"});
        state.put(volume_key(&volume), bound);
    }
    let mut new = claim.clone();
    new["spec"]["volumeName"] = json!(volume);
    new["status"] = json!({"phase": "Bound", "accessModes": claim["spec"]["accessModes"],
        "capacity": claim["spec"]["resources"]["requests"]});
    state.put(key.clone(), new);
}

/// A volume follows its claim: free without one, released when the claim is gone, deleted if it is not to be kept.
pub fn reconcile(state: &mut ClusterState, key: &Key, volume: &Value) {
    let (namespace, name) = (text(volume, "/spec/claimRef/namespace"), text(volume, "/spec/claimRef/name"));
    let uid = text(volume, "/spec/claimRef/uid");
    let claim = state.store.get(&Key::new(&"persistentvolumeclaims".into(), namespace, name));
    let phase = match (uid.is_empty(), claim.is_some_and(|claim| object::uid(&claim) == uid)) {
        (true, _) => "Available",
        (false, true) => "Bound",
        (false, false) if text(volume, "/spec/persistentVolumeReclaimPolicy") == "Delete" => {
            state.delete_object(key, None, "Background");
            return;
        }
        (false, false) => "Released",
    };
    if text(volume, "/status/phase") != phase {
        let mut new = volume.clone();
        new["status"] = json!({"phase": phase});
        state.put(key.clone(), new);
    }
}

fn volume_key(name: &str) -> Key {
    Key::new(&"persistentvolumes".into(), "", name)
}

/// Whether a volume may be this claim's: nobody else's, and of its class.
fn fits(volume: &Value, claim: &Value) -> bool {
    let reference = &volume["spec"]["claimRef"];
    let uid = text(volume, "/spec/claimRef/uid");
    let free = reference.is_null()
        || (text(reference, "/namespace") == object::namespace(claim)
            && text(reference, "/name") == object::name(claim)
            && (uid.is_empty() || uid == object::uid(claim)));
    free && text(volume, "/spec/storageClassName") == text(claim, "/spec/storageClassName")
}

/// A volume for a claim that names none: one that names the claim, else one that names nobody.
fn find(state: &ClusterState, claim: &Value) -> Option<String> {
    let volumes = "persistentvolumes".into();
    let fitting: Vec<_> = state.store.list(&volumes, "").filter(|(_, volume)| !object::deleting(volume) && fits(volume, claim)).collect();
    let reserved = fitting.iter().find(|(_, volume)| !volume["spec"]["claimRef"].is_null());
    reserved.or_else(|| fitting.first()).map(|(key, _)| key.name.to_string())
}

fn provision(state: &mut ClusterState, claim: &Value, class: &Value) -> String {
    let name = format!("pvc-{}", object::uid(claim));
    let policy = Some(text(class, "/reclaimPolicy")).filter(|policy| !policy.is_empty()).unwrap_or("Delete");
    let driver = text(class, "/provisioner");
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "uid": format!("{}-pv", object::uid(claim)),
            "creationTimestamp": state.clock.stamp(), "annotations": {"pv.kubernetes.io/provisioned-by": driver}},
        "spec": {"capacity": claim["spec"]["resources"]["requests"], "accessModes": claim["spec"]["accessModes"],
            "persistentVolumeReclaimPolicy": policy, "storageClassName": object::name(class),
            "csi": {"driver": driver, "volumeHandle": object::uid(claim)}}});
    state.put(volume_key(&name), volume);
    name
}
