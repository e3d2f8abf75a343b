//! Plans as documents (migration).

use drover_scheduling::{DigRef, Infeasible, MemberKey, Plan, PlanKind, RefusedDestination};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Body of `PUT /internal/plans/{id}`: what to plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanOrder {
    /// The purpose of the plan.
    #[serde(flatten)]
    pub kind: PlanKind,
    /// Groups whose apps must not be moved, with the reason (for example another operation holds the group).
    #[serde(default)]
    pub excluded: std::collections::BTreeMap<Uuid, String>,
    /// Destinations where an app recently did not become ready.
    #[serde(default)]
    pub refused: Vec<RefusedDestination>,
    /// Claims that will be released before the plan is carried out: they do not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub released: Vec<Uuid>,
    /// Compute the plan without storing it.
    #[serde(default)]
    pub dry_run: bool,
    /// Answer `capacity_unknown` instead of `infeasible` if a plan may become possible when the capacity of more clusters is known.
    #[serde(default)]
    pub patient: bool,
    /// The operation that the plan is made for. When that operation ends or plans again without using the plan, the plan is superseded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Uuid>,
    /// Lowest sequence number of the ledger to plan on: that of the decision that found no room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_seq: Option<i64>,
    /// How to search for the plan.
    #[serde(default, skip_serializing_if = "PlanSearch::is_default")]
    pub search: PlanSearch,
    /// Only apps of these projects may be moved; absent: of all projects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub movable_projects: Option<Vec<String>>,
}

/// Options of the search for a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanSearch {
    /// Time limit in seconds, 0.001 to 20. Absent: the default of migration (`--plan-seconds`, 0.05).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Spend the time on a plan with fewer moves instead of using the first plan in the order of the policy.
    #[serde(default)]
    pub fewest_moves: bool,
}

impl PlanSearch {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Body of `POST /v2/plans`: make a plan without carrying it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum PlanWish {
    /// Make room for an approved deployment intent group.
    Newcomer {
        project: String,
        #[serde(rename = "compositeApp")]
        composite_app: String,
        #[serde(rename = "compositeAppVersion")]
        composite_app_version: String,
        #[serde(rename = "deploymentIntentGroup")]
        deployment_intent_group: String,
    },
    /// Move all apps away from a cluster.
    Drain {
        #[serde(rename = "clusterProvider")]
        cluster_provider: String,
        cluster: String,
    },
    /// Not available yet: the answer is an error.
    Rebalance {},
}

/// A stored plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanDocument {
    pub id: Uuid,
    /// The purpose of the plan: `newcomer`, `drain` or `relieve`.
    pub kind: PlanSubject,
    pub state: PlanState,
    /// Why an app is to move although nobody needs its room: what an agent reports of it, and the policy for which that is a reason, or
    /// that it has grown beyond the room there. Only plans of the kind `relieve` have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why the plan was refused or superseded, or what became of the room although it was applied; for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The operation that carries the plan out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Uuid>,
    /// The plan; absent if none is possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// Why no plan is possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infeasible: Option<Infeasible>,
    /// Name of the policy that ranked the candidates; empty if no policy was active.
    pub policy: String,
    /// Version of the feed `fleet` on which the plan was made.
    #[serde(alias = "made_on")]
    pub made_on: String,
    /// Time in RFC 3339.
    #[serde(alias = "created_at")]
    pub created_at: String,
}

/// The purpose of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlanSubject {
    /// Make room for this group.
    Newcomer(DigRef),
    /// Empty this cluster.
    Drain(MemberKey),
    /// Move an app off this cluster: it suffers there, as a policy says, or it has grown beyond the room there.
    Relieve(MemberKey),
}

impl From<&PlanKind> for PlanSubject {
    fn from(kind: &PlanKind) -> Self {
        match kind {
            PlanKind::Newcomer { dig, .. } => Self::Newcomer(dig.clone()),
            PlanKind::Drain { member } => Self::Drain(member.clone()),
            PlanKind::Relieve { member, .. } => Self::Relieve(member.clone()),
        }
    }
}

/// Answer of `GET /internal/reliefs`: where apps suffer, as policies say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReliefList {
    /// The clusters from which an app should be moved now.
    pub items: Vec<Relief>,
    /// All apps of which a value is too high, also if it is not time yet.
    #[serde(default)]
    pub suffering: Vec<SufferingApp>,
}

/// An app of which a value that its project's policy names is too high.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SufferingApp {
    pub project: String,
    /// Name of the policy.
    pub policy: String,
    /// The claim of the app.
    pub claim: Uuid,
    pub member: MemberKey,
    /// Which value, and for how long, for people.
    pub reason: String,
    /// Seconds for which it has been too high.
    pub seconds: u32,
    /// Seconds for which it must be too high until one of the apps that suffer there is moved.
    pub for_seconds: u32,
}

/// A cluster from which an app of a project should be moved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Relief {
    pub project: String,
    /// Name of the policy that says so.
    pub policy: String,
    pub member: MemberKey,
    /// Claims of the apps of which one is to move.
    pub claims: Vec<Uuid>,
    /// Clusters that are no better.
    pub avoid: Vec<MemberKey>,
    /// Why it is time, for people.
    pub reason: String,
    /// Seconds after a move or an attempt for which there is to be no other one.
    pub rest_seconds: u32,
}

/// State of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlanState {
    /// It was made, and reserves nothing.
    Proposed,
    /// An operation carries it out.
    Accepted,
    /// Its moves were made.
    Applied,
    /// An operation tried to carry it out; everything is as before.
    Refused,
    /// It was not used and is no longer needed.
    Superseded,
    /// A user discarded it.
    Discarded,
    /// There is no plan; the reasons are stored.
    Infeasible,
}

/// Body of `PUT /internal/plans/{id}/state`: accepts a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanAcceptance {
    /// The operation that carries the plan out. Accepting a plan again for the same operation changes nothing.
    pub operation: Uuid,
}

/// A list of plans, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanList {
    pub items: Vec<PlanDocument>,
}
