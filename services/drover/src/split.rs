//! Splits unmodified manifests into apps: one per workload, with the objects that belong to it. No I/O.
//!
//! Objects belong to a workload when its pods refer to them (ConfigMap, Secret, ServiceAccount, PVC), when they select
//! its pods (Service, PodDisruptionBudget, NetworkPolicy), or when they refer to it or to what it has (HPA, Ingress,
//! RoleBinding). Workloads that share an object are one app, because an object has one owner. Objects that belong to no workload go
//! to the first app.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Deserialize;
use serde_json::Value;

/// One app made of manifests.
#[derive(Clone, Debug, PartialEq)]
pub struct App {
    /// Name of its first workload.
    pub name: String,
    /// Its objects, in the order given.
    pub objects: Vec<Value>,
}

/// Why manifests cannot be split.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// Not YAML.
    #[error("document {index} is not valid YAML: {reason}")]
    NotYaml {
        /// Number of the document, from 1.
        index: usize,
        /// The parser's message.
        reason: String,
    },
    /// No `kind` or `metadata.name`.
    #[error("document {index} is no Kubernetes object: it has no {missing}")]
    NotAnObject {
        /// Number of the document, from 1.
        index: usize,
        /// The missing field.
        missing: &'static str,
    },
    /// None of the objects runs pods.
    #[error("there is no workload (Deployment, StatefulSet, DaemonSet, Job, Pod, …) in these manifests")]
    NoWorkload,
}

const WORKLOADS: [&str; 8] = ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob", "Pod"];

/// Parses YAML documents into objects; a `List` becomes its items.
///
/// # Errors
/// A document is not YAML or not a Kubernetes object.
pub fn parse(text: &str) -> Result<Vec<Value>, SplitError> {
    let mut objects = Vec::new();
    for (at, document) in serde_yaml::Deserializer::from_str(text).enumerate() {
        let index = at + 1;
        let value = Value::deserialize(document).map_err(|e| SplitError::NotYaml { index, reason: e.to_string() })?;
        match value {
            Value::Null => {}
            list if kind(&list) == "List" => objects.extend(list["items"].as_array().into_iter().flatten().cloned()),
            object if kind(&object).is_empty() => return Err(SplitError::NotAnObject { index, missing: "kind" }),
            object if name(&object).is_empty() => return Err(SplitError::NotAnObject { index, missing: "metadata.name" }),
            object => objects.push(object),
        }
    }
    Ok(objects)
}

/// Splits objects into apps.
///
/// # Errors
/// There is no workload among them.
pub fn split(objects: Vec<Value>) -> Result<Vec<App>, SplitError> {
    let workloads: Vec<usize> = (0..objects.len()).filter(|i| WORKLOADS.contains(&kind(&objects[*i]))).collect();
    let Some(&first) = workloads.first() else { return Err(SplitError::NoWorkload) };
    let mut groups = Groups::new(objects.len());
    let by_name: HashMap<(&str, &str), usize> = objects.iter().enumerate().map(|(i, o)| ((kind(o), name(o)), i)).collect();

    for &workload in &workloads {
        for (wanted_kind, wanted_name) in pod_references(pod_spec(&objects[workload])) {
            if let Some(&other) = by_name.get(&(wanted_kind, wanted_name.as_str())) {
                groups.join(workload, other);
            }
        }
        let labels = pod_labels(&objects[workload]);
        for (other, object) in objects.iter().enumerate() {
            if selector(object).is_some_and(|wanted| !wanted.is_empty() && wanted.iter().all(|(k, v)| labels.get(k) == Some(v))) {
                groups.join(workload, other);
            }
        }
    }
    // Objects join what they refer to by kind and name; twice, for chains (Ingress -> Service -> Deployment).
    for _ in 0..2 {
        for (at, object) in objects.iter().enumerate() {
            for (wanted_kind, wanted_name) in outward_references(object) {
                if let Some(&other) = by_name.get(&(wanted_kind.as_str(), wanted_name.as_str())) {
                    groups.join(other, at);
                }
            }
        }
    }
    let homes: BTreeSet<usize> = workloads.iter().map(|&w| groups.root(w)).collect();
    let mut apps: BTreeMap<usize, App> = BTreeMap::new();
    let home_of: Vec<usize> =
        (0..objects.len()).map(|i| groups.root(i)).map(|root| if homes.contains(&root) { root } else { groups.root(first) }).collect();
    let mut order: Vec<usize> = Vec::new();
    for &workload in &workloads {
        let root = home_of[workload];
        apps.entry(root).or_insert_with(|| {
            order.push(root);
            App { name: name(&objects[workload]).to_owned(), objects: Vec::new() }
        });
    }
    for (object, home) in objects.into_iter().zip(home_of) {
        if let Some(app) = apps.get_mut(&home) {
            app.objects.push(object);
        }
    }
    Ok(order.into_iter().filter_map(|root| apps.remove(&root)).collect())
}

fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn pod_template(object: &Value) -> &Value {
    match kind(object) {
        "Pod" => object,
        "CronJob" => &object["spec"]["jobTemplate"]["spec"]["template"],
        _ => &object["spec"]["template"],
    }
}

fn pod_spec(object: &Value) -> &Value {
    &pod_template(object)["spec"]
}

fn string_map(value: &Value) -> BTreeMap<String, String> {
    value.as_object().into_iter().flatten().filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect()
}

