//! Where an app may run: placement intents and their defaults.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{CallTerms, Demand, MemberKey};

/// One app of a request: what it needs and where it may go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AppRequest {
    /// Name of the app in its composite app.
    pub app: String,
    /// What it needs.
    pub demand: Demand,
    /// Where it may run.
    pub terms: PlacementTerms,
}

/// Where an app may run, with every default filled in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PlacementTerms {
    /// The placement intent (labels are expanded when the decision is made).
    pub intent: Intent,
    /// Members of its logical cloud; nothing outside is ever used.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<MemberKey>))]
    pub logical_cloud: Arc<[MemberKey]>,
    /// What to do when the best provider is full.
    #[serde(default)]
    pub when_full: WhenFull,
    /// Which of equally preferred members.
    #[serde(default)]
    pub packing: Packing,
    /// Whether the app may be moved although others may call its Services by name.
    #[serde(default)]
    pub allow_dependants: bool,
    /// Whom it calls; absent: it is placed on its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<CallTerms>,
}

/// EMCO's placement intent. Each `all_of` element is mandatory (a label: each cluster that carries it; a nested
/// `any_of`: one of them); of `any_of` exactly one cluster is chosen. A group that already contains a chosen cluster is satisfied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Intent {
    /// Mandatory elements.
    #[serde(default, rename = "allOf", alias = "allof", skip_serializing_if = "Vec::is_empty")]
    pub all_of: Vec<Element>,
    /// Alternatives.
    #[serde(default, rename = "anyOf", alias = "anyof", skip_serializing_if = "Vec::is_empty")]
    pub any_of: Vec<Element>,
}

/// One element of a placement intent: a provider with either a cluster or a label, or (inside `allOf`) alternatives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Element {
    /// Provider name.
    #[serde(default, rename = "clusterProvider", skip_serializing_if = "Option::is_none")]
    pub cluster_provider: Option<String>,
    /// Cluster name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Label of clusters of that provider.
    #[serde(default, rename = "clusterLabel", skip_serializing_if = "Option::is_none")]
    pub cluster_label: Option<String>,
    /// Alternatives.
    #[serde(default, rename = "anyOf", skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(no_recursion))]
    pub any_of: Vec<Element>,
}

/// What to do when an app's best provider is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// Use less preferred members; plan a relocation only when none has room.
    #[default]
    Overflow,
    /// Insist on the best provider: plan for it first, overflow only without a feasible plan.
    Preferred,
}

/// Which of equally preferred members with room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Packing {
    /// The one with the most room left.
    #[default]
    Spread,
    /// The fullest that fits.
    Tight,
}

/// Calls between two apps, both directions added up, in millionths of a call.
pub(crate) fn calls_between(a: &AppRequest, b: &AppRequest) -> u64 {
    let declared = |from: &AppRequest, to: &AppRequest| -> u64 {
        let calls = from.terms.calls.iter().flat_map(|calls| &calls.to);
        calls.filter(|call| call.app == to.app).map(|call| call.micro_calls).sum()
    };
    declared(a, b) + declared(b, a)
}
