//! How lists and maps of the built-in kinds merge: by key, as a set, or as a whole.
//!
//! A real server takes this from its OpenAPI schemas. Here it follows from the names of a field and of the field around
//! it, which is unambiguous for the served kinds. In custom kinds, lists are atomic and maps granular.

use serde_json::{Map, Value};

/// How a list is merged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ListShape {
    /// One value: replaced as a whole.
    Atomic,
    /// A set of values.
    Set,
    /// Objects with these fields as key.
    Keyed(&'static [&'static str]),
}

/// How the list in `field` is merged, if the object around it is in `parent`.
pub fn list_shape(field: &str, parent: &str, custom: bool) -> ListShape {
    match (field, parent) {
        ("ownerReferences", "metadata") => return ListShape::Keyed(&["uid"]),
        ("finalizers", "metadata") => return ListShape::Set,
        _ if custom => return ListShape::Atomic,
        _ => {}
    }
    match (field, parent) {
        (
            "containers"
            | "initContainers"
            | "ephemeralContainers"
            | "volumes"
            | "env"
            | "imagePullSecrets"
            | "schedulingGates"
            | "webhooks"
            | "secrets",
            _,
        ) => ListShape::Keyed(&["name"]),
        ("volumeMounts", _) => ListShape::Keyed(&["mountPath"]),
        ("volumeDevices", _) => ListShape::Keyed(&["devicePath"]),
        ("ports", "containers" | "initContainers") => ListShape::Keyed(&["containerPort", "protocol"]),
        ("ports", "spec") => ListShape::Keyed(&["port", "protocol"]),
        ("conditions" | "addresses", "status") => ListShape::Keyed(&["type"]),
        ("hostAliases", _) => ListShape::Keyed(&["ip"]),
        ("topologySpreadConstraints", _) => ListShape::Keyed(&["topologyKey", "whenUnsatisfiable"]),
        _ => ListShape::Atomic,
    }
}

/// Maps that are replaced as a whole.
pub fn atomic_map(field: &str, parent: &str, custom: bool) -> bool {
    !custom
        && matches!(
            (field, parent),
            (
                "selector"
                    | "labelSelector"
                    | "nodeSelector"
                    | "podSelector"
                    | "namespaceSelector"
                    | "fieldRef"
                    | "resourceFieldRef"
                    | "secretKeyRef"
                    | "configMapKeyRef"
                    | "scaleTargetRef"
                    | "roleRef"
                    | "objectRef",
                _
            ) | ("requiredDuringSchedulingIgnoredDuringExecution", "nodeAffinity")
        )
}

/// The key of a list item; a missing protocol is TCP, the default of the schema.
pub fn item_key(item: &Value, keys: &[&str]) -> Value {
    let mut key = Map::new();
    for name in keys {
        let value = match item.get(*name) {
            Some(value) => value.clone(),
            None if *name == "protocol" => "TCP".into(),
            None => continue,
        };
        key.insert((*name).into(), value);
    }
    Value::Object(key)
}
