//! The recent wake-ups of this process, so that none is lost between a step's check of its condition and its parking.
//!
//! A wake-up reaches parked workflows through the database. A step that is just checking its condition is not parked yet, so every
//! wake-up is also kept here for a while; after parking, the driver asks whether one of the keys was woken since the step began.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

const REMEMBERED: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Wakes(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The number of wake-ups so far.
    count: u64,
    recent: VecDeque<String>,
    /// Keys that are not yet written to the database.
    pending: HashSet<String>,
}

impl Wakes {
    pub fn call(&self, key: &str) {
        let mut inner = self.lock();
        inner.count += 1;
        inner.recent.push_back(key.to_owned());
        if inner.recent.len() > REMEMBERED {
            inner.recent.pop_front();
        }
        inner.pending.insert(key.to_owned());
    }

    /// The current position among the wake-ups, for [`Wakes::called_since`].
    pub fn mark(&self) -> u64 {
        self.lock().count
    }

    /// Whether one of the keys was woken after `mark`.
    pub fn called_since(&self, mark: u64, keys: &[String]) -> bool {
        let inner = self.lock();
        let since = usize::try_from(inner.count - mark).unwrap_or(usize::MAX);
        // More wake-ups than are kept: assume that one of them was meant, since running the step once more costs little.
        since > inner.recent.len() || inner.recent.iter().rev().take(since).any(|called| keys.contains(called))
    }

    pub fn take_pending(&self) -> Vec<String> {
        self.lock().pending.drain().collect()
    }

    pub fn put_back(&self, keys: Vec<String>) {
        self.lock().pending.extend(keys);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
