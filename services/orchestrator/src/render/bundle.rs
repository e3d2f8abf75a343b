//! The rendered objects of an app, in canonical order and without duplicates, with a digest of their content.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::prefer::{self, PreferredPeers};

/// A rendered app.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    /// The objects, in canonical order.
    pub objects: Vec<Value>,
    /// `sha256:<hex>` of their canonical form.
    pub digest: String,
}

impl Rendered {
    /// Sorts the objects and computes their digest.
    ///
    /// # Errors
    /// There are no objects, or one is there twice.
    pub fn of(mut objects: Vec<Value>) -> Result<Self, String> {
        if objects.is_empty() {
            return Err("it renders to no objects".to_owned());
        }
        objects.sort_by_cached_key(identity);
        let mut seen = BTreeSet::new();
        for object in &objects {
            let identity = identity(object);
            if !seen.insert(identity.clone()) {
                let [group, kind, namespace, name] = identity;
                return Err(format!("{kind} {namespace}{}{name} ({group}) is there twice", if namespace.is_empty() { "" } else { "/" }));
            }
        }
        Ok(Self { digest: digest(&objects), objects })
    }

    /// Adds preferences of the pods for the nodes of `peers`.
    pub fn preferring(mut self, peers: &PreferredPeers) -> Self {
        prefer::nodes(&mut self.objects, peers);
        Self { digest: digest(&self.objects), objects: self.objects }
    }
}

fn digest(objects: &[Value]) -> String {
    let mut text = String::new();
    canonical(&Value::Array(objects.to_vec()), &mut text);
    let mut digest = String::from("sha256:");
    for byte in Sha256::digest(text.as_bytes()) {
        write!(digest, "{byte:02x}").expect("writing to a string cannot fail");
    }
    digest
}

/// What identifies an object: group, kind, namespace and name, but not the version.
fn identity(object: &Value) -> [String; 4] {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let group = text("/apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
    [group, text("/kind"), text("/metadata/namespace"), text("/metadata/name")].map(str::to_owned)
}

/// JSON with sorted keys.
fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<_> = map.keys().collect();
            keys.sort_unstable();
            out.push('{');
            for (index, key) in keys.into_iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                out.push_str(&Value::String(key.clone()).to_string());
                out.push(':');
                canonical(&map[key], out);
            }
            out.push('}');
        }
        Value::Array(list) => {
            out.push('[');
            for (index, item) in list.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                canonical(item, out);
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}
