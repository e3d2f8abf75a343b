//! PersistentVolumes.

use serde_json::{Map, Value};

/// Objects of a volume's spec that do not say where its data is.
const NO_SOURCE: [&str; 3] = ["capacity", "claimRef", "nodeAffinity"];

/// The source of a volume, by the name of its field (`nfs`, `csi`, …), from its spec: where the data is.
pub fn volume_source(spec: &Map<String, Value>) -> Option<(&str, &Value)> {
    let found = spec.iter().find(|(field, value)| value.is_object() && !NO_SOURCE.contains(&field.as_str()))?;
    Some((found.0, found.1))
}
