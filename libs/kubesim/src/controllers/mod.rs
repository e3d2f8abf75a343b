//! The part of kube-controller-manager whose effects Drover sees. Each file is one controller: a function that takes an object and
//! brings its dependents closer to what the object asks for. Level-triggered: it may be called at any time.

mod common;
mod daemonset;
mod deployment;
pub mod endpoints;
pub mod gc;
mod job;
mod namespace;
mod replicaset;
mod rollout;
mod small;
mod statefulset;
mod volumes;

use std::sync::Arc;

use serde_json::Value;

use crate::key::Key;
use crate::object::{self, list};
use crate::state::ClusterState;
use crate::{kinds, nodes, quota};

const IN_CHARGE: &[&str] = &[
    "apiservices.apiregistration.k8s.io",
    "customresourcedefinitions.apiextensions.k8s.io",
    "daemonsets.apps",
    "deployments.apps",
    "jobs.batch",
    "namespaces",
    "nodes",
    "persistentvolumeclaims",
    "persistentvolumes",
    "poddisruptionbudgets.policy",
    "replicasets.apps",
    "replicationcontrollers",
    "resourcequotas",
    "services",
    "statefulsets.apps",
];

/// Queues an object for its controller, if its kind has one.
pub fn enqueue(state: &mut ClusterState, key: Key) {
    if state.settings.controllers && IN_CHARGE.contains(&&*key.resource) {
        state.work.queue.insert(key);
    }
}

/// Runs the controller of one object.
pub fn reconcile(state: &mut ClusterState, key: &Key) {
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
        "replicasets.apps" | "replicationcontrollers" => replicaset::reconcile(state, key, &object),
        "statefulsets.apps" => statefulset::reconcile(state, key, &object),
        "daemonsets.apps" => daemonset::reconcile(state, key, &object),
        "jobs.batch" => job::reconcile(state, key, &object),
        "services" => endpoints::reconcile(state, key, &object),
        "resourcequotas" => quota::reconcile(state, key, &object),
        "persistentvolumeclaims" => volumes::bind(state, key, &object),
        "persistentvolumes" => volumes::reconcile(state, key, &object),
        "customresourcedefinitions.apiextensions.k8s.io" => small::establish(state, key, &object),
        "poddisruptionbudgets.policy" => small::disruption(state, key, &object),
        "apiservices.apiregistration.k8s.io" => small::aggregate(state, key, &object),
        _ => {}
    }
}

/// Queues the other objects that a change of this object concerns.
pub fn concerned(state: &mut ClusterState, key: &Key) {
    let others: &[&str] = match &*key.resource {
        "pods" => &["resourcequotas", "poddisruptionbudgets.policy"],
        "nodes" => &["daemonsets.apps"],
        "persistentvolumeclaims" => return enqueue_all(state, "persistentvolumes"),
        "persistentvolumes" | "storageclasses.storage.k8s.io" => return enqueue_all(state, "persistentvolumeclaims"),
        _ => return,
    };
    for resource in others {
        let resource = Arc::from(*resource);
        let keys: Vec<Key> = state.store.keys(&resource, &key.namespace).cloned().collect();
        keys.into_iter().for_each(|key| enqueue(state, key));
    }
}

fn enqueue_all(state: &mut ClusterState, resource: &str) {
    let keys: Vec<Key> = state.store.keys(&resource.into(), "").cloned().collect();
    keys.into_iter().for_each(|key| enqueue(state, key));
}

/// Updates the kinds of CustomResourceDefinitions, and deletes the objects of a definition that was deleted.
pub fn definitions(state: &mut ClusterState, key: &Key, new: Option<&Value>) {
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
