//! The Kubernetes objects of a text, each with its place in what the user wrote.
//!
//! Invariant: every document of the input that is not empty becomes an object, or an error that names it.

use std::collections::HashMap;
use std::fmt;

use serde_json::Value;

use crate::yaml::{self, YamlError};

/// Where an object was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// File, or what else it was read from.
    pub file: String,
    /// Number of the document in the file, from 1.
    pub document: usize,
    /// The line on which the document begins, from 1.
    pub line: usize,
    /// Number of the item, from 1, if the document is a list.
    pub item: Option<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {} (line {})", self.file, self.document, self.line)?;
        match self.item {
            Some(item) => write!(f, ", item {item}"),
            None => Ok(()),
        }
    }
}

/// An object as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The object.
    pub value: Value,
    /// Where it was written.
    pub place: Place,
}

/// What tells an object from others in a cluster. The version of its API does not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// API group; empty for the core group.
    pub group: String,
    pub kind: String,
    /// Namespace; empty for kinds that have none.
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if !self.group.is_empty() && !is_built_in(&self.group) {
            write!(f, ".{}", self.group)?;
        }
        match self.namespace.as_str() {
            "" => write!(f, " {}", self.name),
            namespace => write!(f, " {namespace}/{}", self.name),
        }
    }
}

/// Why manifests cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// The text is not YAML, or too complex.
    #[error("{file}: {error}")]
    Yaml {
        file: String,
        /// The error. Its text is part of this one's, so it is no `source`.
        error: YamlError,
    },
    /// A document is not a Kubernetes object.
    #[error("{place}: {reason}")]
    NotAnObject {
        /// Where it is.
        place: Box<Place>,
        /// What is missing.
        reason: String,
    },
    /// Two documents describe the same object differently.
    #[error("{address} is there twice with different content: in {first}, and in {second}")]
    Twice {
        /// The object.
        address: Box<Address>,
        /// Where it is first.
        first: Box<Place>,
        /// Where it is again.
        second: Box<Place>,
    },
}

impl ManifestError {
    /// Whether the text was refused because of its size and not because of an error in it.
    pub fn is_too_complex(&self) -> bool {
        matches!(self, Self::Yaml { error, .. } if error.is_too_complex())
    }
}

/// All objects of a text, in its order. A list becomes its items. `file` is the name of the text in messages.
///
/// # Errors
/// The text is not YAML, or a document is not a Kubernetes object.
pub fn read(file: &str, text: &str) -> Result<Vec<Manifest>, ManifestError> {
    let documents = yaml::documents(text).map_err(|error| ManifestError::Yaml { file: file.to_owned(), error })?;
    let mut manifests = Vec::new();
    for document in documents {
        let place = Place { file: file.to_owned(), document: document.number, line: document.line, item: None };
        take(document.value, place, &mut manifests)?;
    }
    Ok(manifests)
}

fn take(value: Value, place: Place, manifests: &mut Vec<Manifest>) -> Result<(), ManifestError> {
    if value.is_null() {
        return Ok(());
    }
    let refused = |reason: String| Err(ManifestError::NotAnObject { place: Box::new(place.clone()), reason });
    let Value::Object(mut fields) = value else { return refused("it is not a mapping".to_owned()) };
    let text = |fields: &serde_json::Map<String, Value>, name: &str| match fields.get(name) {
        Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
        _ => None,
    };
    let Some(kind) = text(&fields, "kind") else { return refused("it has no kind".to_owned()) };
    let Some(api_version) = text(&fields, "apiVersion") else { return refused(format!("the {kind} has no apiVersion")) };
    if let Some(item_kind) = kind.strip_suffix("List")
        && fields.get("items").is_some_and(Value::is_array)
    {
        let Some(Value::Array(items)) = fields.remove("items") else { return Ok(()) };
        for (at, mut item) in items.into_iter().enumerate() {
            // The items of a ConfigMapList need not repeat what they are.
            if let Some(fields) = item.as_object_mut().filter(|fields| !item_kind.is_empty() && !fields.contains_key("kind")) {
                fields.insert("kind".into(), item_kind.into());
                fields.entry("apiVersion").or_insert_with(|| api_version.clone().into());
            }
            take(item, Place { item: Some(at + 1), ..place.clone() }, manifests)?;
        }
        return Ok(());
    }
    let metadata = |field: &str| fields.get("metadata").and_then(|metadata| metadata.get(field));
    for field in ["name", "generateName", "namespace"] {
        if let Some(what) = metadata(field).and_then(what_else_than_text) {
            return refused(format!("metadata.{field} of the {kind} is {what}, not a text"));
        }
    }
    let named = |field: &str| metadata(field).and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    if !named("name") && !named("generateName") {
        return refused(format!("the {kind} has no metadata.name"));
    }
    manifests.push(Manifest { value: Value::Object(fields), place });
    Ok(())
}

