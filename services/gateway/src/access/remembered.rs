//! Tokens that were sent a moment ago, so that a client that sends many requests does not cost a query each.
//!
//! Invariant: a token that this gateway has revoked is refused from its next request on. One that another gateway has revoked is known here for
//! [`LONGEST`] at most, and none is known after its own end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use drover_service::Principal;
use drover_store::{Store, StoreResult};

use super::store;

/// How long a token is known without being looked up again.
const LONGEST: Duration = Duration::from_secs(1);
/// So many tokens are known at most.
const MOST: usize = 10_000;

/// The tokens that are known; cheap to clone.
#[derive(Clone, Default)]
pub struct Remembered(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// By the digest of the secret: whose it is, and until when.
    tokens: HashMap<Vec<u8>, (Principal, Instant)>,
    /// Counts how often all were forgotten, so that what was looked up before is not kept afterwards.
    forgotten: u64,
}

impl Remembered {
    /// Whose secret this is.
    ///
    /// # Errors
    /// The database fails.
    pub async fn of_secret(&self, db: &Store, secret: &str) -> StoreResult<Option<Principal>> {
        let digest = store::digest(secret);
        let forgotten = {
            let state = self.lock();
            if let Some((principal, until)) = state.tokens.get(&digest)
                && Instant::now() < *until
            {
                return Ok(Some(principal.clone()));
            }
            state.forgotten
        };
        let asked = Instant::now();
        let Some((principal, left)) = store::token_of_digest(db, &digest).await? else { return Ok(None) };
        self.keep(forgotten, digest, &principal, asked + left.map_or(LONGEST, |left| left.min(LONGEST)));
        Ok(Some(principal))
    }

    fn keep(&self, forgotten: u64, digest: Vec<u8>, principal: &Principal, until: Instant) {
        let mut state = self.lock();
        if state.tokens.len() >= MOST {
            state.tokens.clear();
        }
        if state.forgotten == forgotten {
            state.tokens.insert(digest, (principal.clone(), until));
        }
    }

    /// Looks every token up again from now on, because one was revoked.
    pub fn forget(&self) {
        let mut state = self.lock();
        state.tokens.clear();
        state.forgotten += 1;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use drover_service::Identity;

    use super::*;

    #[test]
    fn what_was_looked_up_before_a_revocation_is_not_kept_after_it() {
        let remembered = Remembered::default();
        let principal = Principal { name: "somebody".to_owned(), identity: Identity::Anyone, grants: Vec::new() };
        let until = Instant::now() + LONGEST;
        let known = || remembered.lock().tokens.len();
        let before = remembered.lock().forgotten;
        remembered.keep(before, vec![1], &principal, until);
        assert_eq!(known(), 1);
        remembered.forget();
        assert_eq!(known(), 0);
        remembered.keep(before, vec![1], &principal, until);
        assert_eq!(known(), 0, "its row was read before it was revoked");
    }
}
