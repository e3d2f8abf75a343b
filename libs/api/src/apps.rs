//! Apps: what runs where, over all deployment intent groups (orchestrator).

use drover_scheduling::MemberKey;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// `GET /v2/apps`: every app of every group that is approved or more, by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppList {
    /// The apps.
    pub items: Vec<AppView>,
}

/// An app of a deployment intent group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppView {
    /// Project.
    pub project: String,
    /// Composite app.
    #[serde(rename = "compositeApp")]
    pub composite_app: String,
    /// Its version.
    pub version: String,
    /// Deployment intent group.
    pub dig: String,
    /// App.
    pub app: String,
    /// State of its group: EMCO's `Approved`, `Instantiated`, `Terminated`; while an operation works on it `Instantiating`,
    /// `Updating`, `Terminating`, `Relocating`, or `WaitingForRoom` while others move away for it.
    pub state: String,
    /// The operation that works on its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Uuid>,
    /// Its copies; while it moves, the old and the new one.
    pub bindings: Vec<AppBinding>,
}

/// A copy of an app on a member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppBinding {
    /// Binding id.
    pub binding: Uuid,
    /// Member.
    pub member: MemberKey,
    /// Phase as resource-synchronizer knows it: `Pending`, `Applying`, `Applied`, `Ready`, `Failed`, `Deleting`, `Gone`,
    /// `Unreachable`; `Unknown` until it is heard of.
    pub phase: String,
    /// Why it is not Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
