//! Plans as documents (migration).

use drover_scheduling::{DigRef, Infeasible, MemberKey, Plan, PlanKind, RefusedDestination};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// `PUT /internal/plans/{id}`: make a plan for this.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanOrder {
    /// What for.
    #[serde(flatten)]
    pub kind: PlanKind,
    /// Groups that are busy, with the reason shown.
    #[serde(default)]
    pub excluded: std::collections::BTreeMap<Uuid, String>,
    /// Destinations at which an app recently did not become Ready.
    #[serde(default)]
    pub refused: Vec<RefusedDestination>,
    /// Compute only; store nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Rather `capacity_unknown` than no plan, where that may change as soon as more clusters have been heard of.
    #[serde(default)]
    pub patient: bool,
    /// Plan on a ledger at least as new as this (the sequence of the decision that found no room).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_seq: Option<i64>,
    /// How to search for the plan.
    #[serde(default, skip_serializing_if = "PlanSearch::is_default")]
    pub search: PlanSearch,
}

/// Options of the search for a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
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

/// `POST /v2/plans`: make a plan without carrying it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum PlanWish {
    /// For an approved deployment intent group.
    Newcomer {
        /// Project.
        project: String,
        /// Composite app.
        #[serde(rename = "compositeApp")]
        composite_app: String,
        /// Its version.
        #[serde(rename = "compositeAppVersion")]
        composite_app_version: String,
        /// Deployment intent group.
        #[serde(rename = "deploymentIntentGroup")]
        deployment_intent_group: String,
    },
    /// Everything off a cluster.
    Drain {
        /// Provider.
        #[serde(rename = "clusterProvider")]
        cluster_provider: String,
        /// Cluster.
        cluster: String,
    },
    /// Comes later.
    Rebalance {},
}

/// A stored plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanDocument {
    /// Id.
    pub id: Uuid,
    /// `newcomer` or `drain`.
    pub kind: PlanSubject,
    /// State.
    pub state: PlanState,
    /// Operation that carries it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Uuid>,
    /// The plan (absent: infeasible).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infeasible: Option<Infeasible>,
    /// Name of the policy that ordered the candidates; empty: none was active.
    pub policy: String,
    /// Ledger sequence (version of the fleet feed) it was made on.
    pub made_on: String,
    /// RFC 3339.
    pub created_at: String,
}

/// What a plan is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlanSubject {
    /// Room for this group.
    Newcomer(DigRef),
    /// Emptying this member.
    Drain(MemberKey),
}

/// State of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlanState {
    /// Made, holds nothing.
    Proposed,
    /// Being or been carried out.
    Accepted,
    /// Thrown away.
    Discarded,
    /// There is none.
    Infeasible,
}

/// `PUT /internal/plans/{id}/state`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanAcceptance {
    /// The operation that carries it out. Accepting again for the same operation is fine.
    pub operation: Uuid,
}

/// Plans, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanList {
    /// The plans.
    pub items: Vec<PlanDocument>,
}
