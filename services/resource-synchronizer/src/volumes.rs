//! Reads the pods of StatefulSets with their volumes, as they are to be made where the app moves to.
//!
//! Nothing is written. A volume is described by what Kubernetes needs to find the same data elsewhere: its source, a reference to the claim,
//! and the reclaim policy `Retain`, so that nobody deletes the data with the object.

use drover_api::bindings::{SetName, StatefulPod, TakenVolume, VolumeAnswer, VolumeQuestion};
use drover_members::{Member, MemberError, ObjectId, labels, volume_source};
use drover_scheduling::claim_name;
use serde_json::{Map, Value, json};

use crate::app::{App, Error};

/// The pods and volumes that were asked for.
///
/// # Errors
/// Never: what cannot be found out is a problem in the answer.
pub async fn read(app: &App, asked: &VolumeQuestion) -> Result<VolumeAnswer, Error> {
    let mut answer = VolumeAnswer::default();
    let member = match app.member(&asked.member).await {
        Ok(member) => member,
        Err(reason) => return Ok(VolumeAnswer { problems: vec![format!("{} could not be asked: {reason}", asked.member)], ..answer }),
    };
    for set in &asked.sets {
        match pods(&member, set, &asked.member.0).await {
            Ok(Ok(found)) => answer.pods.extend(found),
            Ok(Err(problem)) => answer.problems.push(problem),
            Err(error) => answer.problems.push(error.to_string()),
        }
    }
    Ok(answer)
}

/// The address of an object of the core group.
pub fn core(kind: &str, namespace: &str, name: &str) -> ObjectId {
    ObjectId { api_version: "v1".into(), kind: kind.into(), namespace: namespace.into(), name: name.into() }
}

/// The address of a StatefulSet.
pub fn stateful_set(namespace: &str, name: &str) -> ObjectId {
    ObjectId { api_version: "apps/v1".into(), kind: "StatefulSet".into(), namespace: namespace.into(), name: name.into() }
}

/// An object with all its fields; null if it does not exist.
pub async fn whole(member: &Member, id: &ObjectId) -> Result<Value, MemberError> {
    Ok(member.object(id).await?.map(|object| serde_json::to_value(object).unwrap_or_default()).unwrap_or_default())
}

async fn pods(member: &Member, set: &SetName, from: &str) -> Result<Result<Vec<StatefulPod>, String>, MemberError> {
    let SetName { namespace, name } = set;
    let found = whole(member, &stateful_set(namespace, name)).await?;
    if found.is_null() {
        return Ok(Err(format!("there is no StatefulSet {namespace}/{name}")));
    }
    let number = |pointer: &str, otherwise: u64| {
        let number = found.pointer(pointer).and_then(Value::as_u64).unwrap_or(otherwise);
        u32::try_from(number).unwrap_or_default()
    };
    let (start, replicas) = (number("/spec/ordinals/start", 0), number("/spec/replicas", 1));
    let templates = found["spec"]["volumeClaimTemplates"].as_array().cloned().unwrap_or_default();
    let mut pods = Vec::new();
    for ordinal in start..start.saturating_add(replicas) {
        let mut volumes = Vec::new();
        for template in templates.iter().filter_map(|template| template["metadata"]["name"].as_str()) {
            match taken(member, namespace, &claim_name(template, name, ordinal), from).await? {
                Ok(volume) => volumes.push(volume),
                Err(problem) => return Ok(Err(problem)),
            }
        }
        pods.push(StatefulPod { namespace: namespace.clone(), set: name.clone(), ordinal, volumes });
    }
    Ok(Ok(pods))
}

async fn taken(member: &Member, namespace: &str, name: &str, from: &str) -> Result<Result<TakenVolume, String>, MemberError> {
    let claim = whole(member, &core("PersistentVolumeClaim", namespace, name)).await?;
    let Some(bound) = claim["spec"]["volumeName"].as_str().filter(|name| !name.is_empty()) else {
        return Ok(Err(format!("the volume claim {namespace}/{name} is not bound to a volume")));
    };
    let volume = whole(member, &core("PersistentVolume", "", bound)).await?;
    let reference = &volume["spec"]["claimRef"];
    if reference["namespace"] != namespace || reference["name"] != name {
        return Ok(Err(format!("the volume {bound} does not belong to the claim {namespace}/{name}")));
    }
    Ok(Ok(TakenVolume { claim: claim_elsewhere(&claim, from), volume: volume_elsewhere(&volume, from) }))
}