fn pod_labels(object: &Value) -> BTreeMap<String, String> {
    string_map(&pod_template(object)["metadata"]["labels"])
}

/// Labels of the pods that an object selects, for the kinds that select pods.
fn selector(object: &Value) -> Option<BTreeMap<String, String>> {
    match kind(object) {
        "Service" => Some(string_map(&object["spec"]["selector"])),
        "PodDisruptionBudget" => Some(string_map(&object["spec"]["selector"]["matchLabels"])),
        "NetworkPolicy" => Some(string_map(&object["spec"]["podSelector"]["matchLabels"])),
        _ => None,
    }
}

fn pod_references(spec: &Value) -> Vec<(&'static str, String)> {
    const FIELDS: [(&str, &str, &str); 7] = [
        ("configMap", "name", "ConfigMap"),
        ("configMapRef", "name", "ConfigMap"),
        ("configMapKeyRef", "name", "ConfigMap"),
        ("secret", "secretName", "Secret"),
        ("secretRef", "name", "Secret"),
        ("secretKeyRef", "name", "Secret"),
        ("persistentVolumeClaim", "claimName", "PersistentVolumeClaim"),
    ];
    let mut found = Vec::new();
    walk(spec, &mut |key, value| {
        for (field, inner, kind) in FIELDS {
            if key == field
                && let Some(name) = value[inner].as_str()
            {
                found.push((kind, name.to_owned()));
            }
        }
        if key == "serviceAccountName"
            && let Some(name) = value.as_str()
        {
            found.push(("ServiceAccount", name.to_owned()));
        }
    });
    found
}

fn outward_references(object: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut refer = |value: &Value| {
        if let (Some(kind), Some(name)) = (value["kind"].as_str(), value["name"].as_str()) {
            found.push((kind.to_owned(), name.to_owned()));
        }
    };
    match kind(object) {
        "HorizontalPodAutoscaler" => refer(&object["spec"]["scaleTargetRef"]),
        "RoleBinding" | "ClusterRoleBinding" => {
            refer(&object["roleRef"]);
            object["subjects"].as_array().into_iter().flatten().for_each(refer);
        }
        "Ingress" => walk(&object["spec"], &mut |key, value| {
            if key == "service"
                && let Some(name) = value["name"].as_str()
            {
                found.push(("Service".into(), name.to_owned()));
            }
        }),
        _ => {}
    }
    found
}

fn walk(value: &Value, visit: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                visit(key, inner);
                walk(inner, visit);
            }
        }
        Value::Array(list) => list.iter().for_each(|inner| walk(inner, visit)),
        _ => {}
    }
}

/// Union-find over object indices.
struct Groups(Vec<usize>);

impl Groups {
    fn new(n: usize) -> Self {
        Self((0..n).collect())
    }
    fn root(&self, mut at: usize) -> usize {
        while self.0[at] != at {
            at = self.0[at];
        }
        at
    }
    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.0[a.max(b)] = a.min(b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOP: &str = r"
apiVersion: v1
kind: ConfigMap
metadata: {name: cart-config}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cart}
spec:
  template:
    metadata: {labels: {app: cart}}
    spec:
      containers: [{name: c, image: i, envFrom: [{configMapRef: {name: cart-config}}]}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: catalogue}
spec:
  template:
    metadata: {labels: {app: catalogue}}
    spec: {containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Service
metadata: {name: catalogue}
spec: {selector: {app: catalogue}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: front}
spec: {rules: [{http: {paths: [{backend: {service: {name: catalogue}}}]}}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: unused}
";

    fn names(app: &App) -> Vec<String> {
        app.objects.iter().map(|o| format!("{}/{}", kind(o), name(o))).collect()
    }

    #[test]
    fn split_makes_one_app_per_workload_with_its_objects() {
        let apps = split(parse(SHOP).unwrap()).unwrap();
        assert_eq!(apps.iter().map(|a| a.name.as_str()).collect::<Vec<_>>(), ["cart", "catalogue"]);
        assert_eq!(names(&apps[0]), ["ConfigMap/cart-config", "Deployment/cart", "ConfigMap/unused"]);
        assert_eq!(names(&apps[1]), ["Deployment/catalogue", "Service/catalogue", "Ingress/front"]);
    }

    #[test]
    fn split_joins_workloads_that_share_an_object() {
        let shared = SHOP.replace("{containers: [{name: c, image: i}]}", "{serviceAccountName: x, containers: []}")
            + "---\nkind: ServiceAccount\nmetadata: {name: x}\n---\nkind: Pod\nmetadata: {name: p}\nspec: {serviceAccountName: x}\n";
        let apps = split(parse(&shared).unwrap()).unwrap();
        assert_eq!(apps.len(), 2);
        assert!(names(&apps[1]).contains(&"Pod/p".to_owned()));
    }

    #[test]
    fn parse_errors_name_the_document() {
        assert_eq!(
            parse("kind: Pod\nmetadata: {name: a}\n---\nkind: Pod\n"),
            Err(SplitError::NotAnObject { index: 2, missing: "metadata.name" })
        );
        assert!(matches!(parse("a: [\n"), Err(SplitError::NotYaml { index: 1, .. })));
        assert_eq!(split(parse("kind: ConfigMap\nmetadata: {name: a}\n").unwrap()), Err(SplitError::NoWorkload));
    }
}
