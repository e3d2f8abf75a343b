//! What is seen of a node and its containers at one moment.
//!
//! Not seen is not zero: every measured value is a [`Reading`], which knows when it was taken and may be missing. Nobody is ever paused
//! on the strength of a missing or old one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Moment;
use crate::eligibility::Permission;

/// A measured value, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reading<T> {
    /// Could not be read.
    #[default]
    Missing,
    /// Was read.
    #[serde(rename_all = "camelCase")]
    Seen {
        /// The value.
        value: T,
        /// When.
        at: Moment,
    },
}

impl<T> Reading<T> {
    /// A value read at `at`.
    pub fn seen(value: T, at: Moment) -> Self {
        Self::Seen { value, at }
    }

    /// The value if it is not older than `max_age` (nor from the future, which would be another clock).
    pub fn fresh(&self, now: Moment, max_age: Duration) -> Option<&T> {
        match self {
            Self::Seen { value, at } if *at <= now && now.since(*at) <= max_age => Some(value),
            _ => None,
        }
    }
}

/// Memory of the node (or of the cgroup that stands for it), in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeMemory {
    /// In use and not reclaimable at once: `MemTotal - MemAvailable`, or usage minus inactive file pages.
    pub used: u64,
    /// All there is.
    pub capacity: u64,
}

/// Id of a container, as the runtime names it. A restarted container is another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContainerId(pub Arc<str>);

impl From<&str> for ContainerId {
    fn from(id: &str) -> Self {
        Self(id.into())
    }
}

impl From<String> for ContainerId {
    fn from(id: String) -> Self {
        Self(id.into())
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a container is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Lever {
    /// By the freezer: nothing runs, nothing leaks, no probe is answered.
    Freeze,
    /// By a tiny CPU quota (the paper's way): slow instead of stopped; leaks.
    Quota,
}

/// A `memory.high` that the guard set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HighLease {
    /// In bytes.
    pub high: u64,
    /// Since when there is one (not: since its last change).
    pub since: Moment,
}

/// What a container is doing, as found on the node (not as the guard wished it).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "is")]
pub enum Activity {
    /// Created and held before it allocated anything.
    #[serde(rename_all = "camelCase")]
    AtGate {
        /// Since when.
        since: Moment,
    },
    /// Running, perhaps under a `memory.high` of the guard.
    #[serde(rename_all = "camelCase")]
    Running {
        /// The lease.
        lease: Option<HighLease>,
    },
    /// Paused by the guard. (What others have paused is not eligible.)
    #[serde(rename_all = "camelCase")]
    Paused {
        /// Since when.
        since: Moment,
        /// How.
        lever: Lever,
    },
}

/// A container of the node. Exited ones are not listed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    /// Id.
    pub id: ContainerId,
    /// `namespace/pod/container`, for people.
    pub name: Arc<str>,
    /// When its process started (or was held at the gate).
    pub started: Moment,
    /// Working set in bytes: usage minus inactive file pages.
    pub memory: Reading<u64>,
    /// Memory limit in bytes; none is none.
    pub limit: Option<u64>,
    /// What it is doing.
    pub activity: Activity,
    /// Whether and how the guard may touch it: the answer of [`crate::eligibility::judge`].
    pub permission: Permission,
    /// Priority of its pod; a higher one is paused later.
    #[serde(default)]
    pub priority: i32,
    /// PodDisruptionBudgets that select its pod: keys of [`Observation::budgets`].
    #[serde(default)]
    pub budgets: Vec<Arc<str>>,
}

/// Everything seen at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observation {
    /// The node.
    pub node: Reading<NodeMemory>,
    /// Its containers.
    pub containers: Vec<Container>,
    /// `disruptionsAllowed` of each PodDisruptionBudget, **without** what the guard has paused itself (it counts that on its own).
    /// A budget that is named by a container and not listed here allows nothing.
    #[serde(default)]
    pub budgets: BTreeMap<Arc<str>, u32>,
}
