//! A plan: victims, destinations and steps, before anything happens.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Amounts, AppDecision, AppRequest, DigRef, MemberKey, Movability, PodsOnNode, Policy};

/// What room is wanted for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum PlanKind {
    /// Room for the apps of a deployment intent group.
    Newcomer {
        /// The newcomer.
        dig: DigRef,
        /// Its apps.
        apps: Vec<AppRequest>,
    },
    /// Every app off a member.
    Drain {
        /// The member to empty.
        member: MemberKey,
    },
}

/// Input of planning beside the fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PlanRequest {
    /// What for.
    pub kind: PlanKind,
    /// Owners' words; an app without one stays.
    pub movability: Vec<Movability>,
    /// The order of candidates.
    pub policy: Policy,
    /// Deployment intent groups that are busy or known not to move now, with the reason shown.
    #[serde(default)]
    pub excluded: BTreeMap<Uuid, String>,
    /// Destinations at which an app did not become ready lately; it is not planned there.
    #[serde(default)]
    pub refused: Vec<RefusedDestination>,
    /// Values of `prometheus` parameters, by claim id and parameter name.
    #[serde(default)]
    pub external: BTreeMap<Uuid, BTreeMap<String, f64>>,
}

/// A destination at which an app did not become ready lately.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RefusedDestination {
    /// The app's deployment intent group.
    pub dig: Uuid,
    /// The app.
    pub app: String,
    /// The destination.
    pub member: MemberKey,
    /// Why it did not become ready there, for people.
    pub reason: String,
}

/// Plan or reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(tag = "result", rename_all = "lowercase")]
pub enum PlanResult {
    /// It can be done.
    Feasible(Plan),
    /// It cannot.
    Infeasible(Infeasible),
}

/// Who moves where, in which order, and why. Destinations hold nothing until the plan is applied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Plan {
    /// The member(s) that room is made on.
    pub targets: Vec<MemberKey>,
    /// Moves by wave, innermost first (depth 0: one wave). Each wave is prepared whole, then cuts over.
    pub waves: Vec<Vec<Move>>,
    /// Where the newcomer's apps go when the moves are done (empty for a drain).
    pub newcomer: Vec<AppDecision>,
    /// What the newcomer needs in all.
    pub needed: Amounts,
    /// What the moves free.
    pub freed: Amounts,
    /// Every candidate in the order it was looked at, taken or not.
    pub candidates: Vec<Candidate>,
    /// Estimated cost in seconds (sum of `MoveCost`).
    pub cost_s: f64,
    /// Members that were tried before this one without success, with the reasons.
    #[serde(default)]
    pub tried: Vec<WhyNot>,
    /// Services of victims that other pods may call by name.
    #[serde(default)]
    pub dependants: Vec<Dependant>,
    /// How many sets of victims and destinations were examined.
    #[serde(default)]
    pub examined: u64,
}

/// One workload moving.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Move {
    /// The victim's claim (= binding).
    pub claim: Uuid,
    /// Whose it is.
    pub dig: DigRef,
    /// App.
    pub app: String,
    /// From.
    pub from: MemberKey,
    /// To.
    pub to: MemberKey,
    /// Other destinations that would do, in order of preference.
    #[serde(default)]
    pub alternatives: Vec<MemberKey>,
    /// Witness at the destination.
    pub pods: Vec<PodsOnNode>,
    /// Requests freed at the source.
    pub frees: Amounts,
    /// Why this victim and this destination, for people.
    pub reason: String,
}

/// An app that was looked at as a victim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Candidate {
    /// Claim.
    pub claim: Uuid,
    /// Whose.
    pub dig: DigRef,
    /// App.
    pub app: String,
    /// Where it runs.
    pub member: MemberKey,
    /// Intent priority (lower moves first).
    pub priority: u8,
    /// Values of the policy's algorithms.
    pub scores: Vec<Score>,
    /// Weighted sum (mode `scoring`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// Taken as a victim.
    pub taken: bool,
    /// Why it was not taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<Exclusion>,
}

/// Value of one algorithm for one candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Score {
    /// Algorithm.
    pub algorithm: String,
    /// Value; absent: a parameter had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Normalised 0..1, 1 moves first (mode `scoring`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normalised: Option<f64>,
}

/// Why an app is no victim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Exclusion {
    /// `no_intent`, `migration_false`, `volume`, `daemon_set`, `host_path`, `node_bound`, `busy`, `no_other_member`,
    /// `no_destination`, `refused`, `not_needed`, `not_enough` (there is no plan), `dependants`, `itself`.
    pub code: String,
    /// For people.
    pub detail: String,
}

/// Why not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WhyNot {
    /// Member.
    pub member: MemberKey,
    /// For people.
    pub reason: String,
}

/// A Service of a victim that others may call by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Dependant {
    /// The victim's claim.
    pub claim: Uuid,
    /// `namespace/name`.
    pub service: String,
}

/// No plan, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Infeasible {
    /// A reason per member that was tried.
    pub members: Vec<WhyNot>,
    /// A reason per candidate.
    pub candidates: Vec<Candidate>,
    /// Members of which nothing is known at the moment but may soon be, and that could make it feasible: it is not final.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub awaited: Vec<MemberKey>,
    /// The bound on the search was reached before it was exhausted.
    #[serde(default)]
    pub cut_short: bool,
    /// How many sets of victims and destinations were examined.
    #[serde(default)]
    pub examined: u64,
}
