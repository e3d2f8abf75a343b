//! Calls between the apps of a deployment intent group, as they matter for where the apps go. Types, and how far members are
//! from each other; who is put where because of them: `together.rs`.

use serde::{Deserialize, Serialize};

use crate::MemberKey;

/// Calls are told in millionths.
pub(crate) const MICRO: f64 = 1e-6;

/// What is said of one app's calls; absent: nobody declared or measured any, and the app is placed on its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CallTerms {
    /// Whom it calls, by app.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<CallTo>,
    /// At most so many apps in a group; 1: nobody belongs together.
    pub rho: u32,
    /// A group that has no room together at the better provider goes together to the next one instead of being taken apart.
    #[serde(default)]
    pub keep_together: bool,
    /// What calls between clusters cost. A pair that is not here costs as much as the dearest that is; none: all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latencies: Vec<Latency>,
}

impl CallTerms {
    /// Microseconds between two members; those of which nothing is said are as far as the farthest of which something is.
    pub(crate) fn latency(&self, a: &MemberKey, b: &MemberKey) -> u32 {
        if a == b {
            return 0;
        }
        let said = self.latencies.iter().find(|l| (l.from == *a && l.to == *b) || (l.from == *b && l.to == *a));
        said.map_or_else(|| self.latencies.iter().map(|l| l.us).max().unwrap_or_default(), |said| said.us)
    }

    /// What a call between two members costs: its latency, or the same for all where none are known.
    pub(crate) fn distance(&self, a: &MemberKey, b: &MemberKey) -> f64 {
        if self.latencies.is_empty() { f64::from(u8::from(a != b)) } else { f64::from(self.latency(a, b)) }
    }
}

/// One app calls another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CallTo {
    /// The called app.
    pub app: String,
    /// How often, in millionths of a call, so long as one group keeps to one unit (per request, per second).
    pub micro_calls: u64,
}

/// How far two clusters are from each other, in both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Latency {
    /// One.
    pub from: MemberKey,
    /// The other.
    pub to: MemberKey,
    /// Microseconds of a round trip.
    pub us: u32,
}

/// What the calls of a deployment intent group made of its placement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CallStory {
    /// The bound of the groups' size.
    pub rho: u32,
    /// The groups, by their first app.
    pub groups: Vec<CallGroup>,
    /// Share of all calls that are between groups, 0..1.
    pub between_groups: f64,
    /// Share of all calls that leave their cluster, 0..1; absent: not placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crossing: Option<f64>,
    /// Those calls times the round trip each takes, microseconds for each call of the group; absent: not placed, or no
    /// latencies are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_us: Option<f64>,
}

/// Apps that belong together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CallGroup {
    /// The apps.
    pub apps: Vec<String>,
    /// Where they are; several: the group was taken apart (or an app runs on several).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberKey>,
}
