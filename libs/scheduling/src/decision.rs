//! A decision: which member each app goes to, and why not elsewhere.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{AppRequest, CallStory, DigRef, MemberKey, PodsOnNode};

/// Asks for room for apps of one deployment intent group: all or none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DecisionRequest {
    /// Whose apps.
    pub dig: DigRef,
    /// The apps.
    pub apps: Vec<AppRequest>,
    /// Overrides `whenFull: preferred`: use less preferred members too (no plan was feasible).
    #[serde(default)]
    pub overflow: bool,
    /// Operation on whose behalf.
    pub operation: Uuid,
    /// Fence of the writer.
    pub fence: i64,
}

/// What was decided, with the reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Decision {
    /// Decision id (chosen by the caller).
    pub id: Uuid,
    /// Whose apps.
    pub dig: DigRef,
    /// Result.
    pub outcome: Outcome,
    /// Per app.
    pub apps: Vec<AppDecision>,
    /// What calls between the apps made of it; absent: none are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<CallStory>,
    /// Ledger sequence it was decided on.
    #[serde(default)]
    pub seq: i64,
}

/// Result of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every app has its room, claimed as held.
    Placed,
    /// At least one app fits on no allowed member that is known; nothing was claimed.
    NoRoom,
    /// No known member has room but an allowed one is unknown at the moment (unreachable, stale): wait, do not reject.
    Unknown,
    /// An app may run nowhere at all (no such cluster, label without clusters, outside the logical cloud).
    Impossible,
}

/// How one app was decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AppDecision {
    /// App.
    pub app: String,
    /// Its groups of alternatives (a mandatory cluster is a group of one).
    pub groups: Vec<GroupDecision>,
}

/// One group of alternatives: exactly one member of it is chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct GroupDecision {
    /// The chosen one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// At most 16 members, best first, with their reasons.
    pub considered: Vec<Considered>,
    /// How many more were considered.
    #[serde(default)]
    pub more: usize,
}

/// Where an app goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Placement {
    /// Binding id: `Uuid::new_v5(decision id, "<app>/<member>")`.
    pub binding: Uuid,
    /// Member.
    pub member: MemberKey,
    /// Witness.
    pub pods: Vec<PodsOnNode>,
}

/// A member and what was found there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Considered {
    /// Member.
    pub member: MemberKey,
    /// Priority of its provider.
    pub priority: u8,
    /// Verdict.
    pub verdict: Verdict,
    /// For people: "cpu: needs 1500m on one node, the emptiest has 400m free".
    pub reason: String,
    /// Dominant share of requests after placing, 0..1 (where it fits).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Age of its capacity in milliseconds.
    #[serde(default)]
    pub age_ms: u64,
}

/// What was found at a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Chosen.
    Chosen,
    /// It fits there too; another was better.
    Fits,
    /// No room on its nodes.
    NoRoom,
    /// It could fit by amount, but no node's taints, labels or selectors allow it.
    NoNodeMatches,
    /// Room there was not asked for: `whenFull: preferred` insists on a better provider.
    LessPreferred,
    /// Nothing is known of it at the moment.
    Unknown,
    /// Not a member of the logical cloud, or being removed.
    NotAllowed,
}
