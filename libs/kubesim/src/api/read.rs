//! GET and LIST.

use serde_json::{Value, json};

use super::{Answer, Target, scale_of};
use crate::cluster::State;
use crate::error::ApiError;
use crate::selectors::{Fields, Labels};

impl State {
    /// One object, or its scale.
    pub fn read(&self, target: &Target) -> Answer {
        let object = self.existing(target)?;
        match target.sub.as_str() {
            "" | "status" => Ok(versioned(&object, target)),
            "scale" if target.kind.scale => Ok(scale_of(&object)),
            _ => Err(ApiError::no_such_resource()),
        }
    }

    /// All objects that the selectors choose, at one revision. Never in pages.
    pub fn list(&self, target: &Target, labels: &Labels, fields: &Fields) -> Value {
        let items: Vec<Value> = self
            .store
            .list(&target.kind.resource, &target.namespace)
            .filter(|(_, object)| labels.matches(object) && fields.matches(object))
            .map(|(_, object)| versioned(&object, target))
            .collect();
        json!({"kind": format!("{}List", target.kind.kind), "apiVersion": target.kind.api_version(),
            "metadata": {"resourceVersion": self.store.revision().to_string()}, "items": items})
    }
}

/// The object as the requested version shows it: no conversion, only its name.
pub fn versioned(object: &Value, target: &Target) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = target.kind.api_version().into();
    object["kind"] = target.kind.kind.clone().into();
    object
}
