//! Which binding is reconciled when, and what is published of it.

use std::sync::Arc;
use std::time::Duration;

use drover_members::{Member, MemberError};
use drover_service::backoff;
use tokio::task::JoinError;
use tokio::time::Instant;
use uuid::Uuid;

use super::binding_state::{BindingState, Failure};
use super::judge::status;
use super::write::Written;
use super::{HINDRANCES, Outcome, RETRY, SessionEnd, WRITES, Worker};
use crate::app::{DirtyBindings, Error};
use crate::store::{self, bindings::Row};

/// Pause between two looks at pods and volumes that are given up or taken over.
const SHARE: Duration = Duration::from_millis(300);

impl Worker {
    pub(super) fn needs_work(&self, id: Uuid) -> bool {
        let Some(bound) = self.bindings.get(&id) else { return !self.leftovers(id).is_empty() };
        match (bound.row.gone, bound.present()) {
            (true, _) => !self.leftovers(id).is_empty(),
            (false, false) => true,
            (false, true) => {
                bound.wanted.is_none()
                    || bound.has_open_share()
                    || !bound.drifted(&self.view).is_empty()
                    || bound.is_warm(&self.view)
                    || bound.test_due().is_some()
                    || (bound.is_ready(&self.view) && (bound.hooks_due || !bound.superfluous(&self.view).is_empty()))
            }
        }
    }

    /// The binding that is due next, and when. Bindings that are being written are left out; none while the maximum is being written.
    pub(super) fn next(&self) -> Option<(Uuid, Instant)> {
        let free = self.due.iter().filter(|(id, _)| !self.writing.contains_key(id));
        free.min_by_key(|(_, at)| **at).map(|(id, at)| (*id, *at)).filter(|_| self.writing.len() < WRITES)
    }

    /// Reconciles the binding that is due; the loop calls again for the next one, so that events are taken in between.
    pub(super) async fn work_off(&mut self, member: &Arc<Member>) -> Result<(), SessionEnd> {
        let Some((id, _)) = self.next() else { return Ok(()) };
        self.due.remove(&id);
        let outcome = self.reconcile(member, id).await;
        self.conclude(member, id, outcome).await
    }

