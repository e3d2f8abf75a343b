//! Which volumes may move with their app: those that the destination reaches at the same place.
//!
//! A volume may move if its source is shared by nature (nfs), if the destination has the same CSI driver, or if the operator has labelled its
//! StorageClass as shared (`drover.io/shared: "true"`) in both members. Everything else stays where it is: a move must never start an
//! empty twin. Invariant: what is not known is not shared.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Pods of a StatefulSet with volumes of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StatefulPods {
    pub namespace: String,
    /// Name of the StatefulSet.
    pub set: String,
    /// Ordinal of the first pod.
    #[serde(default)]
    pub start: u32,
    pub replicas: u32,
    /// Names of the volume claim templates.
    pub templates: Vec<String>,
    /// Whether several of them may write the volumes at the same time, so that each may start elsewhere before it stops.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overlaps: bool,
}

impl StatefulPods {
    /// The volume claims of all pods, as `namespace/name`.
    pub fn claims(&self) -> impl Iterator<Item = String> {
        let ordinals = self.start..self.start.saturating_add(self.replicas);
        ordinals
            .flat_map(|ordinal| self.templates.iter().map(move |template| (template, ordinal)))
            .map(|(template, ordinal)| format!("{}/{}", self.namespace, claim_name(template, &self.set, ordinal)))
    }
}

/// The name that the StatefulSet controller gives to the volume claim of a pod.
pub fn claim_name(template: &str, set: &str, ordinal: u32) -> String {
    format!("{template}-{set}-{ordinal}")
}

/// What a member says of its volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Names of the installed CSI drivers.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub drivers: BTreeSet<String>,
    /// Names of the StorageClasses that the operator has labelled as shared between members.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub shared_classes: BTreeSet<String>,
    /// The volumes that claims are bound to, by `namespace/name` of the claim.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub volumes: BTreeMap<String, BoundVolume>,
}

/// A persistent volume that a claim is bound to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BoundVolume {
    /// Name of the PersistentVolume.
    pub name: String,
    /// Its source: `nfs`, `hostPath`, `local`, `csi`, or the field of another one.
    pub source: String,
    /// Name of the CSI driver, if the source is `csi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Name of its StorageClass; empty without one.
    #[serde(default)]
    pub class: String,
}

impl BoundVolume {
    /// Why this volume of a member cannot be used from any other; `None` if it can where the other one has the same driver or class.
    fn tied(&self, here: &Storage) -> Option<String> {
        match self.source.as_str() {
            "nfs" | "csi" => None,
            "hostPath" | "local" if here.shared_classes.contains(&self.class) => None,
            "hostPath" | "local" => Some(format!(
                "{} is a directory of a node, and its StorageClass {:?} is not labelled drover.io/shared=true",
                self.name, self.class
            )),
            other => Some(format!("{} is of the kind {other}, which no other cluster reaches", self.name)),
        }
    }

    /// Why another member cannot use it.
    fn out_of_reach(&self, there: Option<&Storage>) -> Option<String> {
        let class = || there.is_some_and(|there| there.shared_classes.contains(&self.class));
        match (self.source.as_str(), &self.driver) {
            ("nfs", _) => None,
            ("csi", Some(driver)) if there.is_some_and(|there| there.drivers.contains(driver)) => None,
            ("csi", driver) => Some(format!("it lacks the CSI driver {}", driver.as_deref().unwrap_or("of the volume"))),
            _ if class() => None,
            _ => Some(format!("its StorageClass {:?} is not there or not labelled drover.io/shared=true", self.class)),
        }
    }
}

/// The volumes of an app in its member, or why they cannot leave it.
pub(crate) fn movable<'a>(pods: &[StatefulPods], here: Option<&'a Storage>) -> Result<Vec<&'a BoundVolume>, String> {
    let mut found = Vec::new();
    for claim in pods.iter().flat_map(StatefulPods::claims) {
        let Some(storage) = here else {
            return Err(format!("nothing is known of the volume of {claim}: the cluster's volumes cannot be read"));
        };
        let Some(volume) = storage.volumes.get(&claim) else {
            return Err(format!("the volume claim {claim} is not seen bound to a volume"));
        };
        if let Some(why) = volume.tied(storage) {
            return Err(format!("the volume {why}"));
        }
        found.push(volume);
    }
    Ok(found)
}

/// Why a member cannot use one of these volumes.
pub(crate) fn out_of_reach(volumes: &[&BoundVolume], there: Option<&Storage>) -> Option<String> {
    volumes.iter().find_map(|volume| volume.out_of_reach(there))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(source: &str, driver: Option<&str>, class: &str) -> BoundVolume {
        BoundVolume { name: "pv-1".into(), source: source.into(), driver: driver.map(str::to_owned), class: class.into() }
    }
    fn storage(drivers: &[&str], shared: &[&str], bound: Option<BoundVolume>) -> Storage {
        let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let volumes = bound.into_iter().map(|volume| ("shop/data-db-0".to_owned(), volume)).collect();
        Storage { drivers: all(drivers), shared_classes: all(shared), volumes }
    }
    fn pods() -> Vec<StatefulPods> {
        vec![StatefulPods {
            namespace: "shop".into(),
            set: "db".into(),
            start: 0,
            replicas: 1,
            templates: vec!["data".into()],
            overlaps: false,
        }]
    }
    /// What speaks against moving a volume from one storage to another.
    fn verdict(volume: BoundVolume, mut here: Storage, there: &Storage) -> Option<String> {
        here.volumes.insert("shop/data-db-0".into(), volume);
        match movable(&pods(), Some(&here)) {
            Ok(volumes) => out_of_reach(&volumes, Some(there)),
            Err(why) => Some(why),
        }
    }

    #[test]
    fn volume_moves_where_its_source_is_reached() {
        let (plain, csi, shared) = (storage(&[], &[], None), storage(&["efs"], &[], None), storage(&[], &["dir"], None));
        assert_eq!(verdict(volume("nfs", None, ""), plain.clone(), &plain), None);
        assert_eq!(verdict(volume("csi", Some("efs"), "x"), csi.clone(), &csi), None);
        assert!(verdict(volume("csi", Some("efs"), "x"), csi.clone(), &plain).unwrap().contains("lacks the CSI driver efs"));
        assert_eq!(verdict(volume("hostPath", None, "dir"), shared.clone(), &shared), None);
        assert!(verdict(volume("hostPath", None, "dir"), shared.clone(), &plain).unwrap().contains("not there or not labelled"));
        assert!(verdict(volume("local", None, "dir"), plain.clone(), &shared).unwrap().contains("is not labelled drover.io/shared=true"));
        assert!(verdict(volume("awsElasticBlockStore", None, ""), plain.clone(), &plain).unwrap().contains("no other cluster reaches"));
    }

    #[test]
    fn what_is_not_known_does_not_move() {
        assert!(movable(&pods(), None).unwrap_err().contains("cannot be read"));
        assert!(movable(&pods(), Some(&storage(&[], &[], None))).unwrap_err().contains("shop/data-db-0 is not seen bound"));
        assert!(out_of_reach(&[&volume("csi", Some("efs"), "")], None).is_some());
    }
}
