//! Finds the highest rate of requests that an app serves: rates grow until one is too high, then the gap is halved. A rate is too high
//! when it was missed twice: one pause of the machine that sends says nothing about the app. Pure.

/// A rate is found when the next one that is known to be too high is not more than this much higher.
const CLOSE: f64 = 1.1;
/// Growth from one rate to the next while none was too high.
const GROWTH: f64 = 1.5;
/// Rates below this are not tried.
const LOWEST: f64 = 0.5;

/// What is known so far.
#[derive(Clone, Copy, Debug)]
pub struct Ramp {
    served: Option<f64>,
    too_high: Option<f64>,
    /// Missed once.
    doubtful: Option<f64>,
    start: f64,
    highest: f64,
}

impl Ramp {
    /// Begins at `start` and tries no rate above `highest`.
    pub fn new(start: f64, highest: f64) -> Self {
        Self { served: None, too_high: None, doubtful: None, start: start.min(highest), highest }
    }

    /// The rate to try next; none if the highest one is known.
    pub fn next(&self) -> Option<f64> {
        if self.doubtful.is_some() {
            return self.doubtful;
        }
        match (self.served, self.too_high) {
            (None, None) => Some(self.start),
            (Some(served), None) => (served < self.highest).then(|| (served * GROWTH).min(self.highest)),
            (None, Some(too_high)) => (too_high > LOWEST).then(|| (too_high / 2.0).max(LOWEST)),
            (Some(served), Some(too_high)) => (too_high / served > CLOSE).then(|| (served * too_high).sqrt()),
        }
    }

    /// Takes in whether a rate was served.
    pub fn tried(&mut self, rate: f64, served: bool) {
        let again = self.doubtful.take().is_some();
        // No rate is tried that is not between `served` and `too_high`.
        if served {
            self.served = Some(rate);
        } else if again {
            self.too_high = Some(rate);
        } else {
            self.doubtful = Some(rate);
        }
    }

    /// The highest rate that was served.
    pub fn found(&self) -> Option<f64> {
        self.served
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(capacity: f64, start: f64, highest: f64) -> (Option<f64>, usize) {
        let mut ramp = Ramp::new(start, highest);
        let mut tries = 0;
        while let Some(rate) = ramp.next() {
            assert!(rate <= highest && tries < 50, "{ramp:?}");
            ramp.tried(rate, rate <= capacity);
            tries += 1;
        }
        (ramp.found(), tries)
    }

    #[test]
    fn highest_rate_is_found_within_a_tenth() {
        for capacity in [0.6, 3.0, 20.0, 170.0, 999.0] {
            let (found, tries) = find(capacity, 10.0, 1_000.0);
            let found = found.unwrap();
            assert!(found <= capacity && found * CLOSE >= capacity, "{found} instead of {capacity}");
            assert!(tries <= 30, "{tries}");
        }
        assert_eq!(find(5_000.0, 10.0, 100.0).0, Some(100.0));
        assert_eq!(find(0.0, 10.0, 100.0).0, None, "an app that serves nothing");
    }

    #[test]
    fn rate_that_was_missed_once_is_tried_again() {
        let mut ramp = Ramp::new(10.0, 100.0);
        ramp.tried(10.0, false);
        assert_eq!(ramp.next(), Some(10.0));
        ramp.tried(10.0, true);
        assert_eq!((ramp.found(), ramp.next()), (Some(10.0), Some(15.0)));
        ramp.tried(15.0, false);
        ramp.tried(15.0, false);
        assert!(ramp.next().is_some_and(|rate| rate < 15.0), "{ramp:?}");
    }
}
