//! Which kinds of a member are watched: all that were ever applied there, because they may have leftovers.
//!
//! A kind that cannot be discovered or listed (an aggregated API that is down, a conversion webhook that fails) affects only
//! the bindings that use it: it is skipped, and tried again every 20 seconds. Invariant: a kind is forgotten only if its list was
//! complete and empty (or the member no longer serves it) and no binding has an object of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use drover_members::{Member, MemberError};
use drover_scheduling::Reachability;
use tokio::time::Instant;

use super::view::ApiKind;
use super::{SessionEnd, Worker, endpoints, watch};
use crate::store;

/// Pause before kinds that could not be watched are tried again.
const RETRY_KINDS: Duration = Duration::from_secs(20);

/// Kinds that cannot be watched at the moment, and when to try again.
#[derive(Default)]
pub(super) struct UnwatchedKinds {
    kinds: BTreeSet<ApiKind>,
    retry_at: Option<Instant>,
}

impl UnwatchedKinds {
    fn add(&mut self, kind: ApiKind) {
        self.kinds.insert(kind);
        self.retry_at.get_or_insert_with(|| Instant::now() + RETRY_KINDS);
    }
    /// When to try again; `None` if all kinds are watched.
    pub(super) fn due(&self) -> Option<Instant> {
        self.retry_at
    }
}

impl Worker {
    /// Watches all of these kinds that can be watched. `Err`: the whole member does not answer.
    pub(super) async fn watch_all(&mut self, member: &Member, kinds: Vec<ApiKind>) -> Result<(), SessionEnd> {
        self.unwatched.retry_at = None;
        for kind in kinds {
            match self.watch(member, kind.clone()).await {
                Ok(()) => {
                    self.unwatched.kinds.remove(&kind);
                }
                Err(error) => {
                    self.probe(member).await?;
                    tracing::warn!(cluster.id = %self.key, ?kind, %error, "objects of this kind cannot be watched at the moment");
                    self.unwatched.add(kind);
                }
            }
        }
        Ok(())
    }

    /// Tries again to watch the kinds that could not be watched.
    pub(super) async fn retry_kinds(&mut self, member: &Member) -> Result<(), SessionEnd> {
        let kinds = self.unwatched.kinds.iter().cloned().collect();
        self.watch_all(member, kinds).await
    }

    /// The lists take too long: skips the kinds whose list is incomplete. Returns false if pods are among them, because nothing can be
    /// judged without pods.
    pub(super) async fn skip_unlisted_kinds(&mut self, member: &Member) -> Result<bool, SessionEnd> {
        self.probe(member).await?;
        if !self.view.is_complete(&None) {
            return Ok(false);
        }
        let silent: Vec<ApiKind> = self.watches.keys().filter(|kind| !self.is_complete(kind)).cloned().collect();
        for kind in silent {
            tracing::warn!(cluster.id = %self.key, ?kind, "objects of this kind were not listed in time; going on without them");
            self.watches.remove(&kind);
            self.unwatched.add(kind);
        }
        Ok(true)
    }

    /// Watches a kind unless it is watched already, or the member does not serve it (yet).
    pub(super) async fn watch(&mut self, member: &Member, kind: ApiKind) -> Result<(), MemberError> {
        let Some(events) = self.events.clone().filter(|_| !self.watches.contains_key(&kind)) else { return Ok(()) };
        match watch::kind(member, &kind, self.app.hub, events).await {
            Ok(watch) => {
                if kind == ("v1".to_owned(), "Service".to_owned()) {
                    self.watch_endpoints(member);
                }
                self.watches.insert(kind, watch);
                Ok(())
            }
            Err(MemberError::UnknownKind { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Watches where the data path reaches the pods, in the way that the labels of the member name.
    pub(super) fn watch_endpoints(&mut self, member: &Member) {
        let (app, key) = (self.app.clone(), self.key.clone());
        let way = {
            let registered = self.registered.borrow();
            Reachability::of(&registered.labels, registered.link.is_some())
        };
        let publisher = endpoints::Publisher {
            key: self.key.clone(),
            hub: self.app.endpoints.clone(),
            statuses: self.app.statuses.clone(),
            reach: self.app.clients.reach(),
            way,
            listed: Arc::new(move || app.endpoints_listed(&key)),
        };
        self.endpoints = Some((way, endpoints::watch(member, watch::config(self.app.hub), publisher)));
    }

    /// Whether the list of every watched kind is complete.
    pub(super) fn is_listed(&self) -> bool {
        self.watches.keys().all(|kind| self.is_complete(kind))
    }

    fn is_complete(&self, kind: &ApiKind) -> bool {
        self.view.is_complete(&Some(kind.clone()).filter(|(_, kind)| !kind.is_empty()))
    }

    /// Forgets kinds of which this installation has no object left.
    pub(super) async fn forget_kinds(&mut self) {
        let unsure = self.watches.keys().filter(|kind| !self.is_complete(kind)).chain(&self.unwatched.kinds).cloned();
        let kept: BTreeSet<ApiKind> = unsure.chain(self.view.kinds()).collect();
        match store::inventory::forget_kinds(&self.app.store, &self.key, kept).await {
            Ok(forgotten) => forgotten.iter().for_each(|kind| drop(self.watches.remove(kind))),
            // One watch too many does no harm; the next call forgets the kinds.
            Err(error) => tracing::warn!(cluster.id = %self.key, %error, "cannot forget kinds without objects"),
        }
    }
}
