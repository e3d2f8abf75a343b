//! The verbs of the API server, as plain functions on the state: no HTTP, no waiting.

mod create;
mod delete;
mod read;
mod update;

pub use create::random_suffix;

pub use crate::target::{Options, PatchType, Target};

use std::sync::Arc;

use serde_json::{Value, json};

use crate::error::ApiError;
use crate::kinds::ServedKind;
use crate::object;
use crate::state::ClusterState;

/// What answers a request, or the error with which a real server would refuse it.
pub type ApiResult = Result<Value, ApiError>;

/// Whether `metadata.generation` counts changes of the spec of this kind.
pub(crate) fn has_generation(kind: &ServedKind) -> bool {
    kind.custom
        || matches!(
            &*kind.resource,
            "pods"
                | "deployments.apps"
                | "replicasets.apps"
                | "statefulsets.apps"
                | "daemonsets.apps"
                | "jobs.batch"
                | "cronjobs.batch"
                | "ingresses.networking.k8s.io"
                | "networkpolicies.networking.k8s.io"
                | "poddisruptionbudgets.policy"
                | "replicationcontrollers"
                | "endpointslices.discovery.k8s.io"
                | "customresourcedefinitions.apiextensions.k8s.io"
                | "priorityclasses.scheduling.k8s.io"
        )
}

/// Whether two objects have the same desired state: all fields but metadata and, if it is a subresource, status.
pub(crate) fn same_spec(kind: &ServedKind, a: &Value, b: &Value) -> bool {
    let strip = |object: &Value| {
        let mut map = object.as_object().cloned().unwrap_or_default();
        map.remove("metadata");
        map.remove("apiVersion");
        if kind.status {
            map.remove("status");
        }
        map
    };
    strip(a) == strip(b)
}

/// A `Scale` of an object that has replicas.
pub(crate) fn scale_of(object: &Value) -> Value {
    let selector = object::map(object, "/spec/selector/matchLabels").map(|labels| {
        let pairs: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or(""))).collect();
        pairs.join(",")
    });
    let meta = &object["metadata"];
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"], "creationTimestamp": meta["creationTimestamp"]},
        "spec": {"replicas": object::number(object, "/spec/replicas").unwrap_or(0)},
        "status": {"replicas": object::number(object, "/status/replicas").unwrap_or(0), "selector": selector.unwrap_or_default()}})
}

impl ClusterState {
    /// The object that a target names.
    ///
    /// # Errors
    /// 404 when there is none.
    pub(crate) fn existing(&self, target: &Target) -> Result<Arc<Value>, ApiError> {
        self.store.get(&target.key(&target.name)).ok_or_else(|| target.not_found())
    }
}
