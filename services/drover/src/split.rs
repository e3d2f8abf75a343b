//! Splits unmodified manifests into apps: one per workload, with the objects that belong to it. No I/O.
//!
//! Objects belong to a workload when its pods refer to them (ConfigMap, Secret, ServiceAccount, PVC), when they select
//! its pods (Service, PodDisruptionBudget, NetworkPolicy), or when they refer to it or to what it has (HPA, Ingress,
//! RoleBinding). Workloads that share an object are one app, because an object has one owner; so are workloads in a namespace that the
//! manifests bring. Objects that belong to no workload go to the first app.
//!
//! Invariant: every object is in exactly one app, and no two apps have the same name.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use drover_manifest::callers::{self, WORKLOADS, is_workload};
use drover_manifest::{Manifest, objects};
use serde_json::Value;

/// One app made of manifests.
#[derive(Clone, Debug, PartialEq)]
pub struct App {
    /// Name of its first workload; unique.
    pub name: String,
    /// Its objects, in the order given.
    pub manifests: Vec<Manifest>,
}

/// None of the objects runs pods.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no workload (Deployment, StatefulSet, DaemonSet, Job, Pod, …) in these manifests, so they cannot be split")]
pub struct NoWorkload;

/// Splits objects into apps. `namespace` is that of objects that name none.
///
/// # Errors
/// There is no workload among them.
pub fn split(manifests: Vec<Manifest>, namespace: &str) -> Result<Vec<App>, NoWorkload> {
    let objects: Vec<&Value> = manifests.iter().map(|manifest| &manifest.value).collect();
    let workloads: Vec<usize> = (0..objects.len()).filter(|i| is_workload(objects[*i])).collect();
    let Some(&first) = workloads.first() else { return Err(NoWorkload) };
    let homes: Vec<String> = objects.iter().map(|object| objects::address(object, namespace).namespace).collect();
    let mut groups = Groups::new(objects.len());
    let by_name: HashMap<(&str, &str, &str), usize> =
        objects.iter().enumerate().map(|(i, o)| ((kind(o), homes[i].as_str(), name(o)), i)).collect();
    let find = |kind: &str, home: &str, name: &str| by_name.get(&(kind, home, name)).or_else(|| by_name.get(&(kind, "", name))).copied();

    for &workload in &workloads {
        let home = homes[workload].as_str();
        for (wanted_kind, wanted_name) in pod_references(pod_spec(objects[workload])) {
            if let Some(other) = find(wanted_kind, home, &wanted_name) {
                groups.join(workload, other);
            }
        }
        if let Some(&brought) = by_name.get(&("Namespace", "", home)) {
            groups.join(workload, brought);
        }
        let labels = pod_labels(objects[workload]);
        for (other, object) in objects.iter().enumerate().filter(|(other, _)| homes[*other] == home) {
            if selector(object).is_some_and(|wanted| !wanted.is_empty() && wanted.iter().all(|(k, v)| labels.get(k) == Some(v))) {
                groups.join(workload, other);
            }
        }
    }
    // Objects join what they refer to by kind and name; twice, for chains (Ingress -> Service -> Deployment).
    for _ in 0..2 {
        for (at, object) in objects.iter().enumerate() {
            for (wanted_kind, wanted_home, wanted_name) in outward_references(object) {
                let home = wanted_home.as_deref().unwrap_or(&homes[at]);
                if let Some(other) = find(&wanted_kind, home, &wanted_name) {
                    groups.join(other, at);
                }
            }
        }
    }
    let roots: BTreeSet<usize> = workloads.iter().map(|&w| groups.root(w)).collect();
    let home_of: Vec<usize> =
        (0..objects.len()).map(|i| groups.root(i)).map(|root| if roots.contains(&root) { root } else { groups.root(first) }).collect();
    let mut order: Vec<(usize, usize)> = Vec::new();
    for &workload in &workloads {
        if !order.iter().any(|(root, _)| *root == home_of[workload]) {
            order.push((home_of[workload], workload));
        }
    }
    let named = names(&order.iter().map(|(_, workload)| (objects[*workload], homes[*workload].as_str())).collect::<Vec<_>>());
    let mut apps: BTreeMap<usize, App> =
        order.iter().zip(named).map(|((root, _), name)| (*root, App { name, manifests: Vec::new() })).collect();
    for (manifest, home) in manifests.into_iter().zip(home_of) {
        if let Some(app) = apps.get_mut(&home) {
            app.manifests.push(manifest);
        }
    }
    Ok(order.into_iter().filter_map(|(root, _)| apps.remove(&root)).collect())
}