/// What a value is that is to be a text and is none, as a reader of the manifest has to know it.
fn what_else_than_text(value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::String(_) => None,
        Value::Bool(value) => Some(format!(
            "the boolean {value} (to Kubernetes, which reads YAML 1.1, y, yes, on, n, no and off are booleans unless they are quoted)"
        )),
        Value::Number(number) => Some(format!("the number {number} (quote it)")),
        Value::Array(_) => Some("a list".to_owned()),
        Value::Object(_) => Some("a mapping".to_owned()),
    }
}

/// Gives every object its name (see [`name_generated`]), and drops objects that are there again with equal content. `namespace` is that
/// of objects that name none.
///
/// # Errors
/// Two objects have the same address and different content.
pub fn settle(manifests: Vec<Manifest>, namespace: &str) -> Result<Vec<Manifest>, ManifestError> {
    let mut settled: Vec<Manifest> = Vec::with_capacity(manifests.len());
    let mut known: HashMap<Address, usize> = HashMap::new();
    let mut generated: HashMap<String, usize> = HashMap::new();
    for mut manifest in manifests {
        name_generated(&mut manifest.value, &mut generated);
        let address = address(&manifest.value, namespace);
        match known.get(&address).and_then(|at| settled.get(*at)) {
            Some(first) if first.value == manifest.value => {}
            Some(first) => {
                let (address, first, second) = (Box::new(address), Box::new(first.place.clone()), Box::new(manifest.place));
                return Err(ManifestError::Twice { address, first, second });
            }
            None => {
                known.insert(address, settled.len());
                settled.push(manifest);
            }
        }
    }
    Ok(settled)
}

/// The name of an object that has only `generateName`: the prefix and five characters that depend on the content. The same manifest
/// always gets the same name, so that Drover finds the object again; a changed one gets a new name, as with `kubectl create`.
fn name_generated(value: &mut Value, generated: &mut HashMap<String, usize>) {
    let metadata = &value["metadata"];
    let text = |name: &str| metadata[name].as_str().filter(|text| !text.is_empty());
    let (None, Some(prefix)) = (text("name"), text("generateName")) else { return };
    let content = serde_json::to_string(&sorted(value)).unwrap_or_default();
    let again = generated.entry(content.clone()).or_default();
    *again += 1;
    // FNV-1a: the name has to be the same in every version of Drover and on every machine.
    let hash = content
        .bytes()
        .chain(again.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let suffix: String = (0..5_u32).map(|at| char::from(LETTERS[(hash / 27_u64.pow(at) % 27) as usize])).collect();
    let most = 63_usize.saturating_sub(suffix.len());
    let prefix: String = prefix.chars().take(most).collect();
    value["metadata"]["name"] = format!("{prefix}{suffix}").into();
}

/// The value with sorted keys, whatever the order of serde_json's maps is.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort_unstable();
            Value::Object(keys.into_iter().map(|key| (key.clone(), sorted(&fields[key]))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        scalar => scalar.clone(),
    }
}

/// The address of an object. `namespace` is used if the object names none; kinds that are known to have no namespace get none.
pub fn address(value: &Value, namespace: &str) -> Address {
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let group = text("/apiVersion").rsplit_once('/').map_or_else(String::new, |(group, _)| group.to_owned());
    let kind = text("/kind");
    let own = text("/metadata/namespace");
    let namespace = match (is_cluster_scoped(&group, &kind), own.is_empty()) {
        (true, _) => String::new(),
        (false, true) => namespace.to_owned(),
        (false, false) => own,
    };
    Address { group, kind, namespace, name: text("/metadata/name") }
}

/// Whether objects of this kind have no namespace. Only kinds of Kubernetes itself are known.
pub fn is_cluster_scoped(group: &str, kind: &str) -> bool {
    match group {
        "" => matches!(kind, "Namespace" | "Node" | "PersistentVolume" | "ComponentStatus"),
        "rbac.authorization.k8s.io" => matches!(kind, "ClusterRole" | "ClusterRoleBinding"),
        "apiextensions.k8s.io"
        | "apiregistration.k8s.io"
        | "admissionregistration.k8s.io"
        | "scheduling.k8s.io"
        | "node.k8s.io"
        | "flowcontrol.apiserver.k8s.io"
        | "certificates.k8s.io" => true,
        "storage.k8s.io" => kind != "CSIStorageCapacity",
        "networking.k8s.io" => matches!(kind, "IngressClass" | "IPAddress" | "ServiceCIDR"),
        "policy" => kind == "PodSecurityPolicy",
        "resource.k8s.io" => matches!(kind, "DeviceClass" | "ResourceSlice"),
        "snapshot.storage.k8s.io" => kind != "VolumeSnapshot",
        _ => false,
    }
}

fn is_built_in(group: &str) -> bool {
    !group.contains('.') || group.ends_with(".k8s.io")
}
