//! Fences of those who released claims, so that a writer who was replaced cannot take the room after all.
//!
//! Bounded by time, as the log's tombstones are: nobody comes back after a week with a word of before. What is forgotten
//! here was learned at least that long ago, so memory never forgets what the log still knows.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use uuid::Uuid;

/// As long as tombstones are kept (store/sql/tidy.sql).
pub const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Fences(HashMap<Uuid, Fence>);

#[derive(Clone, Copy, Debug)]
struct Fence {
    fence: i64,
    learned: Instant,
}

impl Fences {
    /// The fence with which a claim was released.
    pub fn get(&self, claim: &Uuid) -> Option<&i64> {
        self.0.get(claim).map(|known| &known.fence)
    }
    /// Remembers it; returns the one before.
    pub fn insert(&mut self, claim: Uuid, fence: i64) -> Option<i64> {
        self.0.insert(claim, Fence { fence, learned: Instant::now() }).map(|known| known.fence)
    }
    /// Forgets it.
    pub fn remove(&mut self, claim: &Uuid) -> Option<i64> {
        self.0.remove(claim).map(|known| known.fence)
    }
    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }
    /// Forgets what was learned longer ago than this.
    pub fn forget(&mut self, longer_ago: Duration) {
        self.0.retain(|_, known| known.learned.elapsed() <= longer_ago);
        // A wave of releases long ago shall not be paid for ever.
        if self.0.capacity() > 4 * self.0.len().max(1024) {
            self.0.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_old_goes_and_its_memory_with_it() {
        let mut fences = Fences::default();
        for n in 0..10_000 {
            fences.insert(Uuid::from_u128(n), 1);
        }
        let full = fences.0.capacity();
        fences.forget(Duration::from_secs(3600));
        assert_eq!((fences.0.len(), fences.0.capacity()), (10_000, full), "nothing is old yet");
        let Some(earlier) = Instant::now().checked_sub(Duration::from_secs(10)) else { return };
        fences.0.values_mut().for_each(|known| known.learned = earlier);
        fences.insert(Uuid::from_u128(7), 2);
        fences.forget(Duration::from_secs(5));
        assert_eq!((fences.0.len(), fences.get(&Uuid::from_u128(7)).copied()), (1, Some(2)));
        assert!(fences.0.capacity() < full / 4);
    }
}
