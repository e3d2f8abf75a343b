//! Holds and releases that are under way. A write to a cgroup file takes effect at once; telling the runtime takes a tenth of a second
//! for each container, and the next poll does not wait for that.

use std::collections::BTreeSet;
use std::time::Instant;

use drover_memguard::Decision;
use tokio::task::JoinSet;

use crate::journal::{HoldKey, JournalEntry};
use crate::levers::{LeverError, Released};

/// A finished hold or release.
pub(super) enum FinishedChange {
    /// A hold that was decided after the observation at `observed_at`.
    Held {
        entry: JournalEntry,
        decision: Decision,
        observed_at: Instant,
        result: Result<(), LeverError>,
    },
    /// A lease got another value.
    LeaseChanged {
        entry: JournalEntry,
        result: Result<(), LeverError>,
    },
    Released {
        entry: JournalEntry,
        result: Result<Released, LeverError>,
    },
}

impl FinishedChange {
    fn key(&self) -> HoldKey {
        match self {
            Self::Held { entry, .. } | Self::LeaseChanged { entry, .. } | Self::Released { entry, .. } => entry.key(),
        }
    }
}

/// The changes under way. There is at most one for each key, because the last thing that the runtime is told counts.
#[derive(Default)]
pub(super) struct PendingChanges {
    tasks: JoinSet<FinishedChange>,
    keys: BTreeSet<HoldKey>,
    holds: BTreeSet<HoldKey>,
}

impl PendingChanges {
    /// Keys of all changes under way.
    pub fn keys(&self) -> &BTreeSet<HoldKey> {
        &self.keys
    }

    /// Keys of the holds under way. These containers count as held; otherwise others would be held too, and none would be left to run.
    pub fn holds(&self) -> &BTreeSet<HoldKey> {
        &self.holds
    }

    /// Starts a hold.
    pub fn hold(&mut self, key: HoldKey, work: impl Future<Output = FinishedChange> + Send + 'static) {
        self.holds.insert(key.clone());
        self.release(key, work);
    }

    /// Starts a release.
    pub fn release(&mut self, key: HoldKey, work: impl Future<Output = FinishedChange> + Send + 'static) {
        self.keys.insert(key);
        self.tasks.spawn(work);
    }

    /// Waits for the next change to finish; for ever if none is under way.
    pub async fn next(&mut self) -> FinishedChange {
        let Some(finished) = self.tasks.join_next().await else { return std::future::pending().await };
        // A panic of the change ends the agent, and then the dead man's switch releases everything.
        let finished = finished.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        let key = finished.key();
        self.keys.remove(&key);
        self.holds.remove(&key);
        finished
    }
}
