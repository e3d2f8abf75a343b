//! The time of a cluster.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The time of a cluster: tokio's, so that it follows a paused runtime, plus a skew.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Timestamp,
    zero: Instant,
    pub skew: SignedDuration,
}

impl Clock {
    pub fn new() -> Self {
        Self { start: Timestamp::now(), zero: Instant::now(), skew: SignedDuration::ZERO }
    }

    pub fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.zero.elapsed()).unwrap_or(SignedDuration::MAX);
        self.start.saturating_add(elapsed.saturating_add(self.skew)).unwrap_or(Timestamp::MAX)
    }

    /// The time as objects have it: RFC 3339 in whole seconds.
    pub fn stamp(&self) -> String {
        stamp(self.now())
    }
}

/// A time in RFC 3339, in whole seconds.
pub fn stamp(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
