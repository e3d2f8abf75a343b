//! Registered clusters as cluster-manager reports them (feed `members`).

use std::fmt;

use drover_scheduling::{Cordon, MemberKey, MemberLink, MemberState};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A registered cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Id of the cluster's document. A cluster that is registered again under the same name has another id.
    pub id: Uuid,
    /// The name, as `<provider>+<cluster>`.
    pub key: MemberKey,
    /// Priority of the provider, from 1 (filled first) to 10.
    pub priority: u8,
    pub labels: Vec<String>,
    pub state: MemberState,
    /// Time of the last change of `state`, in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Explanation for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Set while it is closed to new copies of apps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordoned: Option<Cordon>,
    /// Set for a cluster that is reached through the connection of its agent, and in no other way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<MemberLink>,
    /// Number that grows whenever the kubeconfig changes.
    #[serde(alias = "credential_version")]
    pub credential_version: i64,
}

/// Health of a member as cluster-manager last found it; part of `GET /v2/…/clusters?view=state` and of a cluster's status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterState {
    pub state: MemberState,
    /// Time of the last change of `state`, in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Explanation for people; absent when the member is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Set while the cluster is closed to new copies of apps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordoned: Option<Cordon>,
}

/// Request to close a cluster to new copies of apps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CordonOrder {
    /// Reason, which explanations and lists show.
    #[serde(default)]
    pub reason: String,
    /// The cluster is lost for good: it may be deleted although applications still have room there, which is freed then.
    #[serde(default)]
    pub abandoned: bool,
}

/// Question whether a kubeconfig leads to a usable cluster. Nothing is stored.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClusterCheckOrder {
    /// The kubeconfig.
    pub kubeconfig: SecretKubeconfig,
}

/// What a kubeconfig leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterCheck {
    /// `Ready`, `Unreachable` or `Unauthorized`.
    pub state: MemberState,
    /// Why it is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The uid of its namespace `kube-system`, which identifies a Kubernetes cluster; absent if it may not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// `<provider>+<cluster>` under which this very cluster is registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered_as: Option<MemberKey>,
}

/// The pods of a copy of an app, as its cluster has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CopyPods {
    pub items: Vec<CopyPod>,
}

/// A pod of a copy of an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CopyPod {
    pub namespace: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Its phase, or why a container waits (`CrashLoopBackOff`), or `Terminating`.
    pub state: String,
    pub ready: bool,
    /// The sum over its containers.
    pub restarts: u64,
    pub containers: Vec<String>,
    /// The object that made it, as `ReplicaSet/web-5d9c` or `Job/migrate`. Absent for a pod that the app contains itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The events of Helm in which the pod runs, separated by commas, if it is itself a hook of a chart: `test`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
    /// RFC 3339.
    pub created: String,
}

/// The events of a copy of an app, as its cluster has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CopyEvents {
    pub items: Vec<CopyEvent>,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CopyEvent {
    /// When it was last seen, in RFC 3339.
    pub last: String,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub kind: String,
    pub reason: String,
    /// The object, as `Pod/web-0`.
    pub object: String,
    pub message: String,
    pub count: u64,
}

/// Request for a user of a cluster: a key, and a certificate that the cluster's own authority has signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserOrder {
    /// The name by which the cluster knows the user (the common name of the certificate).
    pub user_name: String,
    /// The namespace of the kubeconfig's context.
    pub namespace: String,
}

/// Whether a user of a cluster has its certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserState {
    /// When the certificate ends, RFC 3339. Absent: it has not been issued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Why it has not been issued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The kubeconfig of a user of a cluster.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct UserKubeconfig {
    pub kubeconfig: SecretKubeconfig,
}

/// The kubeconfig of a cluster, for services that call its API server.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct MemberCredential {
    /// The [`Member::credential_version`] of this kubeconfig.
    pub version: i64,
    pub kubeconfig: SecretKubeconfig,
    /// The member is reached through the connection of its agent, and in no other way.
    #[serde(default)]
    pub linked: bool,
}

/// A kubeconfig that is sent from one service to another. Its debug output does not show it.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct SecretKubeconfig(String);

impl SecretKubeconfig {
    /// Protects a kubeconfig from being printed.
    pub fn new(text: String) -> Self {
        Self(text)
    }
    /// The text of the kubeconfig.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretKubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKubeconfig(…)")
    }
}
