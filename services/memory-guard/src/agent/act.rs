//! Carrying decisions out: holds, releases, sacrifices.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_memguard::{Action, ContainerId, Decision, Lever};

use super::Agent;
use super::pending::FinishedChange;
use crate::api::ApiWrite;
use crate::cgroup::CpuQuota;
use crate::clock;
use crate::config::FreezeBy;
use crate::failpoint;
use crate::journal::{Hold, HoldKey, HoldKind, JournalEntry};
use crate::levers::{self, Released, slow_quota};
use crate::runtime::RuntimeError;
use crate::wire::Mode;

/// Time that a sacrificed container gets to end by itself.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// Each poll waits this long for the holds that it began: long enough for file writes, too short for a call to the runtime.
const SHORT_WAIT: Duration = Duration::from_millis(5);
/// On exit, telling the runtime is attempted this many times.
const EXIT_ATTEMPTS: usize = 5;

/// The kinds of holds that a resumption ends.
const PAUSES: &[HoldKind] = &[HoldKind::Freeze, HoldKind::Quota];

fn keys(id: &ContainerId, kinds: &[HoldKind]) -> Vec<HoldKey> {
    kinds.iter().map(|kind| (id.to_string(), *kind)).collect()
}

impl Agent {
    /// Carries out decisions or, if that is not allowed, only records them. Holds go before releases, in the order of the decisions; all
    /// holds of a poll share one write to the journal.
    pub(super) async fn carry_out(&mut self, decisions: Vec<Decision>, allowed: bool) {
        let mut begun: Vec<(JournalEntry, Decision)> = Vec::new();
        let mut raised = Vec::new();
        let mut rest = Vec::new();
        for decision in decisions {
            if !allowed {
                // The guard reports its gate only when that changes, so it must report it again once the agent may act.
                if matches!(decision.action, Action::Gate { .. }) && self.run.mode == Mode::Apply {
                    self.state.gate_open = None;
                }
                self.note_decision(&decision, false);
                continue;
            }
            match &decision.action {
                // A container that was refused by NRI does not exist, so there is nothing to release; it is allowed when the kubelet asks
                // again.
                Action::Admit { container } if self.refused.contains_key(container) => {
                    self.note(container, Some(decision.action.clone()), &decision.reason, false);
                }
                Action::Pause { container, lever, until } => match self.pause_entry(container, *lever, *until) {
                    Ok(entry) => begun.push((entry, decision)),
                    Err(error) => self.failed(container, &error),
                },
                Action::Lease { container, high, until } => match self.lease_entry(container, *until) {
                    Ok(Some(entry)) => {
                        raised.push((entry.clone(), *high));
                        begun.push((entry, decision));
                    }
                    Ok(None) => rest.push(decision),
                    Err(error) => self.failed(container, &error),
                },
                _ => rest.push(decision),
            }
        }
        self.begin(begun, &raised).await;
        let ordered: Vec<(Decision, bool)> = rest.into_iter().map(|decision| (decision.clone(), self.carry_out_one(&decision))).collect();
        self.finish_changes_within(SHORT_WAIT).await;
        for (decision, ordered) in ordered {
            let done = ordered && self.is_released(&decision.action);
            self.note_decision(&decision, done);
        }
        self.forget_unstarted();
    }

    async fn begin(&mut self, begun: Vec<(JournalEntry, Decision)>, leases: &[(JournalEntry, u64)]) {
        // A container whose release is not complete is decided about again at the next poll.
        let (busy, begun): (Vec<_>, Vec<_>) = begun.into_iter().partition(|(entry, _)| self.pending.keys().contains(&entry.key()));
        for (_, decision) in busy {
            self.note_decision(&decision, false);
        }
        if begun.is_empty() {
            return;
        }
        failpoint::hit("before_begin");
        let entries: Vec<JournalEntry> = begun.iter().map(|(entry, _)| entry.clone()).collect();
        if let Err(error) = self.journal.begin(&entries) {
            tracing::error!(%error, "the journal cannot be written, so nothing is held");
            return;
        }
        failpoint::hit("after_begin");
        for (entry, decision) in begun {
            self.begin_leak(&entry);
            let high = leases.iter().find(|(lease, _)| lease.key() == entry.key()).map(|(_, high)| *high);
            let (runtime, observed_at) = (self.runtime.clone(), self.observed_at);
            self.pending.hold(entry.key(), async move {
                let result = match (&entry.hold, high) {
                    (Hold::High { file, .. }, Some(high)) => levers::set_high(file, high.to_string()).await,
                    _ => levers::hold(&entry, &runtime).await,
                };
                FinishedChange::Held { entry, decision, observed_at, result }
            });
        }
        self.begin_episode();
        self.finish_changes_within(SHORT_WAIT).await;
    }

