//! Plans and their requests: victims, destinations and steps. A plan is a document; making it moves nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Amounts, AppDecision, AppRequest, Demand, DigRef, MemberKey, Movability, PodsOnNode, Policy};

/// The purpose of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum PlanKind {
    /// Make room for the apps of a deployment intent group.
    Newcomer {
        /// The group that needs room.
        dig: DigRef,
        /// Its apps.
        apps: Vec<AppRequest>,
    },
    /// Move every app off a member.
    Drain {
        /// The member to empty.
        member: MemberKey,
    },
    /// Move one of some apps off a member where they suffer, or have grown beyond the room.
    Relieve {
        /// The member.
        member: MemberKey,
        /// The project whose policy orders the candidates.
        project: String,
        /// Claims of the apps of which one is to move.
        claims: Vec<Uuid>,
        /// What they need by now, if that is more than they have claimed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        demand: Option<Demand>,
        /// Why one is to move, for people.
        #[serde(default)]
        reason: String,
    },
}

/// The input of planning, apart from the fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PlanRequest {
    /// Whether room is sought for a newcomer or a member is drained.
    pub kind: PlanKind,
    /// Consent of the owners. An app without an entry is not moved.
    pub movability: Vec<Movability>,
    /// The policy that orders the candidates.
    pub policy: Policy,
    /// Deployment intent groups that must not move now, for example because an operation holds them, with the reason for users.
    #[serde(default)]
    pub excluded: BTreeMap<Uuid, String>,
    /// Destinations at which an app recently did not become Ready. No move to them is planned.
    #[serde(default)]
    pub refused: Vec<RefusedDestination>,
    /// Values of `prometheus` parameters, by claim id and parameter name.
    #[serde(default)]
    pub external: BTreeMap<Uuid, BTreeMap<String, f64>>,
    /// Spend the whole budget of the search on a plan with fewer moves, instead of using the first plan in the order of the policy.
    #[serde(default, alias = "fewest_moves")]
    pub fewest_moves: bool,
}

/// A destination that refused an app, or at which the app recently did not become Ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RefusedDestination {
    /// UUID of the app's deployment intent group.
    pub dig: Uuid,
    /// The app.
    pub app: String,
    /// The destination.
    pub member: MemberKey,
    /// Why it did not become Ready there, for users.
    pub reason: String,
    /// The member does not accept the app's objects. Otherwise its pods found no nodes, or did not become ready.
    #[serde(default)]
    pub refuses: bool,
}

/// A plan, or the reasons why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(tag = "result", rename_all = "lowercase")]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and it is soon taken apart")]
pub enum PlanResult {
    /// A plan exists.
    Feasible(Plan),
    /// No plan was found.
    Infeasible(Infeasible),
}

/// The apps that move, their destinations and the order, with reasons. Nothing is reserved until the plan is applied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The members on which room is made.
    pub targets: Vec<MemberKey>,
    /// Moves by wave, in the order of execution. All moves of a wave are prepared before any of them cuts over. At present a plan has one
    /// wave at most.
    pub waves: Vec<Vec<Move>>,
    /// Where the newcomer's apps go after the moves. Empty for a drain.
    pub newcomer: Vec<AppDecision>,
    /// Total request of the newcomer.
    pub needed: Amounts,
    /// Total requests freed by the moves.
    pub freed: Amounts,
    /// All candidates in the order of examination, with those that stay.
    pub candidates: Vec<Candidate>,
    /// Estimated cost in seconds: the sum of `MoveCost` over all moves.
    #[serde(alias = "cost_s")]
    pub cost_s: f64,
    /// Preferred members that were tried without success, with the reasons.
    #[serde(default)]
    pub tried: Vec<WhyNot>,
    /// Services of victims that other pods may call, and whose names do not follow.
    #[serde(default)]
    pub dependants: Vec<Dependant>,
    /// How many sets of victims and destinations were examined.
    #[serde(default)]
    pub examined: u64,
    /// Whether the schedulers of the members can be expected to find nodes for all pods. Absent in plans of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<PlanScheduling>,
}

