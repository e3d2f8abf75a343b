//! Members as cluster-manager tells of them (feed `members`).

use std::fmt;

use drover_scheduling::{MemberKey, MemberState};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A registered cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Member {
    /// Its document's uuid: a cluster registered again under the same name is another member.
    pub id: Uuid,
    /// `<provider>+<cluster>`.
    pub key: MemberKey,
    /// Priority of its provider, 1 (best) to 10.
    pub priority: u8,
    /// Labels.
    pub labels: Vec<String>,
    /// State.
    pub state: MemberState,
    /// Since when, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Raised whenever the kubeconfig changes.
    pub credential_version: i64,
}

/// Health of a member as cluster-manager last found it; part of `GET /v2/…/clusters?view=state` and of a cluster's status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterState {
    pub state: MemberState,
    /// Time of the last change of `state`, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Explanation for people; absent when the member is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A member's kubeconfig (only for resource-synchronizer).
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct MemberCredential {
    /// [`Member::credential_version`] that it belongs to.
    pub version: i64,
    /// The kubeconfig.
    pub kubeconfig: SecretKubeconfig,
}

/// A kubeconfig on its way between two services. Cannot print itself.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct SecretKubeconfig(String);

impl SecretKubeconfig {
    /// Wraps it.
    pub fn new(text: String) -> Self {
        Self(text)
    }
    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretKubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKubeconfig(…)")
    }
}
