//! Prepares the objects of a rendered bundle for a member.
//!
//! Pure: no member is asked. [`flatten`] checks what a bundle contains, [`Object::new`] marks one object as Drover's (labels,
//! namespace, digest), [`wave`] says which kinds must exist before others.
//!
//! Invariant: the digest of an object depends only on its desired content, so an equal digest means that nothing is to be done.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::labels::{self, Owner};
use crate::object_id::ObjectId;

/// Why a bundle cannot be applied to any member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("document {index}{}: {reason}", if kind.is_empty() { String::new() } else { format!(" ({kind})") })]
pub struct BundleError {
    /// Number of the document in the bundle, from 1.
    pub index: usize,
    /// Its kind; empty if it has none.
    pub kind: String,
    /// What is wrong.
    pub reason: String,
}

/// Replaces `List`s by their items, drops empty documents, and checks that each object has a valid address and occurs once.
///
/// # Errors
/// When a document is no object, lacks apiVersion, kind or name, has an invalid name, or occurs twice.
pub fn flatten(documents: &[Value]) -> Result<Vec<Value>, BundleError> {
    let mut flat = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, document) in documents.iter().enumerate() {
        let first = flat.len();
        take(document, &mut flat);
        for object in &flat[first..] {
            let kind = object["kind"].as_str().unwrap_or_default().to_owned();
            check(object, &mut seen).map_err(|reason| BundleError { index: index + 1, kind, reason })?;
        }
    }
    Ok(flat)
}

fn take(document: &Value, into: &mut Vec<Value>) {
    let kind = document["kind"].as_str().unwrap_or_default();
    match document["items"].as_array() {
        Some(items) if kind.ends_with("List") => items.iter().for_each(|item| take(item, into)),
        _ if document.is_null() => {}
        _ => into.push(document.clone()),
    }
}

fn check(object: &Value, seen: &mut BTreeSet<ObjectId>) -> Result<(), String> {
    if !object.is_object() {
        return Err("is not a mapping".into());
    }
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
    let api_version = text("/apiVersion").ok_or("has no apiVersion")?;
    let kind = text("/kind").ok_or("has no kind")?;
    if text("/metadata/generateName").is_some() && text("/metadata/name").is_none() {
        return Err("has generateName: Drover must know the name to find the object again".into());
    }
    let name = text("/metadata/name").ok_or("has no metadata.name")?;
    let namespace = text("/metadata/namespace").unwrap_or_default();
    for part in [api_version, kind, name, namespace].into_iter().filter(|part| !part.is_empty()) {
        // Each becomes part of a URL path. Kubernetes forbids these characters in names too.
        let segments = if part == api_version { 2 } else { 1 };
        let odd = part.contains(['%', '?', '#', ' ']) || part.split('/').count() > segments;
        if odd || part.split('/').any(|segment| matches!(segment, "." | ".." | "")) {
            return Err(format!("{part:?} is no valid name"));
        }
    }
    let [api_version, kind, namespace, name] = [api_version, kind, namespace, name].map(str::to_owned);
    let id = ObjectId { api_version, kind, namespace, name };
    if seen.contains(&id) {
        return Err(format!("{id} comes twice"));
    }
    seen.insert(id);
    Ok(())
}

/// Whether objects of this kind are namespaced, if a CRD among the objects defines the kind; `None` if there is no such CRD.
pub fn scope_by_crd(objects: &[Value], api_version: &str, kind: &str) -> Option<bool> {
    let (group, version) = api_version.split_once('/')?;
    let definition = objects.iter().find(|object| {
        let spec = &object["spec"];
        object["kind"] == "CustomResourceDefinition"
            && spec["group"] == group
            && spec["names"]["kind"] == kind
            && spec["versions"].as_array().is_some_and(|versions| versions.iter().any(|served| served["name"] == version))
    })?;
    Some(definition["spec"]["scope"] != "Cluster")
}

