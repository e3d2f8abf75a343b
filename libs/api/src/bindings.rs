//! Bindings: one app on one member, as resource-synchronizer is told of it and reports on it.

use std::sync::Arc;

use drover_scheduling::{DigRef, MemberKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

/// Rendered objects, stored once by their digest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Bundle {
    /// The objects, as Kubernetes writes them, without Drover's labels.
    pub objects: Vec<Value>,
}

/// What shall be true of one binding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DesiredBinding {
    /// Binding id.
    pub id: Uuid,
    /// Whose it is.
    pub dig: Arc<DigRef>,
    /// App.
    pub app: String,
    /// Member.
    pub member: MemberKey,
    /// Namespace of objects that name none.
    pub namespace: String,
    /// Digest of its bundle.
    pub digest: Arc<str>,
    /// Present or absent.
    pub state: DesiredState,
    /// Fence of the writer; a lower one than the last is refused.
    pub fence: i64,
}

/// Present or absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DesiredState {
    /// Its objects exist.
    Present,
    /// None of them exists.
    Absent,
}

/// Status of one binding (feed `bindings`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BindingStatus {
    /// Binding id.
    pub id: Uuid,
    /// Member.
    pub member: MemberKey,
    /// Digest that this status speaks of; another one than desired: not yet looked at.
    pub digest: Arc<str>,
    /// Fence of the desired row that this status speaks of.
    pub fence: i64,
    /// Phase.
    pub phase: Phase,
    /// Stable code of the reason (`preflight_failed`, `unreachable`, `unschedulable`, `apply_failed`, …).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Reason for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the member's scheduler says of pods that fit on no node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unschedulable: Option<String>,
    /// Its objects.
    #[serde(default)]
    pub objects: Vec<ObjectStatus>,
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

/// Status of one object of a binding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ObjectStatus {
    /// API group, empty for the core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Namespace, empty for cluster-wide kinds.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Exists in the member as desired.
    pub applied: bool,
    /// Ready by its kind's own measure.
    pub ready: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
