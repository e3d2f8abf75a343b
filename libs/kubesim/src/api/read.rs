//! GET and LIST.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ApiResult, Target, scale_of};
use crate::error::ApiError;
use crate::selectors::{Fields, Labels};
use crate::state::ClusterState;
use crate::store::Kept;

impl ClusterState {
    /// One object, or its scale.
    pub fn read(&self, target: &Target) -> ApiResult {
        let object = self.existing(target)?;
        match target.sub.as_str() {
            "" | "status" => Ok(versioned(&object, target)),
            "scale" if target.kind.scale => Ok(scale_of(&object)),
            _ => Err(ApiError::no_such_resource()),
        }
    }

    /// All objects that the selectors choose, at one revision, as JSON text in one page. Packed objects are JSON text already, so that
    /// they need not be decoded and encoded again.
    pub fn list_json(&self, target: &Target, labels: &Labels, fields: &Fields) -> String {
        let (kind, version) = (&target.kind.kind, target.kind.api_version());
        let asked_for = format!(r#"{{"apiVersion":"{version}","kind":"{kind}","#);
        let revision = self.store.revision();
        let mut list = format!(r#"{{"apiVersion":"{version}","kind":"{kind}List","metadata":{{"resourceVersion":"{revision}"}},"items":["#);
        let begin = list.len();
        for (_, kept) in self.store.range(&target.kind.resource, &target.namespace) {
            if !labels.is_empty() && !labels.matches(&kept.part::<Labelled>()) {
                continue;
            }
            let object = match kept {
                Kept::Cold(frozen) if fields.is_empty() => Some(frozen.json()).filter(|json| json.starts_with(&asked_for)),
                _ => None,
            };
            let built = || Some(kept.get()).filter(|object| fields.matches(object)).map(|object| versioned(&object, target).to_string());
            let Some(object) = object.or_else(built) else { continue };
            if list.len() > begin {
                list.push(',');
            }
            list.push_str(&object);
        }
        list.push_str("]}");
        list
    }

    /// Like [`ClusterState::list_json`], as a value.
    pub fn list(&self, target: &Target, labels: &Labels, fields: &Fields) -> Value {
        serde_json::from_str(&self.list_json(target, labels, fields)).expect("it wrote JSON")
    }
}

/// The part of an object that label selectors need.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Labelled {
    metadata: LabelledMeta,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct LabelledMeta {
    labels: Value,
}

/// The object in the requested version: without conversion, only `apiVersion` changes.
pub fn versioned(object: &Value, target: &Target) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = target.kind.api_version().into();
    object["kind"] = target.kind.kind.clone().into();
    object
}
