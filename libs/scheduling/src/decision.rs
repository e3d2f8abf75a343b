//! A decision: the member chosen for each app, and why the other members were not chosen.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{AppRequest, CallStory, DigRef, MemberKey, PodsOnNode, RefusedDestination};

/// Requests room for apps of one deployment intent group: for all of them or none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DecisionRequest {
    pub dig: DigRef,
    pub apps: Vec<AppRequest>,
    /// Overrides `whenFull: preferred`: less preferred members are used too. Set when no plan was feasible.
    #[serde(default)]
    pub overflow: bool,
    /// Members on which an app of the group recently did not become Ready. It is not placed there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedDestination>,
    /// The operation that requests it.
    pub operation: Uuid,
    /// Fence of the writer.
    pub fence: i64,
}

/// The result of a decision with its reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Decision {
    /// Decision id, chosen by the caller.
    pub id: Uuid,
    pub dig: DigRef,
    pub outcome: Outcome,
    pub apps: Vec<AppDecision>,
    /// The effect of calls between the apps. Absent if no calls are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<CallStory>,
    /// The apps whose pods can only be expected to get nodes if they are applied in this order, each when the one before is Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<String>,
    /// Ledger sequence it was decided on.
    #[serde(default)]
    pub seq: i64,
}

/// Result of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every app has room, and its claims are held.
    Placed,
    /// At least one app fits on no allowed member of known capacity. Nothing was claimed.
    NoRoom,
    /// No known member has room, but the capacity of an allowed one is unknown at the moment (unreachable or outdated). The caller should
    /// wait instead of rejecting the app.
    Unknown,
    /// An app may run nowhere: no such cluster, a label without clusters, or only clusters outside the logical cloud.
    Impossible,
}

/// The decision about one app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AppDecision {
    pub app: String,
    /// Its groups of alternatives. A mandatory cluster is a group of one.
    pub groups: Vec<GroupDecision>,
}

/// One group of alternatives, of which exactly one member is chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct GroupDecision {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// At most 16 members with their reasons, the best first.
    pub considered: Vec<Considered>,
    /// How many members were considered beyond those listed.
    #[serde(default)]
    pub more: usize,
}

/// The place of an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Placement {
    /// Binding id: `Uuid::new_v5(decision id, "<app>/<member>")`.
    pub binding: Uuid,
    pub member: MemberKey,
    /// A packing that proves that the pods fit.
    pub pods: Vec<PodsOnNode>,
}

/// A member and whether the app fits there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Considered {
    pub member: MemberKey,
    pub priority: u8,
    pub verdict: Verdict,
    /// Reason for users, for example "cpu: needs 1500m on one node, the emptiest has 400m free".
    pub reason: String,
    /// Dominant share of requests after placing, 0 to 1. Absent if it does not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Age of its capacity in milliseconds.
    #[serde(default, alias = "age_ms")]
    pub age_ms: u64,
}

/// Why a member was chosen or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Chosen.
    Chosen,
    /// It fits, but another member was better.
    Fits,
    /// No room on its nodes.
    NoRoom,
    /// No node allows the pods because of taints, labels, selectors or affinity.
    NoNodeMatches,
    /// Not used: `whenFull: preferred` insists on a better provider.
    LessPreferred,
    /// Its capacity is unknown at the moment.
    Unknown,
    /// It is outside the logical cloud, cordoned, being removed, or does not accept the app's objects.
    NotAllowed,
}
