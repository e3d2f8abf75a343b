//! How lists and maps of the built-in kinds merge: by key, as a set, or as a whole.
//!
//! A real server knows this from its OpenAPI schemas. Here it follows from the names of a field and of the field around
//! it, which is unambiguous for the kinds served; lists and maps of custom kinds are atomic lists and granular maps.

use serde_json::{Map, Value};

/// What a list is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ListShape {
    /// One value: replaced as a whole.
    Atomic,
    /// Values without order.
    Set,
    /// Objects told apart by these fields.
    Keyed(&'static [&'static str]),
}

/// The shape of the list in `field`, whose surrounding object sits in `parent`.
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

/// Maps that are one value.
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

/// The key of a list item; a missing protocol is TCP, as the schema's default says.
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
