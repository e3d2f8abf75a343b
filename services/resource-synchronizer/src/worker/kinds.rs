//! Which kinds of a member are watched: those that were ever applied there, because leftovers can be in them.
//!
//! A kind that cannot be discovered or listed (an aggregated API that is down, a conversion webhook that fails) costs only
//! the bindings that use it: it is passed over, and tried again now and then. Invariant: a kind is forgotten only when its
//! list was complete and empty (or the member serves it no more) and no binding has an object of it.

use std::collections::BTreeSet;
use std::time::Duration;

use drover_members::{Member, MemberError};
use tokio::time::Instant;

use super::world::Kind;
use super::{End, Worker, watch};
use crate::store;

/// Between two looks for kinds that could not be watched.
const LOOK: Duration = Duration::from_secs(20);

/// Kinds that cannot be watched for now, and when to try again.
#[derive(Default)]
pub(super) struct Blind {
    kinds: BTreeSet<Kind>,
    look: Option<Instant>,
}

impl Blind {
    fn add(&mut self, kind: Kind) {
        self.kinds.insert(kind);
        self.look.get_or_insert_with(|| Instant::now() + LOOK);
    }
    /// When to look again, if there is anything to look for.
    pub(super) fn due(&self) -> Option<Instant> {
        self.look
    }
}

impl Worker {
    /// Watches all kinds that it can. `Err`: the member as a whole does not answer.
    pub(super) async fn watch_all(&mut self, member: &Member, kinds: Vec<Kind>) -> Result<(), End> {
        self.blind.look = None;
        for kind in kinds {
            match self.watch(member, kind.clone()).await {
                Ok(()) => {
                    self.blind.kinds.remove(&kind);
                }
                Err(error) => {
                    self.probe(member).await?;
                    tracing::warn!(cluster.id = %self.key, ?kind, %error, "objects of this kind cannot be seen for now");
                    self.blind.add(kind);
                }
            }
        }
        Ok(())
    }

    /// Tries again what could not be watched.
    pub(super) async fn look_again(&mut self, member: &Member) -> Result<(), End> {
        let kinds = self.blind.kinds.iter().cloned().collect();
        self.watch_all(member, kinds).await
    }

    /// The lists take too long. Without pods nothing can be judged; kinds that do not come are passed over.
    pub(super) async fn pass_over_silent(&mut self, member: &Member) -> Result<bool, End> {
        self.probe(member).await?;
        if !self.world.is_complete(&None) {
            return Ok(false);
        }
        let silent: Vec<Kind> = self.watches.keys().filter(|kind| !self.is_complete(kind)).cloned().collect();
        for kind in silent {
            tracing::warn!(cluster.id = %self.key, ?kind, "objects of this kind are not listed; going on without");
            self.watches.remove(&kind);
            self.blind.add(kind);
        }
        Ok(true)
    }

    /// Watches a kind unless it is watched; one that the member does not serve (yet) cannot be.
    pub(super) async fn watch(&mut self, member: &Member, kind: Kind) -> Result<(), MemberError> {
        let Some(events) = self.events.clone().filter(|_| !self.watches.contains_key(&kind)) else { return Ok(()) };
        match watch::kind(member, &kind, self.app.hub, events).await {
            Ok(watch) => {
                self.watches.insert(kind, watch);
                Ok(())
            }
            Err(MemberError::UnknownKind { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether everything that is watched has been listed.
    pub(super) fn is_listed(&self) -> bool {
        self.watches.keys().all(|kind| self.is_complete(kind))
    }

    fn is_complete(&self, kind: &Kind) -> bool {
        self.world.is_complete(&Some(kind.clone()).filter(|(_, kind)| !kind.is_empty()))
    }

    /// Forgets kinds that nothing of ours is left of.
    pub(super) async fn forget_kinds(&mut self) {
        let unsure = self.watches.keys().filter(|kind| !self.is_complete(kind)).chain(&self.blind.kinds).cloned();
        let kept: BTreeSet<Kind> = unsure.chain(self.world.kinds()).collect();
        match store::inventory::forget_kinds(&self.app.store, &self.key, kept).await {
            Ok(forgotten) => forgotten.iter().for_each(|kind| drop(self.watches.remove(kind))),
            // Only a watch too many; the next one to look will forget them.
            Err(error) => tracing::warn!(cluster.id = %self.key, %error, "kinds of which nothing is left cannot be forgotten"),
        }
    }
}