fn claim_elsewhere(claim: &Value, from: &str) -> Value {
    let mut spec = claim["spec"].clone();
    if let Some(spec) = spec.as_object_mut() {
        // What it was filled from is in the volume by now.
        spec.retain(|field, _| !matches!(field.as_str(), "dataSource" | "dataSourceRef" | "selector"));
    }
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata(claim, from), "spec": spec})
}

fn volume_elsewhere(volume: &Value, from: &str) -> Value {
    let mut spec = volume["spec"].clone();
    let reference = &volume["spec"]["claimRef"];
    spec["claimRef"] =
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": reference["namespace"], "name": reference["name"]});
    spec["persistentVolumeReclaimPolicy"] = json!("Retain");
    // Both name nodes of the other cluster. A local volume must say on which nodes it is: the operator has said on all.
    let any_node =
        json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}]}});
    match (spec.get("local").is_some(), spec.get("hostPath").is_some(), spec.as_object_mut()) {
        (true, _, Some(spec)) => drop(spec.insert("nodeAffinity".into(), any_node)),
        (_, true, Some(spec)) => drop(spec.remove("nodeAffinity")),
        _ => {}
    }
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata(volume, from), "spec": spec})
}

/// Name, labels and annotations, without those that controllers of the other cluster have set.
fn metadata(object: &Value, from: &str) -> Value {
    let theirs = |key: &String| {
        !["pv.kubernetes.io/", "volume.kubernetes.io/", "volume.beta.kubernetes.io/", "kubectl.kubernetes.io/"]
            .iter()
            .any(|p| key.starts_with(p))
    };
    let kept = |field: &str| -> Map<String, Value> {
        let all = object["metadata"][field].as_object().into_iter().flatten();
        all.filter(|(key, _)| theirs(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let mut annotations = kept("annotations");
    annotations.insert(labels::MOVED_FROM.into(), json!(from));
    let mut metadata = json!({"name": object["metadata"]["name"], "labels": kept("labels"), "annotations": annotations});
    if object["metadata"]["namespace"].is_string() {
        metadata["namespace"] = object["metadata"]["namespace"].clone();
    }
    metadata
}

/// Whether a volume of this name leads to the same data.
pub fn same_source(wanted: &Value, found: &Value) -> bool {
    let csi = |volume: &Value| (volume["spec"]["csi"]["driver"].clone(), volume["spec"]["csi"]["volumeHandle"].clone());
    // The attributes of a CSI volume may differ between clusters; its handle says which data it is.
    let same = |(field, value): (&str, &Value)| field == "csi" || found["spec"][field] == *value;
    wanted["spec"].as_object().and_then(volume_source).is_none_or(same) && csi(wanted) == csi(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_elsewhere_is_kept_refers_to_its_claim_and_names_no_node() {
        let volume = json!({"metadata": {"name": "pv", "uid": "u", "resourceVersion": "7", "finalizers": ["kubernetes.io/pv-protection"],
                "annotations": {"pv.kubernetes.io/bound-by-controller": "yes", "mine": "1"}},
            "spec": {"local": {"path": "/srv"}, "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "dir",
                "claimRef": {"namespace": "n", "name": "data-db-0", "uid": "c"}, "nodeAffinity": {"required": {"a": 1}}}});
        let made = volume_elsewhere(&volume, "p+a");
        assert_eq!(made["metadata"], json!({"name": "pv", "labels": {}, "annotations": {"mine": "1", "drover.io/moved-from": "p+a"}}));
        let spec = &made["spec"];
        assert_eq!((&spec["persistentVolumeReclaimPolicy"], &spec["claimRef"]["uid"]), (&json!("Retain"), &Value::Null));
        assert!(spec["nodeAffinity"].to_string().contains("Exists"), "{spec}");
        let other = json!({"spec": {"local": {"path": "/other"}}});
        assert!(same_source(&made, &volume) && !same_source(&made, &other));
    }
}
