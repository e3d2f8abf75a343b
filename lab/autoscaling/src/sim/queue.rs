//! Waiting requests in cohorts of one step each: first in, first out; requests that wait longer than the timeout expire.

use std::collections::VecDeque;

/// A cohort with less than this amount is treated as empty.
const DUST: f64 = 1e-9;

#[derive(Clone, Debug)]
pub(super) struct Queue {
    /// Cohorts: step of arrival, and amount left.
    cohorts: VecDeque<(u64, f64)>,
    /// Number of steps that a request may wait.
    timeout: u64,
}

impl Queue {
    pub fn new(timeout: u64) -> Self {
        Self { cohorts: VecDeque::with_capacity(16), timeout }
    }

    /// One step: old requests expire, new ones arrive, and up to `can` are served. Returns (served, expired).
    pub fn step(&mut self, now: u64, arrived: f64, can: f64) -> (f64, f64) {
        let mut expired = 0.0;
        while let Some(&(since, amount)) = self.cohorts.front() {
            if now - since < self.timeout {
                break;
            }
            expired += amount;
            self.cohorts.pop_front();
        }
        if self.cohorts.is_empty() && arrived <= can {
            return (arrived, expired);
        }
        if arrived > 0.0 {
            self.cohorts.push_back((now, arrived));
        }
        let mut left = can;
        while let Some((_, amount)) = self.cohorts.front_mut() {
            if *amount > left {
                *amount -= left;
                left = 0.0;
                if *amount < DUST {
                    self.cohorts.pop_front();
                }
                break;
            }
            left -= *amount;
            self.cohorts.pop_front();
        }
        (can - left, expired)
    }
}
