//! Calls between the apps of a deployment intent group: types, and the distance between members. Apps are placed by their calls in
//! `call_placement.rs`.

use serde::{Deserialize, Serialize};

use crate::MemberKey;

/// Calls are transmitted in millionths.
pub(crate) const MICRO: f64 = 1e-6;

/// The calls of one app. Absent if none were declared or measured: the app is then placed on its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CallTerms {
    /// The apps that it calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<CallTo>,
    /// The largest number of apps in a group; 1 disables grouping.
    pub rho: u32,
    /// A group without room for all its apps at the preferred provider goes to the next provider as a whole instead of being split.
    #[serde(default, alias = "keep_together")]
    pub keep_together: bool,
    /// Latencies between clusters. A pair that is not listed costs as much as the slowest listed pair; without any, all pairs are equal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latencies: Vec<Latency>,
    /// What chooses the members of groups and apps.
    #[serde(default, skip_serializing_if = "GroupPolicy::is_default")]
    pub policy: GroupPolicy,
}

/// What chooses the members of groups and apps, among those of equal provider priority with room. Both are followed by a local search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum GroupPolicy {
    /// Group by group, each on the member where the objective is least.
    #[default]
    CgsGreedy,
    /// A trained network. Where `cgs-greedy` has the better objective, its placement is taken.
    Learned,
}

impl GroupPolicy {
    /// Its name for users, as in a call graph.
    pub fn name(self) -> &'static str {
        match self {
            Self::CgsGreedy => "cgs-greedy",
            Self::Learned => "learned",
        }
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl CallTerms {
    /// Microseconds between two members. A pair that is not listed counts as the slowest listed pair.
    pub(crate) fn latency(&self, a: &MemberKey, b: &MemberKey) -> u32 {
        if a == b {
            return 0;
        }
        let said = self.latencies.iter().find(|l| (l.from == *a && l.to == *b) || (l.from == *b && l.to == *a));
        said.map_or_else(|| self.latencies.iter().map(|l| l.us).max().unwrap_or_default(), |said| said.us)
    }

    /// The cost of a call between two members: the latency in microseconds, or 1 for each pair if no latencies are known.
    pub(crate) fn distance(&self, a: &MemberKey, b: &MemberKey) -> f64 {
        if self.latencies.is_empty() { f64::from(u8::from(a != b)) } else { f64::from(self.latency(a, b)) }
    }
}

/// Calls from one app to another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CallTo {
    /// The called app.
    pub app: String,
    /// Rate in millionths of a call. All apps of a group use the same unit (per request or per second).
    #[serde(alias = "micro_calls")]
    pub micro_calls: u64,
}

/// The latency between two clusters, the same in both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Latency {
    pub from: MemberKey,
    pub to: MemberKey,
    /// Microseconds of a round trip.
    pub us: u32,
}

/// The effect of calls on the placement of a deployment intent group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CallStory {
    /// The largest allowed number of apps in a group.
    pub rho: u32,
    /// The groups, sorted by their first app.
    pub groups: Vec<CallGroup>,
    /// Share of all calls that are between groups, 0 to 1.
    #[serde(alias = "between_groups")]
    pub between_groups: f64,
    /// Share of all calls that leave their cluster, 0 to 1. Absent if not placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crossing: Option<f64>,
    /// Mean round-trip time between clusters over all calls of the group, in microseconds. Absent if not placed or if no latencies are
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "waiting_us")]
    pub waiting_us: Option<f64>,
    /// How the members were chosen. Absent if the groups were not placed by their calls, or run already.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "chosen_by")]
    pub chosen_by: Option<PolicyStory>,
}

/// How a policy chose the members of groups and apps. Objectives are values of f (docs/how-to/group-placement.md); lower is better.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PolicyStory {
    /// The policy of the call graph.
    pub policy: GroupPolicy,
    /// The policy whose placement was taken: `cgs-greedy` instead of `learned` where that is better.
    pub taken: GroupPolicy,
    /// The objective of the placement.
    pub objective: f64,
    /// The objective of the placement of `cgs-greedy`, with which `learned` is compared. Absent for `cgs-greedy`, and if that found no room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub greedy: Option<f64>,
    /// The objective of the placement of `learned`. Absent for `cgs-greedy`, and if `learned` found no room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned: Option<f64>,
    /// The passes that `learned` made; the best one counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passes: Option<u32>,
    /// What the policy whose placement was taken saw, step by step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<PolicyStep>,
    /// The objective before the local search.
    #[serde(alias = "before_search")]
    pub before_search: f64,
    /// What the local search moved, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<SearchMove>,
}

/// One step of a policy: it places apps together, or decides that they are placed in parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PolicyStep {
    pub apps: Vec<String>,
    /// The chosen member. Absent: the apps are placed in parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<MemberKey>,
    /// Number of members that were options.
    pub options: u32,
    /// The score of the choice: of `learned` that of its network, higher is better; of `cgs-greedy` the objective, lower is better.
    pub score: f64,
    /// The next best member, with its score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<ScoredMember>,
    /// Share of the calls to apps placed before that stay in the cluster, 0 to 1. Absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<f64>,
    /// The used share of the chosen member before and after the step: the mean over CPU and memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadChange>,
}

/// A member with the score that a policy gives it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ScoredMember {
    pub member: MemberKey,
    pub score: f64,
}

/// The used share of a member, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LoadChange {
    pub before: f64,
    pub after: f64,
}

/// A move of the local search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SearchMove {
    pub apps: Vec<String>,
    pub from: MemberKey,
    pub to: MemberKey,
}

/// Apps that are placed together if possible.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CallGroup {
    pub apps: Vec<String>,
    /// Their members. More than one if the group was split or an app runs on several members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberKey>,
}
