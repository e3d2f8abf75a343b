//! All apps and where they run, over all deployment intent groups (orchestrator).

use drover_scheduling::MemberKey;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::bindings::ScaledWorkload;

/// Answer of `GET /v2/apps`: every app of every group that is approved or further, sorted by project, composite app, version, group and app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppList {
    pub items: Vec<AppView>,
}

/// An app of a deployment intent group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppView {
    pub project: String,
    #[serde(rename = "compositeApp")]
    pub composite_app: String,
    pub version: String,
    pub dig: String,
    pub app: String,
    /// State of its group: `Approved`, `Instantiated` or `Terminated` as in EMCO. While an operation works on the group: `Instantiating`,
    /// `Updating`, `Terminating`, `Relocating`, or `WaitingForRoom` while other apps are moved to make room for it. `Failed` if the last
    /// attempt to instantiate it failed.
    pub state: String,
    /// Why the last attempt to instantiate or update its group failed; absent once another has succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The operation that works on its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Uuid>,
    /// Its copies. While it is moved, these are the old and the new one.
    pub bindings: Vec<AppBinding>,
    /// Members at which a new copy did not become ready in the last ten minutes. No plan moves the app there meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<AppRefusal>,
    /// Clusters where it suffers, as the active policy of its project says: reasons for which it, or another app of the project there, is
    /// moved without a newcomer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suffering: Vec<AppSuffering>,
}

/// A reason for a planned move of an app, or of another one of its project that suffers on the same cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppSuffering {
    pub member: MemberKey,
    /// The policy for which it is a reason.
    pub policy: String,
    /// Which value is too high, and for how long, for people.
    pub reason: String,
    /// Seconds for which it has been too high.
    pub seconds: u32,
    /// Seconds for which it must be too high until one of the apps that suffer there is moved.
    pub for_seconds: u32,
    /// What the last attempt to move one of them has led to, for people; absent if there was none, or the pause after it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<String>,
}

/// The share that an autoscaler in one cluster has of bounds that count for all clusters of an app together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyBounds {
    /// `ScalingPolicy` or `HorizontalPodAutoscaler`
    pub kind: String,
    /// `namespace/name`
    pub policy: String,
    /// Lower bound; absent if it has no share yet and adds no pods, because another cluster has not confirmed that it has given up room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u32>,
    /// Upper bound; absent like `min`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// Whether the cluster has this share. Until then it may be acting upon an earlier one.
    pub confirmed: bool,
}

/// A member at which a new copy of an app did not become ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppRefusal {
    pub member: MemberKey,
    /// Why it did not become ready, for users.
    pub reason: String,
}

/// A copy of an app in a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppBinding {
    pub binding: Uuid,
    pub member: MemberKey,
    /// Since when the copy is there, in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Phase as resource-synchronizer reports it: `Pending`, `Applying`, `Applied`, `Ready`, `Failed`, `Deleting`, `Gone` or
    /// `Unreachable`. `Unknown` before the first report.
    pub phase: String,
    /// Why the copy is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Workloads of which another field manager has chosen the number of replicas; Drover does not change it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scaled: Vec<ScaledWorkload>,
    /// Why its claim does not cover all pods that were started by scaling it: they do not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unclaimed: Option<String>,
    /// Its share of bounds that count for all clusters of the app together, by autoscaler.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<PolicyBounds>,
    /// StatefulSets with volume claims, which stay with their data when the app is deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keeping: Vec<String>,
}
