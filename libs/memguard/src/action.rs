//! What is to be done, and why.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{ContainerId, Lever, Moment};

/// One thing to do on the node. Doing it twice does no harm, and the guard looks at the next observation to see whether it was done:
/// an action that failed is simply asked for again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "do")]
pub enum Action {
    /// Stop the container. Whoever carries it out notes `until` before acting and resumes at that moment even if the guard is gone.
    #[serde(rename_all = "camelCase")]
    Pause {
        /// Whom.
        container: ContainerId,
        /// How.
        lever: Lever,
        /// The latest moment of its resumption.
        until: Moment,
    },
    /// Let a paused container go on.
    #[serde(rename_all = "camelCase")]
    Resume {
        /// Whom.
        container: ContainerId,
    },
    /// Let the container go on, but grow no further than `high`: set `memory.high` (cgroup v2).
    #[serde(rename_all = "camelCase")]
    Lease {
        /// Whom.
        container: ContainerId,
        /// `memory.high` in bytes.
        high: u64,
        /// The latest moment at which it is taken back.
        until: Moment,
    },
    /// Take the `memory.high` of the guard back.
    #[serde(rename_all = "camelCase")]
    EndLease {
        /// Whom.
        container: ContainerId,
    },
    /// Let a container that is held at the gate start.
    #[serde(rename_all = "camelCase")]
    Admit {
        /// Whom.
        container: ContainerId,
    },
    /// Open or close the gate of the node: tells the scheduler (a taint) whether another container would be let in.
    #[serde(rename_all = "camelCase")]
    Gate {
        /// Open.
        open: bool,
    },
    /// Kill the container so that the others live.
    #[serde(rename_all = "camelCase")]
    Sacrifice {
        /// Whom.
        container: ContainerId,
    },
}

impl Action {
    /// Whom it concerns; the gate concerns the node.
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

    /// Whether it only takes back what the guard did: always allowed, whatever is known or not.
    pub fn releases(&self) -> bool {
        matches!(self, Self::Resume { .. } | Self::EndLease { .. } | Self::Admit { .. } | Self::Gate { open: true })
    }
}

/// Why. Amounts are bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "why")]
pub enum Reason {
    /// The node uses more than the upper bound.
    #[serde(rename_all = "camelCase")]
    AboveUpper {
        /// Used.
        used: u64,
        /// Bound.
        bound: u64,
    },
    /// A round later the node still uses more than the lower bound.
    #[serde(rename_all = "camelCase")]
    AboveLower {
        /// Used.
        used: u64,
        /// Bound.
        bound: u64,
    },
    /// The node uses less than the lower bound.
    #[serde(rename_all = "camelCase")]
    BelowLower {
        /// Used.
        used: u64,
        /// Bound.
        bound: u64,
    },
    /// What it may still take is more than what is left for it.
    #[serde(rename_all = "camelCase")]
    DoesNotFit {
        /// What it may still take.
        need: u64,
        /// What is left after those before it.
        left: u64,
    },
    /// What it may still take is there.
    #[serde(rename_all = "camelCase")]
    Fits {
        /// What it may still take.
        need: u64,
        /// What is left after those before it.
        left: u64,
    },
    /// It grew past its `memory.high` all the same.
    #[serde(rename_all = "camelCase")]
    Leaks {
        /// Working set.
        used: u64,
        /// `memory.high`.
        high: u64,
    },
    /// The memory that the containers are expected to use at the same time would pass what there is.
    #[serde(rename_all = "camelCase")]
    GateFull {
        /// Expected, with it.
        expected: u64,
        /// There is.
        capacity: u64,
    },
    /// The expected memory, with it, is there.
    #[serde(rename_all = "camelCase")]
    GateRoom {
        /// Expected, with it.
        expected: u64,
        /// There is.
        capacity: u64,
    },
    /// It was held as long as it may be.
    #[serde(rename_all = "camelCase")]
    HeldLongEnough {
        /// How long, in milliseconds.
        millis: u64,
    },
    /// Somebody must run: it needs the least of all.
    LastRunnable,
    /// It may not be touched (any more).
    NotEligible,
    /// The memory of the node has not been seen for a while: what is held is let go.
    Blind,
    /// Nobody can grow to the limit any more; the youngest has the least to lose.
    #[serde(rename_all = "camelCase")]
    NobodyFits {
        /// The smallest need.
        need: u64,
        /// Free.
        free: u64,
    },
    /// All are paused and memory is still short (the paper's rule).
    AllPaused,
    /// The policy does not ask for it (any more).
    Unasked,
}

impl Reason {
    /// Held for that long, and longer is not allowed.
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
            Self::DoesNotFit { need, left } => write!(f, "it may still take {}, only {} is left", mib(need), mib(left)),
            Self::Fits { need, left } => write!(f, "it may still take {}, and {} is left", mib(need), mib(left)),
            Self::Leaks { used, high } => write!(f, "it uses {}, past its memory.high of {}", mib(used), mib(high)),
            Self::GateFull { expected, capacity } => write!(f, "with it {} are expected to be used of {}", mib(expected), mib(capacity)),
            Self::GateRoom { expected, capacity } => {
                write!(f, "with it only {} are expected to be used of {}", mib(expected), mib(capacity))
            }
            Self::HeldLongEnough { millis } => write!(f, "it was held for {:.1} s, as long as it may be", *millis as f64 / 1000.0),
            Self::LastRunnable => f.write_str("somebody must run, and it needs the least"),
            Self::NotEligible => f.write_str("it may not be touched"),
            Self::Blind => f.write_str("the memory of the node is not seen, so everything held is let go"),
            Self::NobodyFits { need, free } => {
                write!(f, "nobody can grow to the limit: the smallest need is {}, free is {}; it is the youngest", mib(need), mib(free))
            }
            Self::AllPaused => f.write_str("all are paused and memory is still short"),
            Self::Unasked => f.write_str("the policy does not ask for it"),
        }
    }
}

/// An action and its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// What.
    pub action: Action,
    /// Why.
    pub reason: Reason,
}

impl Decision {
    pub(crate) fn new(action: Action, reason: Reason) -> Self {
        Self { action, reason }
    }
}