/// Whether all pods of a plan get nodes. The schedulers of the members place pods without knowing the packing of the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PlanScheduling {
    /// For which orders all pods get nodes; the least certain of all members.
    pub holds: Holds,
    /// Victims' claims in the order in which their new copies must be applied, each when the one before is Ready. Only for members on
    /// which not every order can be expected to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<Uuid>,
    /// The same for the newcomer's apps.
    #[serde(default, skip_serializing_if = "Vec::is_empty", alias = "newcomer_order")]
    pub newcomer_order: Vec<String>,
    /// Members on which it depends on pods of operations under way, which have no nodes yet. A plan made when they have is more certain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starting: Vec<MemberKey>,
    /// Members on which not every order does, with the reason for users.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<WhyNot>,
}

/// For which orders of pods the pods of a plan get nodes, the least certain first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Holds {
    /// For another order of the apps at best.
    #[default]
    One,
    /// On a default scheduler, in the order of the plan.
    Likely,
    /// For any order, on any scheduler.
    Any,
}

/// The move of one app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Move {
    /// The victim's claim. The binding has the same id.
    pub claim: Uuid,
    pub dig: DigRef,
    pub app: String,
    /// Member that it leaves.
    pub from: MemberKey,
    /// Destination.
    pub to: MemberKey,
    /// Other destinations with room, in order of preference.
    #[serde(default)]
    pub alternatives: Vec<MemberKey>,
    /// A packing that proves that its pods fit at the destination.
    pub pods: Vec<PodsOnNode>,
    /// Requests that it frees.
    pub frees: Amounts,
    /// Reason for this victim and destination, for users.
    pub reason: String,
}

/// An app that was considered as a victim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// Claim.
    pub claim: Uuid,
    pub dig: DigRef,
    pub app: String,
    /// Member on which it runs.
    pub member: MemberKey,
    /// Priority in its migration intent; a lower one moves first.
    pub priority: u8,
    /// Values of the policy's algorithms.
    pub scores: Vec<Score>,
    /// Weighted sum of the scores (mode `scoring`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// Whether it is a victim.
    pub taken: bool,
    /// Why it is not a victim.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "why_not")]
    pub why_not: Option<Exclusion>,
}

/// Value of one algorithm for one candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Score {
    pub algorithm: String,
    /// Value. Absent if a parameter has no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Value normalised to 0..1; 1 moves first (mode `scoring`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normalised: Option<f64>,
}

/// Why an app is not a victim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Exclusion {
    /// `no_intent`, `migration_false`, `volume`, `daemon_set`, `host_path`, `node_bound`, `busy`, `no_other_member`, `out_of_reach`,
    /// `no_destination`, `refused`, `not_needed`, `not_enough` (no plan was found), `every_cluster`, `dependants` or `itself`.
    pub code: String,
    /// For people.
    pub detail: String,
}

/// Why a member was not used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WhyNot {
    /// Member.
    pub member: MemberKey,
    /// For people.
    pub reason: String,
}

/// A Service of a victim that other pods may call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Dependant {
    /// The victim's claim.
    pub claim: Uuid,
    /// `namespace/name`.
    pub service: String,
}

/// The reasons why no plan was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Infeasible {
    /// A reason for each member that was tried.
    pub members: Vec<WhyNot>,
    /// All candidates, each with the reason why it is not a victim.
    pub candidates: Vec<Candidate>,
    /// Members of unknown capacity that may report it soon and could make a plan feasible. If there are any, the result is not final.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub awaited: Vec<MemberKey>,
    /// Members where pods of apps that have left still take room, which may soon be free.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leftovers: Vec<MemberKey>,
    /// The bound on the search was reached before it was exhausted.
    #[serde(default, alias = "cut_short")]
    pub cut_short: bool,
    /// How many sets of victims and destinations were examined.
    #[serde(default)]
    pub examined: u64,
}
