//! The windows that KPA averages over (Knative `pkg/autoscaler/aggregation/bucketing.go`): a ring of buckets; a write adds to its bucket.
//!
//! Until a window is full, it averages over the seconds since the first write. Seconds without writes at the end reduce the divisor;
//! seconds without writes in between count as zero.

use serde::{Deserialize, Serialize};

use crate::Seconds;

/// Sum of the weights that a weighted window covers.
const WEIGHT_PRECISION: f64 = 0.9999;
/// Minimum weight of the newest bucket.
const SMALLEST_COEFFICIENT: f64 = 0.2;

/// How a window averages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Averaging {
    /// All buckets have the same weight.
    #[default]
    Linear,
    /// Newer buckets have more weight; it falls exponentially with age.
    Weighted,
}

/// A sliding window of values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    length: Seconds,
    granularity: Seconds,
    averaging: Averaging,
    buckets: Vec<f64>,
    total: f64,
    /// Slots of the first and the last write; none: nothing was written.
    first: Option<i64>,
    last: Option<i64>,
}

impl Window {
    /// An empty window of `length` seconds in buckets of `granularity` seconds.
    pub fn new(length: Seconds, granularity: Seconds, averaging: Averaging) -> Self {
        let granularity = if granularity > 0.0 { granularity } else { 1.0 };
        let buckets = vec![0.0; count(length, granularity)];
        Self { length, granularity, averaging, buckets, total: 0.0, first: None, last: None }
    }

    /// Adds a value at a time. A value older than the window is ignored.
    pub fn record(&mut self, at: Seconds, value: f64) {
        let slot = self.slot(at);
        match self.last {
            Some(last) if slot == last => {}
            Some(last) if self.seconds(last - slot) >= self.length => return,
            last => {
                self.first = Some(self.first.map_or(slot, |first| first.min(slot)));
                if last.is_none_or(|last| slot > last) {
                    match last {
                        Some(last) if self.seconds(slot - last) < self.length => (last + 1..=slot).for_each(|skipped| self.clear(skipped)),
                        _ => {
                            self.first = Some(slot);
                            self.buckets.fill(0.0);
                            self.total = 0.0;
                        }
                    }
                    self.last = Some(slot);
                }
            }
        }
        let index = self.index(slot);
        self.buckets[index] += value;
        self.total += value;
    }

    /// The average at `now`; 0 if nothing was written for a whole window (see [`Window::is_empty`]).
    pub fn average(&self, now: Seconds) -> f64 {
        match self.averaging {
            Averaging::Linear => self.linear(now),
            Averaging::Weighted => self.weighted(now),
        }
    }

    /// Whether nothing was written for more than a window.
    pub fn is_empty(&self, now: Seconds) -> bool {
        self.last.is_none_or(|last| self.seconds(self.slot(now) - last) > self.length)
    }

    /// Time and value of each bucket that is not zero, and of the first and the last one, oldest first.
    pub fn samples(&self) -> Vec<(Seconds, f64)> {
        let (Some(first), Some(last)) = (self.first, self.last) else { return Vec::new() };
        let first = first.max(last - as_slot(self.buckets.len() - 1));
        let all = (first..=last).map(|slot| (slot, self.buckets[self.index(slot)]));
        let told = all.filter(|(slot, value)| *value != 0.0 || *slot == first || *slot == last);
        told.map(|(slot, value)| (self.seconds(slot), round(value))).collect()
    }

    /// Changes the length and keeps the newest buckets.
    pub fn resize(&mut self, length: Seconds) {
        if length == self.length {
            return;
        }
        let mut resized = Self::new(length, self.granularity, self.averaging);
        if let Some(last) = self.last {
            for slot in (0..self.buckets.len().min(resized.buckets.len())).map(|back| last - as_slot(back)) {
                let (from, to) = (self.index(slot), resized.index(slot));
                resized.buckets[to] = self.buckets[from];
                resized.total += self.buckets[from];
            }
            resized.last = Some(last);
            resized.first = Some(last - as_slot(self.buckets.len() - 1));
        }
        *self = resized;
    }

    /// Weight of the newest bucket in a weighted window.
    pub fn coefficient(&self) -> f64 {
        (1.0 - (1.0 - WEIGHT_PRECISION).powf(1.0 / as_f64(self.buckets.len()))).max(SMALLEST_COEFFICIENT)
    }

    fn linear(&self, now: Seconds) -> f64 {
        let (Some(first), Some(last)) = (self.first, self.last) else { return 0.0 };
        let silent = self.slot(now) - last;
        if self.seconds(silent) >= self.length {
            return 0.0;
        }
        let gone: f64 = (last + 1..=last + silent).map(|slot| self.buckets[self.index(slot)]).sum();
        let written = last - first + 1;
        let divisor = written.min(as_slot(self.buckets.len()) - silent.max(0));
        round((self.total - gone) / divisor as f64)
    }

    fn weighted(&self, now: Seconds) -> f64 {
        let Some(last) = self.last.filter(|_| !self.is_empty(now)) else { return 0.0 };
        let coefficient = self.coefficient();
        let silent = (self.slot(now) - last).max(0);
        let mut weight = coefficient * (1.0 - coefficient).powf(silent as f64);
        let mut sum = 0.0;
        for back in 0..as_slot(self.buckets.len()) - silent {
            sum += self.buckets[self.index(last - back)] * weight;
            weight *= 1.0 - coefficient;
        }
        sum
    }

    fn clear(&mut self, slot: i64) {
        let index = self.index(slot);
        self.total -= self.buckets[index];
        self.buckets[index] = 0.0;
    }

    fn slot(&self, at: Seconds) -> i64 {
        floor(at / self.granularity)
    }

    fn seconds(&self, slots: i64) -> Seconds {
        slots as f64 * self.granularity
    }

    fn index(&self, slot: i64) -> usize {
        usize::try_from(slot.rem_euclid(as_slot(self.buckets.len()))).unwrap_or(0)
    }
}

/// Rounds to six decimals, which removes floating-point errors of adding and subtracting.
fn round(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[expect(clippy::cast_possible_truncation, reason = "seconds of any origin fit")]
fn floor(value: f64) -> i64 {
    value.floor() as i64
}

fn count(length: Seconds, granularity: Seconds) -> usize {
    usize::try_from(floor((length / granularity).ceil())).unwrap_or(0).max(1)
}

fn as_slot(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn as_f64(count: usize) -> f64 {
    count as f64
}
