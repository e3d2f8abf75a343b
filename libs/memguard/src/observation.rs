//! One observation of a node and its containers at one moment.
//!
//! A missing value is not zero: every measured value is a [`Reading`], which knows when it was taken and may be missing. No container is
//! ever held on the basis of a missing or outdated reading.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Moment;
use crate::eligibility::Permission;

/// A measured value, or none if it could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reading<T> {
    #[default]
    Missing,
    #[serde(rename_all = "camelCase")]
    Seen { value: T, at: Moment },
}

impl<T> Reading<T> {
    /// A value that was read at `at`.
    pub fn seen(value: T, at: Moment) -> Self {
        Self::Seen { value, at }
    }

    /// The value, if it is at most `max_age` old. A reading from the future comes from another clock and does not count.
    pub fn fresh(&self, now: Moment, max_age: Duration) -> Option<&T> {
        match self {
            Self::Seen { value, at } if *at <= now && now.since(*at) <= max_age => Some(value),
            _ => None,
        }
    }
}

/// Memory of the node, or of the cgroup that is treated as the node, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeMemory {
    /// In use and not reclaimable at once: `MemTotal - MemAvailable`, or usage minus inactive file pages.
    pub used: u64,
    pub capacity: u64,
}

/// Id of a container, as the runtime names it. A restarted container has a new one.
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

/// How a container is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Lever {
    /// By the freezer: nothing runs, nothing is allocated, no probe is answered.
    Freeze,
    /// By a tiny CPU quota (the paper's way): the container still runs slowly, and so still allocates.
    Quota,
}

/// A `memory.high` lease: the guard has set `memory.high` of a running container for a limited time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryHighLease {
    /// `memory.high` in bytes.
    pub high: u64,
    /// Begin of the lease. Changing `high` does not restart it.
    pub since: Moment,
}

/// What a container is doing, as read from the node, which may differ from what the guard last requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "is")]
pub enum Activity {
    /// Created, and held at the start gate before it allocated anything.
    #[serde(rename_all = "camelCase")]
    AtGate { since: Moment },
    /// Running, perhaps under a `memory.high` lease.
    #[serde(rename_all = "camelCase")]
    Running { lease: Option<MemoryHighLease> },
    /// Paused by the guard. A container that something else has paused is not eligible.
    #[serde(rename_all = "camelCase")]
    Paused { since: Moment, lever: Lever },
}

/// A container of the node that has not exited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    pub id: ContainerId,
    /// `namespace/pod/container`.
    pub name: Arc<str>,
    /// When its process started, or when it began to wait at the start gate.
    pub started: Moment,
    /// Working set in bytes: usage minus inactive file pages.
    pub memory: Reading<u64>,
    /// Memory limit in bytes; `None` if the container has no limit.
    pub limit: Option<u64>,
    pub activity: Activity,
    /// Whether and how the guard may hold it: the result of [`crate::eligibility::judge`].
    pub permission: Permission,
    /// Priority of its pod. Containers of a higher priority are held later.
    #[serde(default)]
    pub priority: i32,
    /// PodDisruptionBudgets that select its pod, as keys of [`Observation::budgets`].
    #[serde(default)]
    pub budgets: Vec<Arc<str>>,
}

/// Everything that was read from a node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observation {
    pub node: Reading<NodeMemory>,
    pub containers: Vec<Container>,
    /// `disruptionsAllowed` of each PodDisruptionBudget, **not** reduced by the pauses of the guard: the guard counts those itself. A
    /// budget that a container names and that is not listed here allows nothing.
    #[serde(default)]
    pub budgets: BTreeMap<Arc<str>, u32>,
}
