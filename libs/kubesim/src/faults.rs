//! Faults that tests inject into a cluster.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::SignedDuration;
use tokio::sync::watch;

/// A fault. Lasting ones stay until cleared; `CutWatches` and `Gone410` happen once.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// Nothing reaches the API server. Requests fail at once, or hang until the fault is cleared; watches break or fall silent.
    Partition {
        /// Hang instead of refusing.
        hang: bool,
    },
    /// Every answer is delayed by a random time between the two.
    Latency {
        /// Shortest delay.
        min: Duration,
        /// Longest delay.
        max: Duration,
    },
    /// A share of the requests is answered with this status.
    Status {
        /// HTTP status, e.g. 429, 500, 503.
        code: u16,
        /// 0 to 1.
        rate: f64,
    },
    /// Like `Status`, but only for requests that write.
    WriteStatus {
        /// HTTP status.
        code: u16,
        /// 0 to 1.
        rate: f64,
    },
    /// Requests whose path contains this text are answered with this status, like those of a failing webhook (only writes), an
    /// aggregated API that is down, or a kind that cannot be listed.
    Path {
        /// A part of the path, e.g. `/configmaps` or `/apis/example.com`.
        contains: String,
        /// Only requests that write.
        writes: bool,
        /// HTTP status.
        code: u16,
    },
    /// Writes take effect, but a share of their answers is lost: the connection breaks.
    LostAnswers {
        /// 0 to 1.
        rate: f64,
    },
    /// Every request is answered 401, whatever its token.
    Unauthorized,
    /// The cluster's clock, and so its timestamps, differ from the real time by this.
    ClockSkew(SignedDuration),
    /// All watches end now.
    CutWatches,
    /// The log is compacted now: watches that are behind, or start at an older revision, are answered 410.
    Gone410,
}

/// The faults of a cluster.
pub struct Faults {
    active: Mutex<Vec<Fault>>,
    epoch: watch::Sender<u64>,
}

impl Default for Faults {
    fn default() -> Self {
        Self { active: Mutex::default(), epoch: watch::Sender::new(0) }
    }
}

impl Faults {
    fn active(&self) -> std::sync::MutexGuard<'_, Vec<Fault>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a lasting fault and removes one of the same variant.
    pub fn set(&self, fault: Fault) {
        let mut active = self.active();
        active.retain(|f| std::mem::discriminant(f) != std::mem::discriminant(&fault));
        active.push(fault);
        drop(active);
        self.wake();
    }

    pub fn clear(&self) {
        self.active().clear();
        self.wake();
    }

    /// Wakes everyone who waits for the faults to change.
    fn wake(&self) {
        self.epoch.send_modify(|_| {});
    }

    /// Ends all watches that are open.
    pub fn cut_watches(&self) {
        self.epoch.send_modify(|epoch| *epoch += 1);
    }

    /// Changes with every change of the faults; its value counts how often watches were cut.
    pub fn epoch(&self) -> watch::Receiver<u64> {
        self.epoch.subscribe()
    }

    /// `Some(hang)` while the cluster is cut off.
    pub fn partition(&self) -> Option<bool> {
        self.active().iter().find_map(|f| if let Fault::Partition { hang } = f { Some(*hang) } else { None })
    }

    pub fn latency(&self) -> Option<Duration> {
        self.active().iter().find_map(|f| match f {
            Fault::Latency { min, max } => Some(rand::random_range(*min..=(*max).max(*min))),
            _ => None,
        })
    }

    /// The status a request is answered with instead of its own.
    pub fn status(&self, write: bool, path: &str) -> Option<u16> {
        self.active().iter().find_map(|f| match f {
            Fault::Path { contains, writes, code } if (write || !writes) && path.contains(contains) => Some(*code),
            Fault::Unauthorized => Some(401),
            Fault::Status { code, rate } if rand::random_bool(rate.clamp(0.0, 1.0)) => Some(*code),
            Fault::WriteStatus { code, rate } if write && rand::random_bool(rate.clamp(0.0, 1.0)) => Some(*code),
            _ => None,
        })
    }

    /// Whether the answer of a write is to be lost.
    pub fn loses_answer(&self) -> bool {
        self.active().iter().any(|f| matches!(f, Fault::LostAnswers { rate } if rand::random_bool(rate.clamp(0.0, 1.0))))
    }

    /// Returns once the cluster can be reached.
    ///
    /// # Errors
    /// While a partition refuses connections.
    pub async fn reachable(&self) -> Result<(), Unreachable> {
        let mut epoch = self.epoch();
        loop {
            match self.partition() {
                None => return Ok(()),
                Some(false) => return Err(Unreachable),
                Some(true) => epoch.changed().await.map_err(|_| Unreachable)?,
            }
        }
    }
}

/// The connection is refused or breaks.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("connection refused (simulated partition)")]
pub struct Unreachable;
