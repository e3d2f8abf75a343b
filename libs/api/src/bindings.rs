//! Bindings (copies of an app in a cluster), as they are ordered from resource-synchronizer and reported by it.

use std::sync::Arc;

use drover_scheduling::{DigRef, MemberKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::grants::Grants;

/// Rendered objects of an app, stored once per digest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Bundle {
    /// The objects in the JSON form of Kubernetes, without Drover's labels.
    pub objects: Vec<Value>,
}

/// The desired state of a binding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DesiredBinding {
    pub id: Uuid,
    /// The group that the app belongs to.
    pub dig: Arc<DigRef>,
    pub app: String,
    pub member: MemberKey,
    /// Namespace for objects that name none.
    pub namespace: String,
    /// Digest of the bundle to apply.
    pub digest: Arc<str>,
    pub state: DesiredState,
    /// Fence of the writer. A write with a lower fence than the last one is refused.
    pub fence: i64,
    /// What it may write besides namespaced objects in `namespace`. Missing: everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<Arc<Grants>>,
}

/// A question: would the member accept these objects?
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Preflight {
    /// The binding as it would be. Nothing is stored, so its id, digest and fence mean nothing.
    pub binding: DesiredBinding,
    /// The objects in the JSON form of Kubernetes, without Drover's labels.
    pub objects: Vec<Value>,
}

/// What speaks against applying objects in a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PreflightAnswer {
    /// A sentence per object that would be refused. Empty: all would be accepted.
    pub reasons: Vec<String>,
}

/// Whether the objects of a binding shall exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DesiredState {
    /// The objects exist.
    Present,
    /// None of the objects exists.
    Absent,
}

/// Status of a binding (feed `bindings`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BindingStatus {
    pub id: Uuid,
    pub member: MemberKey,
    /// Digest of the bundle that this status is about. If it is not the desired digest, the desired one has not been processed yet.
    pub digest: Arc<str>,
    /// Fence of the desired state that this status is about.
    pub fence: i64,
    pub phase: Phase,
    /// Stable code of the reason: `preflight_failed`, `unreachable`, `unschedulable`, `apply_failed`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Explanation for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Message of the cluster's scheduler about pods that fit on no node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unschedulable: Option<String>,
    #[serde(default)]
    pub objects: Vec<ObjectStatus>,
    /// Workloads of which another field manager has chosen the number of replicas; Drover does not change it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scaled: Vec<ScaledWorkload>,
    /// Objects that are left in the cluster although the binding no longer contains them, because others would lose theirs with them: a
    /// sentence per object, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<String>,
    /// Seconds for which all objects must have been ready before the binding is: the app's `drover.io/serving-after`.
    #[serde(default, skip_serializing_if = "is_zero", alias = "serving_after")]
    pub serving_after: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A workload whose number of replicas was chosen by another field manager than Drover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScaledWorkload {
    pub kind: String,
    pub name: String,
    /// The number when it was last read.
    pub replicas: i32,
    /// Field manager in Kubernetes: `kube-controller-manager` for an HPA.
    pub by: String,
}

/// Phase of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[allow(missing_docs)]
pub enum Phase {
    Pending,
    Applying,
    Applied,
    Ready,
    Failed,
    Deleting,
    Gone,
    Unreachable,
}

/// Status of an object of a binding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ObjectStatus {
    /// API group; empty for the core group.
    pub group: String,
    pub version: String,
    pub kind: String,
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    pub name: String,
    /// Whether the object exists in the cluster as desired.
    pub applied: bool,
    /// Whether the object is ready, as its kind defines it (for workloads as `kubectl rollout status` does).
    pub ready: bool,
    /// Why the object is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