    /// Takes a finished write in.
    pub(super) async fn take_written(&mut self, member: &Member, written: Result<Written, JoinError>) -> Result<(), SessionEnd> {
        let written = match written {
            Ok(written) => written,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        let id = written.id;
        let outcome = self.written(member, written).await;
        self.conclude(member, id, outcome).await
    }

    /// Publishes the status after a pass or a write, and schedules the next pass if one is needed.
    pub(super) async fn conclude(&mut self, member: &Member, id: Uuid, outcome: Result<Outcome, Error>) -> Result<(), SessionEnd> {
        let outcome = match outcome {
            // Either the whole member does not answer, or only this request failed (a webhook, an aggregated API).
            Err(Error::Member(error)) if error.is_member() => {
                self.probe(member).await?;
                self.hinder(id, &error);
                Outcome::Again
            }
            Err(Error::Injected(drover_store::failpoint::Injected::Halt)) => return Err(SessionEnd::Stopped),
            Err(error) => {
                tracing::error!(cluster.id = %self.key, binding.id = %id, %error, "a pass over the binding failed");
                Outcome::Again
            }
            Ok(outcome) => outcome,
        };
        self.publish(id);
        if outcome == Outcome::Writing {
            return Ok(());
        }
        let known = self.bindings.contains_key(&id);
        if outcome == Outcome::Settled && !(known && self.needs_work(id)) {
            if let Some(bound) = self.bindings.get_mut(&id) {
                (bound.attempts, bound.hindrance) = (0, None);
            }
            return Ok(());
        }
        let pause = match self.bindings.get_mut(&id) {
            // Nothing reports what becomes of volumes, and their pods do not serve meanwhile.
            Some(bound) if bound.has_open_share() && bound.failure.is_none() && bound.hindrance.is_none() => SHARE,
            // Deletion is reported by events; the timer is only a fallback.
            Some(bound) => {
                bound.attempts += 1;
                backoff(bound.attempts, RETRY)
            }
            None => Duration::from_secs(1),
        };
        self.schedule(id, pause);
        Ok(())
    }

    /// The member answers, but not for this binding: to be tried again; a failure after too many attempts.
    pub(super) fn hinder(&mut self, id: Uuid, error: &MemberError) {
        let Some(bound) = self.bindings.get_mut(&id) else { return };
        tracing::warn!(cluster.id = %self.key, binding.id = %id, attempts = bound.attempts, %error, "the member does not answer for the binding");
        let code = if bound.present() { "apply_failed" } else { "delete_failed" };
        let failure = Box::new(Failure::new(code, error.to_string()));
        if bound.attempts >= HINDRANCES {
            bound.failure = Some(failure.clone());
        }
        bound.hindrance = Some(failure);
    }

    /// Has a binding reconciled as soon as possible. `row`: what was just stored for it, if nothing else is known to have changed.
    pub(super) fn look_at(&mut self, id: Uuid, row: Option<Box<Row>>) {
        // If something else has changed, it is not known which is newer: the row is read.
        match row.filter(|_| !self.due.contains_key(&id) && !self.writing.contains_key(&id)) {
            Some(row) => drop(self.stored.insert(id, row)),
            None => drop(self.stored.remove(&id)),
        }
        self.schedule(id, Duration::ZERO);
    }

    pub(super) fn schedule(&mut self, id: Uuid, after: Duration) {
        let at = Instant::now() + after;
        let due = self.due.entry(id).or_insert(at);
        *due = (*due).min(at);
    }

    /// How long a binding waits for its pass after an event: deletion goes on at once, failures and repeated corrections wait.
    pub(super) fn patience(&self, id: Uuid) -> Duration {
        match self.bindings.get(&id) {
            Some(bound) if bound.present() => {
                let fights = bound.corrections.0.saturating_sub(2);
                let waits = if bound.failure.is_some() || bound.hindrance.is_some() { bound.attempts.max(fights) } else { fights };
                if waits == 0 { Duration::ZERO } else { backoff(waits, RETRY) }
            }
            _ => Duration::ZERO,
        }
    }

    pub(super) fn publish(&mut self, id: Uuid) {
        let warm_in = self.bindings.get_mut(&id).and_then(|bound| bound.warm_up(&self.view));
        if let Some(warm_in) = warm_in {
            self.schedule(id, warm_in);
        }
        // Orchestrator does not know stand-ins.
        if let Some(bound) = self.bindings.get(&id).filter(|bound| !bound.row.stand_in) {
            let status = status(bound, &self.view, self.lost.as_ref());
            self.app.publish_of(&self.key, &self.dirty, id, status);
        }
    }

    pub(super) async fn publish_all(&mut self) {
        if self.bindings.is_empty() {
            // Never connected: only the tables have the bindings.
            if let Err(error) = self.load().await {
                tracing::error!(cluster.id = %self.key, %error, "cannot read the bindings of the member");
            }
        }
        let all: Vec<Uuid> = self.bindings.keys().copied().collect();
        all.into_iter().for_each(|id| self.publish(id));
    }

    /// Publishes what is known of bindings whose rows have changed while the member does not answer.
    pub(super) async fn read_and_publish(&mut self, dirty: DirtyBindings) {
        for id in dirty.into_keys() {
            match store::bindings::get(&self.app.store, id).await {
                Ok(Some(row)) => {
                    let row = self.app.shared.row(row);
                    let bound = self.bindings.entry(id).or_insert_with(|| Box::new(BindingState::new(row.clone(), Default::default())));
                    bound.row = row;
                    self.publish(id);
                }
                Ok(None) => {
                    self.bindings.remove(&id);
                }
                Err(error) => tracing::error!(cluster.id = %self.key, binding.id = %id, %error, "cannot read the binding"),
            }
        }
    }
}
