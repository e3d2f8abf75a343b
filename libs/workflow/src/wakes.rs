//! Who was called lately: closes the gap between a step's look at the world and its parking.
//!
//! A wake-up reaches parked rows through the database. A step that is just looking is not parked yet, so every wake-up is also
//! remembered here for a while, and a step that has parked asks whether one of its keys was called since it began to look.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

const REMEMBERED: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Wakes(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// How many calls there have been.
    count: u64,
    recent: VecDeque<String>,
    /// Not yet written to the database.
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

    /// A point in time, for [`Wakes::called_since`].
    pub fn mark(&self) -> u64 {
        self.lock().count
    }

    pub fn called_since(&self, mark: u64, keys: &[String]) -> bool {
        let inner = self.lock();
        let since = usize::try_from(inner.count - mark).unwrap_or(usize::MAX);
        // More than is remembered: assume so; a needless look costs little.
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
