//! Holds and releases on their way. What counts is a write to a cgroup file and is done at once; a runtime that has to be told too takes a
//! tenth of a second for each, and the next look does not wait for that.

use std::collections::BTreeSet;
use std::time::Instant;

use drover_memguard::Decision;
use tokio::task::JoinSet;

use crate::journal::{Entry, Key};
use crate::levers::{LeverError, Released};

/// What came of one.
pub(super) enum Landed {
    /// A hold that was decided after the look at `looked`.
    Held { entry: Entry, decision: Decision, looked: Instant, result: Result<(), LeverError> },
    /// A release.
    Released { entry: Entry, result: Result<Released, LeverError> },
}

impl Landed {
    fn key(&self) -> Key {
        match self {
            Self::Held { entry, .. } | Self::Released { entry, .. } => entry.key(),
        }
    }
}

/// One at a time for each key, because it matters what a runtime is told last.
#[derive(Default)]
pub(super) struct Underway {
    tasks: JoinSet<Landed>,
    keys: BTreeSet<Key>,
    holds: BTreeSet<Key>,
}

impl Underway {
    /// Of whom.
    pub fn keys(&self) -> &BTreeSet<Key> {
        &self.keys
    }

    /// Those that hold: they count as held, or others would be held too and nobody be left to run.
    pub fn holds(&self) -> &BTreeSet<Key> {
        &self.holds
    }

    /// Sets a hold on its way.
    pub fn hold(&mut self, key: Key, work: impl Future<Output = Landed> + Send + 'static) {
        self.holds.insert(key.clone());
        self.release(key, work);
    }

    /// Sets a release on its way.
    pub fn release(&mut self, key: Key, work: impl Future<Output = Landed> + Send + 'static) {
        self.keys.insert(key);
        self.tasks.spawn(work);
    }

    /// The next that lands; none ever if none is on its way.
    pub async fn next(&mut self) -> Landed {
        let Some(landed) = self.tasks.join_next().await else { return std::future::pending().await };
        // Only a panic is no result: then the agent dies of it, and the dead man's switch lets everything go.
        let landed = landed.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        let key = landed.key();
        self.keys.remove(&key);
        self.holds.remove(&key);
        landed
    }
}
