//! What kube-controller-manager does, as far as somebody looks at it. Each file is one controller: a function that is
//! given an object and brings what depends on it closer to what it says. Level-triggered: it may be called at any time.

mod daemonset;
mod deployment;
pub mod gc;
mod job;
mod namespace;
mod replicaset;
mod rollout;
mod small;
mod statefulset;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::cluster::State;
use crate::object::{self, condition, list, number, text};
use crate::store::Key;
use crate::{kinds, nodes, quota};

const IN_CHARGE: &[&str] = &[
    "customresourcedefinitions.apiextensions.k8s.io",
    "daemonsets.apps",
    "deployments.apps",
    "jobs.batch",
    "namespaces",
    "nodes",
    "persistentvolumeclaims",
    "poddisruptionbudgets.policy",
    "replicasets.apps",
    "resourcequotas",
    "statefulsets.apps",
];

/// Some controller looks at this kind.
pub fn in_charge(resource: &str) -> bool {
    IN_CHARGE.contains(&resource)
}

/// Looks at one object.
pub fn reconcile(state: &mut State, key: &Key) {
    let Some(object) = state.store.get(key) else { return };
    let deleting = object::deleting(&object);
    if deleting && list(&object, "/metadata/finalizers").iter().any(|f| f == "foregroundDeletion") {
        gc::foreground(state, key, &object);
        return;
    }
    match &*key.resource {
        "namespaces" => namespace::reconcile(state, key, &object),
        "nodes" => nodes::reconcile(state, key, &object),
        _ if deleting => {}
        "deployments.apps" => deployment::reconcile(state, key, &object),
        "replicasets.apps" => replicaset::reconcile(state, key, &object),
        "statefulsets.apps" => statefulset::reconcile(state, key, &object),
        "daemonsets.apps" => daemonset::reconcile(state, key, &object),
        "jobs.batch" => job::reconcile(state, key, &object),
        "resourcequotas" => quota::reconcile(state, key, &object),
        "persistentvolumeclaims" => small::bind_claim(state, key, &object),
        "customresourcedefinitions.apiextensions.k8s.io" => small::establish(state, key, &object),
        "poddisruptionbudgets.policy" => small::disruption(state, key, &object),
        _ => {}
    }
}

/// Who else must look when this object changed.
pub fn concerned(state: &mut State, key: &Key) {
    let others: &[&str] = match &*key.resource {
        "pods" => &["resourcequotas", "poddisruptionbudgets.policy"],
        "nodes" => &["daemonsets.apps"],
        _ => return,
    };
    for resource in others {
        let resource = Arc::from(*resource);
        let keys: Vec<Key> = state.store.keys(&resource, &key.namespace).cloned().collect();
        keys.into_iter().for_each(|key| state.enqueue(key));
    }
}

/// Serves the kinds of CustomResourceDefinitions, and clears out those of a definition that went.
pub fn definitions(state: &mut State, key: &Key, new: Option<&Value>) {
    if &*key.resource != "customresourcedefinitions.apiextensions.k8s.io" {
        return;
    }
    let wait = state.settings.controllers;
    let custom: Vec<_> = state
        .store
        .list(&key.resource, "")
        .filter(|(_, definition)| !wait || object::condition_is_true(definition, "Established"))
        .flat_map(|(_, definition)| kinds::of_definition(&definition))
        .collect();
    state.custom = custom;
    if new.is_none() {
        let gone: Vec<Key> = state.store.keys(&key.name, "").cloned().collect();
        gone.iter().for_each(|key| drop(state.remove(key)));
    }
}

/// Objects of a resource whose controller is `owner`.
fn owned(state: &State, owner: &Value, resource: &str) -> Vec<(Key, Arc<Value>)> {
    let uid = object::uid(owner);
    state
        .store
        .dependents(uid)
        .filter(|(key, _)| &*key.resource == resource)
        .filter(|(_, object)| list(object, "/metadata/ownerReferences").iter().any(|o| o["uid"] == uid && o["controller"] == true))
        .map(|(key, object)| (key.clone(), object.clone()))
        .collect()
}

/// Writes a status when it differs.
fn put_status(state: &mut State, key: &Key, old: &Value, status: Value) {
    if old.get("status") != Some(&status) {
        let mut new = old.clone();
        new["status"] = status;
        state.put(key.clone(), new);
    }
}

/// A pod of a template, still without name and owner.
fn pod_of(template: &Value) -> Value {
    let meta: Map<String, Value> = ["labels", "annotations", "finalizers"]
        .iter()
        .filter_map(|field| Some(((*field).to_string(), template["metadata"].get(*field)?.clone())))
        .collect();
    json!({"metadata": meta, "spec": template["spec"], "status": {"phase": "Pending"}})
}

/// Ready for long enough; else how long it still takes, when it is ready at all.
fn available(state: &State, pod: &Value, min_ready: i64) -> Result<(), Option<Duration>> {
    if !object::pod_ready(pod) {
        return Err(None);
    }
    if min_ready <= 0 {
        return Ok(());
    }
    let since: Option<jiff::Timestamp> = condition(pod, "Ready").and_then(|c| text(c, "/lastTransitionTime").parse().ok());
    let left = since.map_or(0, |since| since.as_second() + min_ready - state.clock.now().as_second());
    if left <= 0 { Ok(()) } else { Err(Some(Duration::from_secs(left.unsigned_abs()))) }
}

/// How many pods of an owner are what, with a revisit when one becomes available by time alone.
struct Count {
    replicas: i64,
    ready: i64,
    available: i64,
}

fn count<'a>(state: &mut State, key: &Key, pods: impl Iterator<Item = &'a Arc<Value>>, min_ready: i64) -> Count {
    let (mut count, mut soonest) = (Count { replicas: 0, ready: 0, available: 0 }, None::<Duration>);
    for pod in pods {
        count.replicas += 1;
        count.ready += i64::from(object::pod_ready(pod));
        match available(state, pod, min_ready) {
            Ok(()) => count.available += 1,
            Err(Some(left)) => soonest = Some(soonest.map_or(left, |s| s.min(left))),
            Err(None) => {}
        }
    }
    if let Some(left) = soonest {
        state.after(left, crate::timers::Timer::Revisit(key.clone()));
    }
    count
}

/// Ten characters that stand for a template.
fn template_hash(template: &Value) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    template.to_string().hash(&mut hasher);
    format!("{:010x}", hasher.finish() & 0xff_ffff_ffff)
}

/// `25%` or `3` of a total.
fn share(value: &Value, total: i64, round_up: bool) -> i64 {
    match value {
        Value::Number(number) => number.as_i64().unwrap_or(0),
        Value::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            let product = percent * total;
            if round_up { (product + 99) / 100 } else { product / 100 }
        }
        _ => 0,
    }
}

fn replicas(object: &Value) -> i64 {
    number(object, "/spec/replicas").unwrap_or(1)
}

fn generation(object: &Value) -> i64 {
    number(object, "/metadata/generation").unwrap_or(0)
}

/// A status object without the zeros that Go leaves out.
fn without_zeros(fields: &[(&str, i64)]) -> Map<String, Value> {
    fields.iter().filter(|(_, value)| *value != 0).map(|(name, value)| ((*name).to_string(), json!(value))).collect()
}
