//! The decisions of the guard: what is to be done with a container, and for which reason.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{ContainerId, Lever, Moment};

/// One thing to do on the node. Every action is idempotent. The guard reads from the next observation whether it took effect, so an
/// action that failed is simply requested again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "do")]
pub enum Action {
    /// Pause the container. Whoever carries this out records `until` before acting, and resumes the container at that moment even if the
    /// guard is gone.
    #[serde(rename_all = "camelCase")]
    Pause {
        container: ContainerId,
        lever: Lever,
        /// The container is resumed at this moment at the latest.
        until: Moment,
    },
    /// Resume a paused container.
    #[serde(rename_all = "camelCase")]
    Resume { container: ContainerId },
    /// Let the container run, but not grow past `high`: set `memory.high` (cgroup v2).
    #[serde(rename_all = "camelCase")]
    Lease {
        container: ContainerId,
        /// `memory.high` in bytes.
        high: u64,
        /// The old `memory.high` is restored at this moment at the latest.
        until: Moment,
    },
    /// Restore the `memory.high` that the container had before the lease.
    #[serde(rename_all = "camelCase")]
    EndLease { container: ContainerId },
    /// Let a container that waits at the start gate run.
    #[serde(rename_all = "camelCase")]
    Admit { container: ContainerId },
    /// Open or close the start gate of the node. The agent can show it to the scheduler as a taint: closed means that another container
    /// would have to wait.
    #[serde(rename_all = "camelCase")]
    Gate { open: bool },
    /// Kill the container so that the others can continue.
    #[serde(rename_all = "camelCase")]
    Sacrifice { container: ContainerId },
}

impl Action {
    /// The container that the action concerns; none for the gate, which concerns the node.
    pub fn container(&self) -> Option<&ContainerId> {
        match self {
            Self::Pause { container, .. }
            | Self::Resume { container }
            | Self::Lease { container, .. }
            | Self::EndLease { container }
            | Self::Admit { container }
            | Self::Sacrifice { container } => Some(container),
            Self::Gate { .. } => None,
        }
    }

    /// Whether the action only undoes what the guard did. Such an action is always allowed, even on missing data.
    pub fn releases(&self) -> bool {
        matches!(self, Self::Resume { .. } | Self::EndLease { .. } | Self::Admit { .. } | Self::Gate { open: true })
    }
}

/// The reason of a decision. Amounts are in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "why")]
pub enum Reason {
    #[serde(rename_all = "camelCase")]
    AboveUpper { used: u64, bound: u64 },
    /// One round later the node still uses more than the lower bound.
    #[serde(rename_all = "camelCase")]
    AboveLower { used: u64, bound: u64 },
    #[serde(rename_all = "camelCase")]
    BelowLower { used: u64, bound: u64 },
    /// The container's need exceeds the free memory that is left for it.
    #[serde(rename_all = "camelCase")]
    DoesNotFit {
        need: u64,
        /// Free memory after the containers that come before it, in bytes.
        left: u64,
    },
    /// The container's need fits into the free memory.
    #[serde(rename_all = "camelCase")]
    Fits {
        need: u64,
        /// Free memory after the containers that come before it, in bytes.
        left: u64,
    },
    /// The container grew past the `memory.high` of its lease.
    #[serde(rename_all = "camelCase")]
    Leaks { used: u64, high: u64 },
    /// Start gate: with this container, the expected demand of all containers would exceed the capacity.
    #[serde(rename_all = "camelCase")]
    GateFull {
        /// Expected demand of all containers, this one included.
        expected: u64,
        capacity: u64,
    },
    /// Start gate: the expected demand fits, with this container included.
    #[serde(rename_all = "camelCase")]
    GateRoom {
        /// Expected demand of all containers, this one included.
        expected: u64,
        capacity: u64,
    },
    /// The container was held for the longest time allowed.
    #[serde(rename_all = "camelCase")]
    HeldLongEnough { millis: u64 },
    /// At least one container must run, and this one has the smallest need.
    LastRunnable,
    /// The container may not be held, or not any more.
    NotEligible,
    /// The memory of the node could not be read for some time, so every container is released.
    Blind,
    /// No container can grow to its limit any more; the youngest loses the least work.
    #[serde(rename = "nobodyFits", rename_all = "camelCase")]
    NoContainerFits { need: u64, free: u64 },
    /// All containers are paused and memory is still short (the paper's rule).
    AllPaused,
    /// The policy does not request this, or not any more.
    Unasked,
}

impl Reason {
    /// The reason for releasing a container that was held for `span`, the longest time allowed.
    pub fn held(span: Duration) -> Self {
        Self::HeldLongEnough { millis: u64::try_from(span.as_millis()).unwrap_or(u64::MAX) }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: &u64| format!("{} MiB", bytes / (1 << 20));
        match self {
            Self::AboveUpper { used, bound } => write!(f, "the node uses {}, more than the upper bound of {}", mib(used), mib(bound)),
            Self::AboveLower { used, bound } => write!(f, "the node still uses {}, more than the lower bound of {}", mib(used), mib(bound)),
            Self::BelowLower { used, bound } => write!(f, "the node uses {}, less than the lower bound of {}", mib(used), mib(bound)),
            Self::DoesNotFit { need, left } => write!(f, "it may still take {}, but only {} is free", mib(need), mib(left)),
            Self::Fits { need, left } => write!(f, "it may still take {}, and {} is free", mib(need), mib(left)),
            Self::Leaks { used, high } => write!(f, "it uses {}, more than its memory.high of {}", mib(used), mib(high)),
            Self::GateFull { expected, capacity } => write!(f, "with it, {} of {} are expected to be used", mib(expected), mib(capacity)),
            Self::GateRoom { expected, capacity } => {
                write!(f, "with it, only {} of {} are expected to be used", mib(expected), mib(capacity))
            }
            Self::HeldLongEnough { millis } => write!(f, "it was held for {:.1} s, the longest time allowed", *millis as f64 / 1000.0),
            Self::LastRunnable => f.write_str("at least one container must run, and this one needs the least"),
            Self::NotEligible => f.write_str("it may not be held"),
            Self::Blind => f.write_str("the memory of the node cannot be read, so every container is released"),
            Self::NoContainerFits { need, free } => {
                write!(
                    f,
                    "no container can grow to its limit: the smallest need is {}, only {} are free; this one is the youngest",
                    mib(need),
                    mib(free)
                )
            }
            Self::AllPaused => f.write_str("all containers are paused and memory is still short"),
            Self::Unasked => f.write_str("the policy does not request it"),
        }
    }
}

/// An action with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    pub action: Action,
    pub reason: Reason,
}

impl Decision {
    pub(crate) fn new(action: Action, reason: Reason) -> Self {
        Self { action, reason }
    }
}