    /// Processes the changes that finish within that time; the others finish later.
    async fn finish_changes_within(&mut self, patience: Duration) {
        let end = tokio::time::Instant::now() + patience;
        while !self.pending.keys().is_empty() {
            let Ok(finished) = tokio::time::timeout_at(end, self.pending.next()).await else { return };
            self.finish_change(finished);
        }
    }

    /// Processes a finished hold or release.
    pub(super) fn finish_change(&mut self, finished: FinishedChange) {
        match finished {
            // The container ended in the meantime, and its entry with it.
            FinishedChange::Held { entry, .. } if !self.journal.open_entries().contains_key(&entry.key()) => {}
            FinishedChange::Held { entry, decision, observed_at, result: Ok(()) } => {
                failpoint::hit("after_hold");
                let metrics = &self.shared.metrics;
                metrics.reaction.observe(observed_at.elapsed().as_secs_f64());
                if entry.hold.kind() == HoldKind::High {
                    metrics.leases.inc()
                } else {
                    metrics.pauses.inc()
                };
                self.note_decision(&decision, true);
                self.send_event(&entry.container, "MemoryGuardPaused", &format!("held: {}", decision.reason));
            }
            FinishedChange::Held { entry, decision, result: Err(error), .. } => {
                failpoint::hit("after_hold");
                self.shared.metrics.failures.inc();
                tracing::warn!(container.name = %entry.name, %error, "a container could not be held");
                self.note_decision(&decision, false);
                // It may be held all the same, so it is released.
                self.releasing.insert(entry.key());
            }
            FinishedChange::LeaseChanged { result: Ok(()), .. } => {}
            FinishedChange::LeaseChanged { entry, result: Err(error) } => {
                self.shared.metrics.failures.inc();
                tracing::warn!(container.name = %entry.name, %error, "the lease of a container could not be changed");
            }
            FinishedChange::Released { entry, result: Ok(released) } => {
                failpoint::hit("after_release");
                if released == Released::Foreign {
                    tracing::info!(container.name = %entry.name, "something else has changed the container in the meantime; that change stays");
                }
                self.finish(&entry.key());
                failpoint::hit("after_end");
            }
            FinishedChange::Released { entry, result: Err(error) } => {
                tracing::debug!(container.name = %entry.name, %error, "a release is not complete yet");
            }
        }
    }

    fn carry_out_one(&mut self, decision: &Decision) -> bool {
        match &decision.action {
            Action::Resume { container } | Action::Admit { container } => {
                self.to_hold.remove(&*container.0);
                self.release(&keys(container, PAUSES));
                self.send_event(&container.0, "MemoryGuardResumed", &format!("resumed: {}", decision.reason));
                true
            }
            Action::EndLease { container } => {
                self.release(&keys(container, &[HoldKind::High]));
                true
            }
            Action::Lease { container, high, .. } => self.change_lease(container, *high),
            Action::Sacrifice { container } => self.sacrifice(container, &decision.reason.to_string()),
            Action::Gate { open } => {
                if self.run.taint {
                    self.tainted.send_replace(Some(!open));
                }
                true
            }
            Action::Pause { .. } => false,
        }
    }

    /// Whether the container that this action releases is not held any more, or is being released; true for actions that release nothing.
    fn is_released(&self, action: &Action) -> bool {
        let keys = match action {
            Action::Resume { container } | Action::Admit { container } => keys(container, PAUSES),
            Action::EndLease { container } => keys(container, &[HoldKind::High]),
            _ => Vec::new(),
        };
        let held = |key: &HoldKey| self.journal.open_entries().get(key).is_some_and(levers::in_effect);
        keys.iter().all(|key| self.pending.keys().contains(key) || !held(key))
    }