/// A name for the app of each of these workloads. Of two workloads of one name, the kind that comes first in [`WORKLOADS`] has the plain
/// name, whatever the order of the files, so that an update does not exchange two apps.
fn names(workloads: &[(&Value, &str)]) -> Vec<String> {
    // A label has at most 63 characters, and the longest suffix below has about 40.
    let short = |text: &str| text.chars().take(63).collect::<String>().trim_end_matches(['-', '.', '_']).to_owned();
    let rank = |at: usize| {
        let (object, home) = workloads[at];
        (WORKLOADS.iter().position(|known| *known == kind(object)), home != "default", home.to_owned())
    };
    let mut by_rank: Vec<usize> = (0..workloads.len()).collect();
    by_rank.sort_by_key(|at| rank(*at));
    let (mut taken, mut named) = (BTreeSet::new(), vec![String::new(); workloads.len()]);
    for at in by_rank {
        let (object, home) = workloads[at];
        let plain = short(name(object));
        let base: String = plain.chars().take(40).collect();
        let kind = kind(object).to_lowercase();
        let candidates =
            [plain.clone(), short(&format!("{base}-{kind}")), short(&format!("{base}-{home}")), short(&format!("{base}-{kind}-{home}"))];
        let counted = (2..).map(|n| format!("{base}-{n}"));
        let free = candidates.into_iter().chain(counted).find(|candidate| !taken.contains(candidate)).unwrap_or(plain);
        taken.insert(free.clone());
        named[at] = free;
    }
    named
}

/// For each app the Services of other apps that its pods name, with the app that has the Service.
pub fn needs(apps: &[App], namespace: &str) -> Vec<(String, Vec<(String, String)>)> {
    let services = |app: &App| -> Vec<String> {
        let services = app.manifests.iter().map(|manifest| &manifest.value).filter(|object| kind(object) == "Service");
        services.map(|object| format!("{}/{}", objects::address(object, namespace).namespace, name(object))).collect()
    };
    let mut found = Vec::new();
    for app in apps {
        let mut needed = Vec::new();
        for other in apps.iter().filter(|other| other.name != app.name) {
            let services = services(other);
            let called = callers::called(app.manifests.iter().map(|manifest| &manifest.value), namespace, &services);
            let name = |service: &str| service.split_once('/').map_or(service, |(_, name)| name).to_owned();
            needed.extend(called.into_iter().map(|service| (name(service), other.name.clone())));
        }
        if !needed.is_empty() {
            found.push((app.name.clone(), needed));
        }
    }
    found
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

/// Kind and name of what pods refer to in their own namespace.
fn pod_references(spec: &Value) -> Vec<(&'static str, String)> {
    const FIELDS: [(&str, &str, &str); 8] = [
        ("configMap", "name", "ConfigMap"),
        ("configMapRef", "name", "ConfigMap"),
        ("configMapKeyRef", "name", "ConfigMap"),
        ("secret", "secretName", "Secret"),
        ("secret", "name", "Secret"), // in a projected volume
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
        if key == "imagePullSecrets" {
            found.extend(names_in(value).map(|name| ("Secret", name)));
        }
    });
    found
}

