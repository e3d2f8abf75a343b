//! Fences of released claims: a workflow that was replaced by a newer one cannot take the claim again.
//!
//! Kept for a week, as the tombstones of the log are; no workflow sends a request that late. A fence enters the memory when its
//! tombstone is written or later, so memory never forgets one that the log still has.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use uuid::Uuid;

/// As long as tombstones are kept (store/sql/tidy.sql).
pub const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// The fence of each released claim.
#[derive(Clone, Debug, Default)]
pub struct Fences(HashMap<Uuid, Fence>);

#[derive(Clone, Copy, Debug)]
struct Fence {
    fence: i64,
    learned: Instant,
}

impl Fences {
    /// The fence that a claim was released with.
    pub fn get(&self, claim: &Uuid) -> Option<&i64> {
        self.0.get(claim).map(|known| &known.fence)
    }
    /// Sets the fence of a released claim; returns the previous one.
    pub fn insert(&mut self, claim: Uuid, fence: i64) -> Option<i64> {
        self.0.insert(claim, Fence { fence, learned: Instant::now() }).map(|known| known.fence)
    }
    /// Removes the fence of a claim.
    pub fn remove(&mut self, claim: &Uuid) -> Option<i64> {
        self.0.remove(claim).map(|known| known.fence)
    }
    /// Removes all fences.
    pub fn clear(&mut self) {
        self.0.clear();
    }
    /// Removes the fences that were learned longer ago than this.
    pub fn forget(&mut self, longer_ago: Duration) {
        self.0.retain(|_, known| known.learned.elapsed() <= longer_ago);
        // Returns the memory of a past peak of releases.
        if self.0.capacity() > 4 * self.0.len().max(1024) {
            self.0.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forget_removes_old_fences_and_frees_their_memory() {
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