/// In which wave objects of a kind are applied: lower waves first. Objects are deleted in the opposite order.
pub fn wave(api_version: &str, kind: &str) -> u8 {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    match (group, kind) {
        ("", "Namespace") | ("apiextensions.k8s.io", "CustomResourceDefinition") => 0,
        ("scheduling.k8s.io" | "storage.k8s.io" | "node.k8s.io", _) | ("networking.k8s.io", "IngressClass") => 1,
        ("", "ServiceAccount" | "ResourceQuota" | "LimitRange")
        | ("rbac.authorization.k8s.io", _)
        | ("networking.k8s.io", "NetworkPolicy") => 2,
        ("", "ConfigMap" | "Secret" | "PersistentVolume" | "PersistentVolumeClaim") => 3,
        ("", "Service" | "Endpoints") | ("discovery.k8s.io", _) => 4,
        ("", "Pod" | "ReplicationController") | ("apps" | "batch", _) => 5,
        ("autoscaling" | "policy" | "networking.k8s.io" | "gateway.networking.k8s.io", _) => 6,
        // Other kinds may need operators, webhooks or extension servers that run by then.
        _ => 7,
    }
}

/// An object as Drover applies it.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Its address.
    pub id: Arc<ObjectId>,
    /// Digest of its desired content.
    pub digest: Arc<str>,
    /// The content that is sent to the member.
    pub value: Value,
}

impl Object {
    /// Whether it stays when its app no longer contains it: [`labels::keeps`].
    pub fn is_kept(&self) -> bool {
        let policy = self.value["metadata"]["annotations"][labels::RESOURCE_POLICY].as_str();
        policy.is_some_and(labels::keeps)
    }

    /// Marks a checked object (see [`flatten`]) as Drover's: sets the default namespace, the owner's labels (on pod templates
    /// too) and the digest, and removes the fields that the server or another owner sets.
    pub fn new(mut value: Value, namespaced: bool, namespace: &str, owner: &Owner) -> Self {
        let text = |value: &Value, pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let own = text(&value, "/metadata/namespace");
        let namespace = match (namespaced, own.is_empty()) {
            (false, _) => String::new(),
            (true, true) => namespace.to_owned(),
            (true, false) => own,
        };
        let id = ObjectId {
            api_version: text(&value, "/apiVersion"),
            kind: text(&value, "/kind"),
            namespace,
            name: text(&value, "/metadata/name"),
        };

        if let Some(fields) = value.as_object_mut() {
            fields.remove("status");
        }
        let metadata = mapping(&mut value, "metadata");
        for field in ["creationTimestamp", "deletionTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"] {
            metadata.remove(field);
        }
        metadata.remove("namespace");
        if !id.namespace.is_empty() {
            metadata.insert("namespace".into(), json!(id.namespace));
        }
        let replicas_owner = metadata.get("annotations").map_or(&Value::Null, |annotations| &annotations[labels::REPLICAS_OWNER]);
        let never_written = !replicas_owner.is_null() && *replicas_owner != labels::FIELD_MANAGER;
        if never_written && let Some(spec) = value["spec"].as_object_mut() {
            spec.remove("replicas");
        }
        // The digest of an object that apps may share must be equal in all of them, so it is taken before the labels are set.
        let shared = id.is_shareable().then(|| digest(&value));
        let pods_labels = labels_of_pods(&id, &value);
        label(&mut value, owner.labels());
        for pointer in ["/spec/template", "/spec/jobTemplate", "/spec/jobTemplate/spec/template"] {
            if has_pods(&id)
                && let Some(template) = value.pointer_mut(pointer).filter(|template| template.is_object())
            {
                let marks = owner.labels().into_iter().filter(|(name, _)| *name != labels::DIG);
                label(template, marks);
            }
        }
        let digest: Arc<str> = shared.unwrap_or_else(|| digest(&value)).into();
        // Not part of the digest: a Job that has ended would run again after an upgrade of Drover.
        let labels = mapping(&mut value["metadata"], "labels");
        for (name, of_pods) in pods_labels {
            labels.entry(name).or_insert(of_pods);
        }
        let metadata = value.get_mut("metadata").expect("was made above");
        mapping(metadata, "annotations").insert(labels::DIGEST.into(), json!(digest));
        Self { id: Arc::new(id), digest, value }
    }

    /// Whether this is a workload whose number of pods another field manager may choose (see [`labels::REPLICAS_OWNER`]).
    pub fn may_be_scaled(&self) -> bool {
        let scalable = matches!(
            (self.id.api_version.as_str(), self.id.kind.as_str()),
            ("apps/v1", "Deployment" | "StatefulSet" | "ReplicaSet") | ("v1", "ReplicationController")
        );
        let insists = self.value["metadata"]["annotations"][labels::REPLICAS_OWNER] == labels::FIELD_MANAGER;
        (scalable || self.value["spec"]["replicas"].is_number()) && !insists
    }

