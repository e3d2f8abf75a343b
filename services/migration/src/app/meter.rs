//! The time limit of planning.

use std::time::{Duration, Instant};

use drover_scheduling::WorkMeter;

/// Grants steps until the time is up. A search that others may follow gets half of the time that is left.
pub struct TimeMeter {
    end: Instant,
    /// End of the current search.
    current: Instant,
}

impl TimeMeter {
    /// A meter that starts now.
    pub fn new(budget: Duration) -> Self {
        let end = Instant::now() + budget;
        Self { end, current: end }
    }
}

impl WorkMeter for TimeMeter {
    fn begin(&mut self, more: bool) {
        let now = Instant::now();
        self.current = if more { now + self.end.saturating_duration_since(now) / 2 } else { self.end };
    }

    fn step(&mut self) -> bool {
        Instant::now() < self.current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_meter_grants_steps_only_within_its_budget() {
        assert!(!TimeMeter::new(Duration::ZERO).step());
        let mut meter = TimeMeter::new(Duration::from_secs(3600));
        meter.begin(true);
        assert!(meter.step());
        meter.begin(false);
        assert!(meter.step());
    }
}