    fn pause_entry(&self, id: &ContainerId, lever: Lever, until: drover_memguard::Moment) -> Result<JournalEntry, String> {
        let known = self.inventory.known().get(&*id.0).ok_or("the container is not known")?;
        let freezer = known.group.freezer().clone();
        let hold = match lever {
            Lever::Freeze if self.run.freeze_by == FreezeBy::Runtime => {
                Hold::Pause { freezer: Some(freezer).filter(crate::cgroup::Freezer::there) }
            }
            Lever::Freeze => Hold::Freeze { freezer },
            Lever::Quota => {
                let before = known.group.cpu_quota().map_err(|error| error.to_string())?;
                Hold::Quota { dir: known.group.cpu_dir().to_owned(), before, ours: slow_quota(before, self.run.crawl) }
            }
        };
        Ok(JournalEntry { container: id.to_string(), name: known.name.to_string(), hold, since: clock::now(), until, at_gate: false })
    }

    /// The entry of a new lease; `None` if the container has one already.
    fn lease_entry(&self, id: &ContainerId, until: drover_memguard::Moment) -> Result<Option<JournalEntry>, String> {
        let key = (id.to_string(), HoldKind::High);
        if self.journal.open_entries().contains_key(&key) && !self.releasing.contains(&key) {
            return Ok(None);
        }
        let known = self.inventory.known().get(&*id.0).ok_or("the container is not known")?;
        let file = known.group.high_file().ok_or("the container has no memory.high")?;
        let before = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
        let hold = Hold::High { file, before: before.trim().to_owned() };
        Ok(Some(JournalEntry { container: id.to_string(), name: known.name.to_string(), hold, since: clock::now(), until, at_gate: false }))
    }

    /// Begins to set another value in an existing lease. False: there is no lease, or a change of it is under way.
    fn change_lease(&mut self, id: &ContainerId, high: u64) -> bool {
        let key = (id.to_string(), HoldKind::High);
        let Some(entry) = self.journal.open_entries().get(&key).filter(|_| !self.pending.keys().contains(&key)).cloned() else {
            return false;
        };
        let Hold::High { file, .. } = entry.hold.clone() else { return false };
        self.pending.hold(key, async move {
            let result = levers::set_high(&file, high.to_string()).await;
            FinishedChange::LeaseChanged { entry, result }
        });
        true
    }

    /// Releases holds; what cannot be finished now is tried again at every poll.
    fn release(&mut self, keys: &[HoldKey]) {
        let entries: Vec<JournalEntry> = keys.iter().filter_map(|key| self.journal.open_entries().get(key).cloned()).collect();
        self.releasing.extend(entries.iter().map(JournalEntry::key));
        if !entries.is_empty() {
            failpoint::hit("before_release");
        }
        for entry in entries {
            if self.pending.keys().contains(&entry.key()) {
                continue;
            }
            let runtime = self.runtime.clone();
            self.pending.release(entry.key(), async move {
                let result = levers::release(&entry, Some(&runtime)).await;
                FinishedChange::Released { entry, result }
            });
        }
    }

    /// Records the end of a hold in the journal and the metrics.
    pub(super) fn finish(&mut self, key: &HoldKey) {
        self.releasing.remove(key);
        let Some(entry) = self.journal.open_entries().get(key).cloned() else { return };
        if let Err(error) = self.journal.end(key) {
            tracing::warn!(%error, "the end of a hold could not be written to the journal");
        }
        let metrics = &self.shared.metrics;
        metrics.paused_seconds.inc_by(clock::now().since(entry.since).as_secs_f64());
        if let Some((_, leaked)) = self.inventory.get_mut(&key.0).and_then(|known| known.leak.take()) {
            metrics.leaked.inc_by(leaked);
        }
    }

    /// Repeats the releases that are not complete, and releases containers that are not listed any more: without events, that is how
    /// their end is noticed.
    pub(super) async fn release_leftovers(&mut self) {
        let unlisted = |key: &&HoldKey| !self.inventory.known().contains_key(&key.0) && !self.to_hold.contains_key(&key.0);
        self.releasing.extend(self.journal.open_entries().keys().filter(unlisted).cloned());
        if !self.releasing.is_empty() {
            let keys: Vec<HoldKey> = self.releasing.iter().cloned().collect();
            self.release(&keys);
            self.finish_changes_within(SHORT_WAIT).await;
        }
    }

