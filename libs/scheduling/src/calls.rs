//! Calls between the apps of a deployment intent group: types, and the distance between members. Apps are placed by their calls in
//! `call_placement.rs`.

use serde::{Deserialize, Serialize};

use crate::MemberKey;

/// Calls are transmitted in millionths.
pub(crate) const MICRO: f64 = 1e-6;

/// The calls of one app. Absent if none were declared or measured: the app is then placed on its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CallTerms {
    /// The apps that it calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<CallTo>,
    /// The largest number of apps in a group; 1 disables grouping.
    pub rho: u32,
    /// A group without room for all its apps at the preferred provider goes to the next provider as a whole instead of being split.
    #[serde(default)]
    pub keep_together: bool,
    /// Latencies between clusters. A pair that is not listed costs as much as the slowest listed pair; without any, all pairs are equal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latencies: Vec<Latency>,
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
pub struct CallTo {
    /// The called app.
    pub app: String,
    /// Rate in millionths of a call. All apps of a group use the same unit (per request or per second).
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
pub struct CallStory {
    /// The largest allowed number of apps in a group.
    pub rho: u32,
    /// The groups, sorted by their first app.
    pub groups: Vec<CallGroup>,
    /// Share of all calls that are between groups, 0 to 1.
    pub between_groups: f64,
    /// Share of all calls that leave their cluster, 0 to 1. Absent if not placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crossing: Option<f64>,
    /// Mean round-trip time between clusters over all calls of the group, in microseconds. Absent if not placed or if no latencies are
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_us: Option<f64>,
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
