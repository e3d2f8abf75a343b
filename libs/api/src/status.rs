//! Status of a deployment intent group, as EMCO writes it (orchestrator).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// `GET …/deployment-intent-groups/{dig}/status`. Before the first instantiation there are only names and states.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DigStatus {
    /// Project.
    pub project: String,
    /// Composite app.
    pub composite_app: String,
    /// Its version.
    pub composite_app_version: String,
    /// Composite profile.
    pub composite_profile: String,
    /// Deployment intent group.
    pub name: String,
    /// History.
    pub states: DigStates,
    /// The operation that works on it; Drover's own field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Uuid>,
    /// `Instantiating`, `WaitingForRoom`, `Instantiated`, `InstantiateFailed`, `Updating`, `Relocating`, `Terminating`, `Terminated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployed_status: Option<String>,
    /// `Ready` when every copy that serves is, else `NotReady`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_status: Option<String>,
    /// Resources by `Applied`, `Failed`, `Pending`, `Deleted`; none of a kind: left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployed_counts: Option<BTreeMap<String, usize>>,
    /// Resources by `Ready`, `NotReady`, `NotPresent`; none of a kind: left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_counts: Option<BTreeMap<String, usize>>,
    /// The apps; their names only with `?apps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apps: Option<Vec<AppEntry>>,
    /// With `?clusters`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clusters_by_app: Option<Vec<AppClusters>>,
    /// With `?resources`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources_by_app: Option<Vec<AppResources>>,
}

/// History of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DigStates {
    /// Operation of the latest action that had one.
    pub statusctxid: String,
    /// Oldest first.
    pub actions: Vec<DigAction>,
}

/// One line of the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DigAction {
    /// State that was reached.
    pub state: String,
    /// Operation that reached it; empty: none was needed.
    pub instance: String,
    /// RFC 3339.
    pub time: String,
    /// Revision.
    pub revision: i64,
}

/// An app in full, or its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum AppEntry {
    /// Name.
    Name(String),
    /// In full.
    Full(AppStatus),
}

/// An app and its copies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppStatus {
    /// App.
    pub name: String,
    /// Where it is.
    pub clusters: Vec<ClusterStatus>,
}

/// A copy of an app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Provider.
    pub cluster_provider: String,
    /// Cluster.
    pub cluster: String,
    /// `Unknown`, `Available` or `Retrying`.
    pub connectivity: String,
    /// Its objects.
    pub resources: Vec<ResourceStatus>,
}

/// An object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceStatus {
    /// Group, version and kind.
    #[serde(rename = "GVK")]
    pub gvk: Gvk,
    /// Name.
    pub name: String,
    /// `Applied`, `Failed`, `Pending` or `Deleted`.
    pub deployed_status: String,
    /// `Ready`, `NotReady` or `NotPresent`.
    pub ready_status: String,
    /// With `output=detail`: what Drover knows of it (EMCO shows the whole object here).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<ResourceDetail>,
}

/// Group, version and kind of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct Gvk {
    /// Group, empty for the core.
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
}

/// More of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResourceDetail {
    /// Binding that it belongs to.
    pub binding: Uuid,
    /// Phase of that binding.
    pub phase: String,
    /// Namespace, empty for cluster-wide kinds.
    pub namespace: String,
    /// Why it is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Clusters of an app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppClusters {
    /// App.
    pub app: String,
    /// Its clusters.
    pub clusters: Vec<ClusterName>,
}

/// A cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterName {
    /// Provider.
    pub cluster_provider: String,
    /// Cluster.
    pub cluster: String,
}

/// Objects of a copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppResources {
    /// App.
    pub app: String,
    /// Provider.
    pub cluster_provider: String,
    /// Cluster.
    pub cluster: String,
    /// Its objects.
    pub resources: Vec<ResourceName>,
}

/// An object's name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResourceName {
    /// Name.
    pub name: String,
    /// Group, version and kind.
    #[serde(rename = "GVK")]
    pub gvk: Gvk,
}
