//! Seconds as policies see them: the wall clock at the start, and from then on one that is never set.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Seconds since 1970 that only go forward.
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
    /// Now.
    pub fn now(&self) -> f64 {
        self.wall + self.start.elapsed().as_secs_f64()
    }
}