/// The names in a list of references.
fn names_in(list: &Value) -> impl Iterator<Item = String> {
    list.as_array().into_iter().flatten().filter_map(|reference| Some(reference["name"].as_str()?.to_owned()))
}

/// Kind, namespace (none: the same) and name of what an object refers to.
fn outward_references(object: &Value) -> Vec<(String, Option<String>, String)> {
    let mut found = Vec::new();
    let mut refer = |value: &Value| {
        if let (Some(kind), Some(name)) = (value["kind"].as_str(), value["name"].as_str()) {
            found.push((kind.to_owned(), value["namespace"].as_str().map(str::to_owned), name.to_owned()));
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
                found.push(("Service".into(), None, name.to_owned()));
            }
            if key == "secretName"
                && let Some(name) = value.as_str()
            {
                found.push(("Secret".into(), None, name.to_owned()));
            }
        }),
        "ServiceAccount" => found.extend(names_in(&object["imagePullSecrets"]).map(|name| ("Secret".into(), None, name))),
        _ => {}
    }
    found
}

/// Visits each key and its value, at every depth.
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

    fn parse(text: &str) -> Vec<Manifest> {
        objects::read("test", text).unwrap()
    }

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
        app.manifests.iter().map(|m| format!("{}/{}", kind(&m.value), name(&m.value))).collect()
    }

    #[test]
    fn split_makes_one_app_per_workload_with_its_objects() {
        let apps = split(parse(SHOP), "default").unwrap();
        assert_eq!(apps.iter().map(|a| a.name.as_str()).collect::<Vec<_>>(), ["cart", "catalogue"]);
        assert_eq!(names(&apps[0]), ["ConfigMap/cart-config", "Deployment/cart", "ConfigMap/unused"]);
        assert_eq!(names(&apps[1]), ["Deployment/catalogue", "Service/catalogue", "Ingress/front"]);
    }

    #[test]
    fn split_joins_workloads_that_share_an_object() {
        let shared = SHOP.replace("{containers: [{name: c, image: i}]}", "{serviceAccountName: x, containers: []}")
            + "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: x}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {serviceAccountName: x}\n";
        let apps = split(parse(&shared), "default").unwrap();
        assert_eq!(apps.len(), 2);
        assert!(names(&apps[1]).contains(&"Pod/p".to_owned()));
    }

    #[test]
    fn split_gives_secrets_to_the_workloads_that_pull_mount_or_serve_with_them() {
        let secret = |name: &str| format!("---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\n");
        let needs =
            "{imagePullSecrets: [{name: pull}], volumes: [{name: v, projected: {sources: [{secret: {name: mounted}}]}}], containers: []}";
        let tls = SHOP.replace("spec: {rules:", "spec: {tls: [{secretName: served}], rules:");
        let text = tls.replace("{containers: [{name: c, image: i}]}", needs) + &["pull", "mounted", "served"].map(secret).concat();
        let apps = split(parse(&text), "default").unwrap();
        assert_eq!(
            names(&apps[1]),
            ["Deployment/catalogue", "Service/catalogue", "Ingress/front", "Secret/pull", "Secret/mounted", "Secret/served"]
        );
    }

    #[test]
    fn split_refuses_manifests_without_a_workload() {
        assert_eq!(split(parse("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"), "default"), Err(NoWorkload));
    }

    #[test]
    fn split_gives_workloads_of_one_name_names_that_do_not_depend_on_the_order() {
        let object = |api: &str, kind: &str, meta: &str| format!("---\napiVersion: {api}\nkind: {kind}\nmetadata: {{name: web{meta}}}\n");
        let documents = [
            object("batch/v1", "CronJob", ""),
            object("apps/v1", "Deployment", ""),
            object("apps/v1", "Deployment", ", namespace: blue"),
            object("v1", "Service", ""),
            object("v1", "Service", ", namespace: blue"),
        ];
        let apps = split(parse(&documents.concat()), "default").unwrap();
        let names = |apps: &[App]| apps.iter().map(|app| app.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&apps), ["web-cronjob", "web", "web-deployment"]);
        let mut turned: Vec<String> = documents.to_vec();
        turned.reverse();
        let mut again = names(&split(parse(&turned.concat()), "default").unwrap());
        again.reverse();
        assert_eq!(again, ["web-cronjob", "web", "web-deployment"]);
    }

    #[test]
    fn split_keeps_workloads_of_a_namespace_that_the_input_brings_together() {
        let text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: blue}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: blue}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: b, namespace: blue}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: c}\n";
        let apps = split(parse(text), "default").unwrap();
        assert_eq!(apps.iter().map(|app| app.manifests.len()).collect::<Vec<_>>(), [3, 1]);
    }

    #[test]
    fn needs_names_the_services_of_other_apps_that_pods_call() {
        let calling = SHOP
            .replace("envFrom:", "env: [{name: CATALOGUE, value: 'http://catalogue:80/x'}, {name: OTHER, value: my-catalogue}], envFrom:");
        let apps = split(parse(&calling), "default").unwrap();
        assert_eq!(needs(&apps, "default"), [("cart".to_owned(), vec![("catalogue".to_owned(), "catalogue".to_owned())])]);
        let far = SHOP.replace("envFrom:", "env: [{name: C, value: catalogue.default.svc.cluster.local}], envFrom:");
        assert_eq!(needs(&split(parse(&far), "default").unwrap(), "default").len(), 1);
        let other = SHOP.replace("envFrom:", "env: [{name: C, value: catalogue.example.org}], envFrom:");
        assert!(needs(&split(parse(&other), "default").unwrap(), "default").is_empty());
    }

    proptest::proptest! {
        #[test]
        fn split_loses_no_object_and_names_every_app_differently(
            parts in proptest::collection::vec((0..12_usize, 0..4_usize, 0..3_usize, 0..4_usize), 1..30),
        ) {
            let kinds = ["Deployment", "CronJob", "Pod", "Service", "ConfigMap", "Secret", "ServiceAccount", "Ingress", "RoleBinding", "ClusterRole", "Namespace", "Thing"];
            let manifests: Vec<Manifest> = parts.iter().map(|(kind, name, namespace, other)| {
                let pod = serde_json::json!({"metadata": {"labels": {"app": other}}, "spec": {"serviceAccountName": format!("n{other}"), "containers": [{"envFrom": [{"configMapRef": {"name": format!("n{name}")}}]}]}});
                let value = serde_json::json!({
                    "apiVersion": "v1", "kind": kinds[*kind], "metadata": {"name": format!("n{name}"), "namespace": format!("ns{namespace}")},
                    "spec": {"template": pod, "selector": {"app": other}, "jobTemplate": {"spec": {"template": pod}}},
                });
                Manifest { value, place: drover_manifest::Place::default() }
            }).collect();
            let manifests: Vec<Manifest> = {
                let mut seen = BTreeSet::new();
                manifests.into_iter().filter(|m| seen.insert(objects::address(&m.value, "default"))).collect()
            };
            match split(manifests.clone(), "default") {
                Err(NoWorkload) => proptest::prop_assert!(!manifests.iter().any(|m| is_workload(&m.value))),
                Ok(apps) => {
                    let shown = |m: &Manifest| m.value.to_string();
                    let mut before: Vec<String> = manifests.iter().map(shown).collect();
                    let mut after: Vec<String> = apps.iter().flat_map(|app| app.manifests.iter().map(shown)).collect();
                    before.sort();
                    after.sort();
                    proptest::prop_assert_eq!(before, after);
                    let names: BTreeSet<&str> = apps.iter().map(|app| app.name.as_str()).collect();
                    proptest::prop_assert_eq!(names.len(), apps.len());
                }
            }
        }
    }
}
