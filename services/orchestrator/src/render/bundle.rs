//! The rendered objects of an app: in one order, each once, named by the digest of what they say.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::prefer::{self, PreferredPeers};

/// What an app renders to.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    /// The objects, in canonical order.
    pub objects: Vec<Value>,
    /// `sha256:<hex>` of their canonical form.
    pub digest: String,
}

impl Rendered {
    /// Puts them in order; the same object twice, or none at all, is an error.
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

    /// The same with pods that would like to be on the node of `peers`.
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

/// Group, kind, namespace, name: what makes an object that object (its version does not).
fn identity(object: &Value) -> [String; 4] {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let group = text("/apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
    [group, text("/kind"), text("/metadata/namespace"), text("/metadata/name")].map(str::to_owned)
}

/// JSON with sorted keys, whatever order the map keeps.
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