    pub(super) fn release_all(&mut self) {
        self.releasing.extend(self.journal.open_entries().keys().cloned());
    }

    /// Releases everything on exit. What is left then is in the journal, for the watchdog and the next agent.
    pub(super) async fn release_everything(&mut self) {
        for _ in 0..EXIT_ATTEMPTS {
            self.release_all();
            self.release_leftovers().await;
            while !self.pending.keys().is_empty() {
                self.finish_changes_within(self.run.common.poll).await;
                self.beat();
            }
            if self.journal.open_entries().is_empty() {
                return;
            }
            tokio::time::sleep(self.run.common.poll).await;
        }
        tracing::warn!(left = self.journal.open_entries().len(), "the runtime could not be told of every release");
    }

    /// Restores the quota of containers that have the guard's quota without a journal entry, for example because the journal was deleted.
    pub(super) async fn restore_orphaned_quotas(&mut self) {
        let mut orphans: BTreeMap<String, CpuQuota> = BTreeMap::new();
        for (id, known) in self.inventory.known() {
            let (Some(created), Ok(now)) = (known.created_quota, known.group.cpu_quota()) else { continue };
            let journaled = self.journal.open_entries().contains_key(&(id.clone(), HoldKind::Quota));
            if !journaled && now != created && now == slow_quota(created, self.run.crawl) {
                orphans.insert(id.clone(), created);
            }
        }
        for (id, created) in orphans {
            let runtime = self.runtime.clone();
            match self.beating(runtime.set_quota(&id, created)).await {
                Ok(()) => tracing::warn!(container.id = id, "a container had the guard's quota without a journal entry; it was restored"),
                Err(error) => {
                    tracing::warn!(container.id = id, %error, "a container has the guard's quota without a journal entry, and it could not be restored")
                }
            }
        }
    }

    fn sacrifice(&mut self, id: &ContainerId, reason: &str) -> bool {
        let Some(known) = self.inventory.known().get(&*id.0) else { return false };
        let (pod, uid) = (known.pod.clone(), known.uid.clone());
        if let Some(writes) = &self.api_writes {
            self.shared.metrics.sacrifices.inc();
            return writes.try_send(ApiWrite::Evict { pod, uid }).is_ok();
        }
        if !self.run.sacrifice_by_runtime {
            return false;
        }
        tracing::warn!(container.name = %known.name, reason, "a container is sacrificed");
        self.stopped.insert(id.to_string());
        self.release(&keys(id, &[HoldKind::Freeze, HoldKind::Quota, HoldKind::High]));
        self.shared.metrics.sacrifices.inc();
        let (runtime, id) = (self.runtime.clone(), id.to_string());
        tokio::spawn(async move {
            match runtime.stop(&id, STOP_GRACE).await {
                Ok(()) | Err(RuntimeError::Gone) => {}
                Err(error) => tracing::warn!(container.id = id, %error, "a sacrificed container could not be stopped"),
            }
        });
        true
    }

    fn begin_leak(&mut self, entry: &JournalEntry) {
        let seen = self.observation.containers.iter().find(|container| *container.id.0 == *entry.container);
        let now = match seen.map(|container| container.memory) {
            Some(drover_memguard::Reading::Seen { value, .. }) => value,
            _ => return,
        };
        if let Some(known) = self.inventory.get_mut(&entry.container) {
            known.leak.get_or_insert((now, 0));
        }
    }

    fn failed(&self, id: &ContainerId, error: &str) {
        self.shared.metrics.failures.inc();
        tracing::warn!(container.id = %id, error, "a container cannot be held");
    }

    /// Sends an Event about a container, if there is an API server.
    pub(super) fn send_event(&self, id: &str, reason: &'static str, message: &str) {
        let (Some(writes), Some(known)) = (&self.api_writes, self.inventory.known().get(id)) else { return };
        let event = ApiWrite::Event {
            pod: known.pod.clone(),
            uid: known.uid.clone(),
            container: known.name.rsplit('/').next().unwrap_or_default().to_owned(),
            reason,
            message: message.to_owned(),
        };
        if writes.try_send(event).is_err() {
            tracing::debug!("an Event was dropped because too many are queued");
        }
    }
}
