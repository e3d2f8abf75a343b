//! PersistentVolumes and their claims.

use serde_json::{Map, Value};

use crate::labels::MAY_OVERLAP;

/// Objects of a volume's spec that do not say where its data is.
const NO_SOURCE: [&str; 3] = ["capacity", "claimRef", "nodeAffinity"];

/// The source of a volume, by the name of its field (`nfs`, `csi`, …), from its spec: where the data is.
pub fn volume_source(spec: &Map<String, Value>) -> Option<(&str, &Value)> {
    let found = spec.iter().find(|(field, value)| value.is_object() && !NO_SOURCE.contains(&field.as_str()))?;
    Some((found.0, found.1))
}

/// Whether several pods may write the volume of this claim, or of the claims of this template, at the same time: its access mode allows it,
/// and the app says so.
pub fn may_overlap(claim: &Value) -> bool {
    let modes = claim["spec"]["accessModes"].as_array();
    let many = modes.is_some_and(|modes| modes.iter().any(|mode| mode == "ReadWriteMany"));
    many && claim["metadata"]["annotations"][MAY_OVERLAP] == "true"
}
