//! The time that policies see: the wall clock at the start, continued by a monotonic clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Seconds since 1970 that never go backwards.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    wall: f64,
}

impl Default for Clock {
    fn default() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        Self { start: Instant::now(), wall }
    }
}

impl Clock {
    /// The current time in seconds since 1970.
    pub fn now(&self) -> f64 {
        self.wall + self.start.elapsed().as_secs_f64()
    }
}
