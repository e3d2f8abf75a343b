//! Reads which volumes a member has, to know before a move which of them can be used from elsewhere.
//!
//! Only volumes that are bound to a claim matter. A credential that may not read them gives `None`: then no app with volumes moves.

use std::collections::BTreeMap;

use drover_members::{labels, volume_source};
use drover_scheduling::{BoundVolume, Storage};
use kube::Client;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::metrics::{List, get};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    metadata: Meta,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Meta {
    name: String,
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Volume {
    metadata: Meta,
    spec: VolumeSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct VolumeSpec {
    claim_ref: Option<ClaimRef>,
    storage_class_name: String,
    /// Among them the source.
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Deserialize)]
struct ClaimRef {
    namespace: String,
    name: String,
}

/// The volumes of a member; `None` if they cannot be read.
pub async fn read(client: &Client) -> Option<Storage> {
    let volumes: List<Volume> = get(client, "/api/v1/persistentvolumes").await?;
    let drivers: List<Named> = get(client, "/apis/storage.k8s.io/v1/csidrivers").await?;
    let shared = format!("/apis/storage.k8s.io/v1/storageclasses?labelSelector={}%3Dtrue", labels::SHARED.replace('/', "%2F"));
    let shared: List<Named> = get(client, &shared).await?;
    Some(Storage {
        drivers: drivers.items.into_iter().map(|driver| driver.metadata.name).collect(),
        shared_classes: shared.items.into_iter().map(|class| class.metadata.name).collect(),
        volumes: volumes.items.into_iter().filter_map(bound).collect(),
    })
}

fn bound(volume: Volume) -> Option<(String, BoundVolume)> {
    let claim = volume.spec.claim_ref?;
    let (source, described) = volume_source(&volume.spec.others)?;
    let bound = BoundVolume {
        name: volume.metadata.name,
        source: source.to_owned(),
        driver: described["driver"].as_str().filter(|_| source == "csi").map(str::to_owned),
        class: volume.spec.storage_class_name,
    };
    Some((format!("{}/{}", claim.namespace, claim.name), bound))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn volume_is_known_by_its_claim_with_its_source() {
        let read = |spec: Value| bound(serde_json::from_value(json!({"metadata": {"name": "pv"}, "spec": spec})).unwrap());
        let claim = json!({"namespace": "shop", "name": "data-db-0"});
        let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "claimRef": claim, "storageClassName": "efs",
            "csi": {"driver": "efs.csi.aws.com", "volumeHandle": "fs-1"}, "persistentVolumeReclaimPolicy": "Delete"});
        let (name, volume) = read(spec).unwrap();
        assert_eq!((name.as_str(), volume.source.as_str(), volume.driver.as_deref()), ("shop/data-db-0", "csi", Some("efs.csi.aws.com")));
        assert_eq!((volume.name.as_str(), volume.class.as_str()), ("pv", "efs"));
        let (_, nfs) = read(json!({"claimRef": claim, "nfs": {"server": "s", "path": "/"}, "nodeAffinity": {}})).unwrap();
        assert_eq!((nfs.source.as_str(), nfs.driver), ("nfs", None));
        assert_eq!(read(json!({"nfs": {"server": "s", "path": "/"}})), None, "no claim uses it");
    }
}