    /// The same object with another number of replicas; `None`: without the field. The digest stays that of the manifest.
    pub fn with_replicas(&self, replicas: Option<i32>) -> Self {
        let mut other = self.clone();
        let spec = mapping(&mut other.value, "spec");
        match replicas {
            Some(replicas) => spec.insert("replicas".into(), json!(replicas)),
            None => spec.remove("replicas"),
        };
        other
    }
}

impl Eq for Object {}

impl Ord for Object {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |object: &Self| (wave(&object.id.api_version, &object.id.kind), object.id.clone());
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Object {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn has_pods(id: &ObjectId) -> bool {
    matches!(id.group(), "apps" | "batch") || id.kind == "ReplicationController"
}

/// The labels that Kubernetes gives an object of these kinds that has none: those of its pods. It does not once Drover has added its own.
fn labels_of_pods(id: &ObjectId, value: &Value) -> Map<String, Value> {
    let inherits = matches!((id.api_version.as_str(), id.kind.as_str()), ("batch/v1", "Job") | ("v1", "ReplicationController"));
    let has_own = value["metadata"]["labels"].as_object().is_some_and(|labels| !labels.is_empty());
    let of_pods = value["spec"]["template"]["metadata"]["labels"].as_object().filter(|_| inherits && !has_own);
    of_pods.cloned().unwrap_or_default()
}

fn label(object: &mut Value, marks: impl IntoIterator<Item = (&'static str, String)>) {
    mapping(object, "metadata");
    let labels = mapping(&mut object["metadata"], "labels");
    for (name, value) in marks {
        labels.insert(name.into(), json!(value));
    }
}

/// The mapping under `field`; created if there is none.
fn mapping<'a>(value: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    if !value[field].is_object() {
        value[field] = json!({});
    }
    value[field].as_object_mut().expect("a mapping was put there above")
}

/// SHA-256 of a value in canonical form (keys sorted, no blanks), in hex.
pub fn digest(value: &Value) -> String {
    let mut text = String::new();
    canonical(value, &mut text);
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            // Sorted here, because the order of serde_json's maps depends on features that other crates turn on.
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort_unstable();
            out.push('{');
            for key in keys {
                out.push_str(&Value::String(key.clone()).to_string());
                out.push(':');
                canonical(&fields[key], out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn owner() -> Owner {
        Owner { hub: Uuid::from_u128(1), dig: Uuid::from_u128(2), app: "web".into(), binding: Uuid::from_u128(3) }
    }
    fn object(api_version: &str, kind: &str, name: &str) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}})
    }

    #[test]
    fn flatten_splits_lists_and_names_the_faulty_document() {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [object("v1", "Secret", "a"), object("v1", "Secret", "b")]});
        assert_eq!(flatten(&[Value::Null, list, object("v1", "ConfigMap", "a")]).unwrap().len(), 3);
        let fault = |documents: &[Value]| flatten(documents).unwrap_err().to_string();
        let config = object("v1", "ConfigMap", "a");
        assert_eq!(fault(&[config.clone(), config.clone()]), "document 2 (ConfigMap): ConfigMap/a comes twice");
        assert_eq!(fault(&[json!({"kind": "Pod"})]), "document 1 (Pod): has no apiVersion");
        assert_eq!(fault(&[json!([1])]), "document 1: is not a mapping");
        assert_eq!(fault(&[object("v1", "Pod", "../x")]), "document 1 (Pod): \"../x\" is no valid name");
        assert!(fault(&[json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "x"}})]).contains("generateName"));
    }

    #[test]
    fn object_gets_labels_namespace_and_digest() {
        let mut deployment = object("apps/v1", "Deployment", "web");
        deployment["metadata"]["uid"] = json!("u");
        deployment["metadata"]["labels"] = json!({"keep": "me"});
        deployment["spec"] = json!({"replicas": 3, "template": {"spec": {}}});
        deployment["status"] = json!({});
        let made = Object::new(deployment.clone(), true, "shop", &owner());
        assert_eq!(made.id.to_string(), "Deployment/shop/web");
        let metadata = &made.value["metadata"];
        assert_eq!((&metadata["uid"], &made.value["status"], &made.value["spec"]["replicas"]), (&Value::Null, &Value::Null, &json!(3)));
        assert_eq!((&metadata["labels"]["keep"], &metadata["labels"][labels::APP]), (&json!("me"), &json!("web")));
        assert_eq!(made.value["spec"]["template"]["metadata"]["labels"][labels::BINDING], json!(owner().binding));
        assert_eq!(metadata["annotations"][labels::DIGEST], json!(made.digest));

        deployment["metadata"]["annotations"] = json!({labels::REPLICAS_OWNER: "autoscaler"});
        let owned = Object::new(deployment.clone(), true, "shop", &owner());
        assert_eq!(owned.value["spec"]["replicas"], Value::Null);
        deployment["spec"]["replicas"] = json!(9);
        assert_eq!(Object::new(deployment, true, "shop", &owner()).digest, owned.digest);

        let cluster_wide = Object::new(object("v1", "Namespace", "x"), false, "shop", &owner());
        assert_eq!((cluster_wide.id.namespace.as_str(), &cluster_wide.value["metadata"]["namespace"]), ("", &Value::Null));
        let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": {"jobTemplate": {"spec": {"template": {}}}}});
        let cron = Object::new(cron, true, "shop", &owner());
        assert_eq!(cron.value["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"][labels::APP], json!("web"));
    }

    #[test]
    fn job_without_labels_gets_those_of_its_pods_as_from_kubernetes() {
        let mut job = object("batch/v1", "Job", "certs");
        // Whose object it is, Drover says, whatever the labels of the pods are.
        job["spec"] = json!({"template": {"metadata": {"labels": {"app": "certs", labels::BINDING: "another"}}, "spec": {}}});
        let made = |job: &Value| Object::new(job.clone(), true, "shop", &owner()).value["metadata"]["labels"].clone();
        assert_eq!((&made(&job)["app"], &made(&job)[labels::BINDING]), (&json!("certs"), &json!(owner().binding)));
        job["metadata"]["labels"] = json!({"own": "one"});
        assert_eq!((&made(&job)["app"], &made(&job)["own"]), (&Value::Null, &json!("one")));
        let mut deployment = object("apps/v1", "Deployment", "web");
        deployment["spec"] = job["spec"].clone();
        assert_eq!(made(&deployment)["app"], Value::Null, "of other kinds it does not");
    }

    #[test]
    fn objects_are_sorted_by_what_they_need() {
        let kinds = [
            ("example.com/v1", "Thing"),
            ("apps/v1", "Deployment"),
            ("policy/v1", "PodDisruptionBudget"),
            ("v1", "Service"),
            ("v1", "ConfigMap"),
            ("v1", "ServiceAccount"),
            ("storage.k8s.io/v1", "StorageClass"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ];
        let mut objects: Vec<Object> = kinds.iter().map(|(api, kind)| Object::new(object(api, kind, "x"), false, "", &owner())).collect();
        objects.sort();
        let order: Vec<&str> = objects.iter().map(|object| object.id.kind.as_str()).collect();
        let expected = [
            "CustomResourceDefinition",
            "StorageClass",
            "ServiceAccount",
            "ConfigMap",
            "Service",
            "Deployment",
            "PodDisruptionBudget",
            "Thing",
        ];
        assert_eq!(order, expected);
    }

    #[test]
    fn scope_by_crd_finds_the_kind_of_a_crd() {
        let mut crd = object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "things.example.com");
        crd["spec"] = json!({"group": "example.com", "scope": "Cluster", "names": {"kind": "Thing"}, "versions": [{"name": "v1"}]});
        assert_eq!(scope_by_crd(&[crd.clone()], "example.com/v1", "Thing"), Some(false));
        assert_eq!(scope_by_crd(&[crd.clone()], "example.com/v2", "Thing"), None);
        assert_eq!(scope_by_crd(&[crd], "v1", "Thing"), None);
    }

    #[test]
    fn digest_does_not_depend_on_the_order_of_keys() {
        let one: Value = serde_json::from_str(r#"{"a":{"x":1,"y":[1,2]},"b":null}"#).unwrap();
        let two: Value = serde_json::from_str(r#"{"b":null,"a":{"y":[1,2],"x":1}}"#).unwrap();
        assert_eq!(digest(&one), digest(&two));
        assert_ne!(digest(&one), digest(&json!({"a": {"x": 1, "y": [2, 1]}, "b": null})));
    }
}
