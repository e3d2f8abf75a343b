//! Where an app may run: placement intents with their defaults.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{CallTerms, Demand, MemberKey, Reachability};

/// One app of a request, with its demand and terms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AppRequest {
    /// Name of the app within its composite app.
    pub app: String,
    pub demand: Demand,
    pub terms: PlacementTerms,
}

/// Where an app may run, with all defaults filled in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PlacementTerms {
    /// The placement intent. Labels are resolved when a decision is made.
    pub intent: Intent,
    /// The members of its logical cloud. Members outside are never used. `onprem+*` stands for every cluster of `onprem`, and `*+*` for
    /// every cluster.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<MemberKey>))]
    #[serde(alias = "logical_cloud")]
    pub logical_cloud: Arc<[MemberKey]>,
    /// What to do if the best provider is full.
    #[serde(default, alias = "when_full")]
    pub when_full: WhenFull,
    /// How to choose among members of equal provider priority.
    #[serde(default)]
    pub packing: Packing,
    /// Whether the app may be moved although other pods may call its Services. Absent: only within its pod
    /// network, where the names of its Services follow.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "allow_dependants")]
    pub allow_dependants: Option<bool>,
    /// Its calls. Absent: it is placed on its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<CallTerms>,
    /// The ways by which the data path can reach the Services of its routes. Empty: it has no route, or its routes may lead nowhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty", alias = "reached_by")]
    pub reached_by: Vec<Reachability>,
    /// What controllers say about members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<Advice>,
}

impl PlacementTerms {
    /// Who excludes a member, and why.
    pub(crate) fn excluded(&self, member: &MemberKey) -> Option<(&str, &str)> {
        self.advice.iter().find_map(|advice| Some((advice.controller.as_str(), advice.excluded.get(member)?.as_str())))
    }

    /// The sum of the scores that controllers give to a member.
    pub(crate) fn score(&self, member: &MemberKey) -> i64 {
        self.advice.iter().filter_map(|advice| advice.scores.get(member)).fold(0, |sum, score| sum.saturating_add(*score))
    }
}

/// What a controller says about the members where an app might be placed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Advice {
    /// Name of the controller.
    pub controller: String,
    /// The members where the app must not be placed, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, String>))]
    pub excluded: BTreeMap<MemberKey, String>,
    /// Among members of equal provider priority those with the highest sum of scores are preferred. A member without a score has 0.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, i64>))]
    pub scores: BTreeMap<MemberKey, i64>,
}

/// EMCO's placement intent. Each element of `all_of` is mandatory: a cluster, every cluster with a label, or one cluster of a nested
/// `any_of`. Of the top-level `any_of` exactly one cluster is chosen. A group with a cluster that is already chosen is satisfied.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Intent {
    #[serde(default, rename = "allOf", alias = "allof", skip_serializing_if = "Vec::is_empty")]
    pub all_of: Vec<Element>,
    #[serde(default, rename = "anyOf", alias = "anyof", skip_serializing_if = "Vec::is_empty")]
    pub any_of: Vec<Element>,
}

/// One element of a placement intent: a provider with either a cluster or a label, or, inside `allOf`, alternatives. The cluster `*` stands
/// for every cluster of the provider, the provider `*` for every provider; both also for those that are registered later.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Element {
    #[serde(default, rename = "clusterProvider", skip_serializing_if = "Option::is_none")]
    pub cluster_provider: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Label of clusters of the provider.
    #[serde(default, rename = "clusterLabel", skip_serializing_if = "Option::is_none")]
    pub cluster_label: Option<String>,
    #[serde(default, rename = "anyOf", skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(no_recursion))]
    pub any_of: Vec<Element>,
}

impl Element {
    /// Whether it means a cluster with these labels: by its name, as one of all (`*`), or by a label. Its alternatives are not looked at.
    pub fn means(&self, member: &MemberKey, has_label: impl Fn(&String) -> bool) -> bool {
        let provider = self.cluster_provider.as_deref().unwrap_or_default();
        let of_provider = provider == MemberKey::EVERY || provider == member.provider();
        match (&self.cluster, &self.cluster_label) {
            (Some(cluster), _) if cluster == MemberKey::EVERY => of_provider,
            (Some(cluster), _) => provider == member.provider() && cluster == member.cluster(),
            (None, Some(label)) => of_provider && has_label(label),
            (None, None) => false,
        }
    }
}

/// What to do if the best provider of an app is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// Use less preferred members; relocate other apps only if none of them has room.
    #[default]
    Overflow,
    /// Insist on the best provider: relocate other apps first, and use less preferred members only if no plan is feasible.
    Preferred,
}

/// How to choose among members of equal provider priority with room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Packing {
    /// The member with the most room left.
    #[default]
    Spread,
    /// The fullest member with room.
    Tight,
}

/// The rate of calls between two apps, as the sum of both directions, in millionths.
pub(crate) fn calls_between(a: &AppRequest, b: &AppRequest) -> u64 {
    let declared = |from: &AppRequest, to: &AppRequest| -> u64 {
        let calls = from.terms.calls.iter().flat_map(|calls| &calls.to);
        calls.filter(|call| call.app == to.app).map(|call| call.micro_calls).sum()
    };
    declared(a, b) + declared(b, a)
}
