//! Status of a deployment intent group, as EMCO writes it (orchestrator).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Answer of `GET …/deployment-intent-groups/{dig}/status`. Before the first instantiation it has only names and states.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DigStatus {
    pub project: String,
    pub composite_app: String,
    pub composite_app_version: String,
    pub composite_profile: String,
    pub name: String,
    /// History of the group.
    pub states: DigStates,
    /// The operation that works on the group. EMCO has no such field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Uuid>,
    /// State: `Instantiating`, `WaitingForRoom`, `Instantiated`, `InstantiateFailed`, `Updating`, `Relocating`, `Terminating` or `Terminated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployed_status: Option<String>,
    /// With `?type=`: EMCO's older name of `deployedStatus`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// With `?type=`: EMCO's older name of `deployedCounts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rsync_status: Option<BTreeMap<String, usize>>,
    /// With `?type=cluster`: EMCO's older name of `readyCounts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_status: Option<BTreeMap<String, usize>>,
    /// `Ready` if every copy that serves is ready, else `NotReady`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_status: Option<String>,
    /// Number of resources that are `Applied`, `Failed`, `Pending` and `Deleted`; a count of zero is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployed_counts: Option<BTreeMap<String, usize>>,
    /// Number of resources that are `Ready`, `NotReady` and `NotPresent`; a count of zero is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_counts: Option<BTreeMap<String, usize>>,
    /// The apps; with `?apps` only their names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apps: Option<Vec<AppEntry>>,
    /// The clusters of each app; only with `?clusters`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clusters_by_app: Option<Vec<AppClusters>>,
    /// The resources of each app; only with `?resources`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources_by_app: Option<Vec<AppResources>>,
}

/// History of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DigStates {
    /// Operation of the latest action that was done by an operation.
    pub statusctxid: String,
    /// The actions, oldest first.
    pub actions: Vec<DigAction>,
}

/// An action in the history of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DigAction {
    /// The state that was reached.
    pub state: String,
    /// The operation that reached the state; empty if none was needed.
    pub instance: String,
    /// Time in RFC 3339.
    pub time: String,
    pub revision: i64,
}

/// An app with its copies, or only its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum AppEntry {
    /// The name of the app.
    Name(String),
    /// The app with its copies.
    Full(AppStatus),
}

/// An app and its copies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppStatus {
    pub name: String,
    /// The clusters in which it runs.
    pub clusters: Vec<ClusterStatus>,
}

/// A copy of an app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    pub cluster_provider: String,
    pub cluster: String,
    /// Connection to the cluster: `Unknown`, `Available` or `Retrying`.
    pub connectivity: String,
    /// With `?type=`: EMCO's older name of `connectivity`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_status: Option<String>,
    pub resources: Vec<ResourceStatus>,
}

/// An object of an app in a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceStatus {
    #[serde(rename = "GVK")]
    pub gvk: Gvk,
    pub name: String,
    /// Whether the object was applied: `Applied`, `Failed`, `Pending` or `Deleted`.
    pub deployed_status: String,
    /// Readiness: `Ready`, `NotReady` or `NotPresent`.
    pub ready_status: String,
    /// With `?type=rsync`: EMCO's older name of `deployedStatus`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rsync_status: Option<String>,
    /// With `?type=cluster`: EMCO's older name of `readyStatus`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_status: Option<String>,
    /// Details about the object; only with `output=detail`. (EMCO returns the whole object here.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<ResourceDetail>,
}

/// Group, version and kind of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct Gvk {
    /// API group; empty for the core group.
    pub group: String,
    pub version: String,
    pub kind: String,
}

/// Details about an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResourceDetail {
    /// The binding that the object belongs to.
    pub binding: Uuid,
    /// Phase of the binding.
    pub phase: String,
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// Why the object is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The clusters of an app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppClusters {
    pub app: String,
    pub clusters: Vec<ClusterName>,
}

/// A cluster and its provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterName {
    pub cluster_provider: String,
    pub cluster: String,
}

/// The objects of an app in a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppResources {
    pub app: String,
    pub cluster_provider: String,
    pub cluster: String,
    pub resources: Vec<ResourceName>,
}

/// The name and type of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResourceName {
    pub name: String,
    #[serde(rename = "GVK")]
    pub gvk: Gvk,
}
