//! Carrying decisions out, and letting go.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_memguard::{Action, ContainerId, Decision, Lever};

use super::Agent;
use super::underway::Landed;
use crate::api::Say;
use crate::cgroup::CpuQuota;
use crate::clock;
use crate::config::FreezeBy;
use crate::failpoint;
use crate::journal::{Entry, Hold, Key, Kind};
use crate::levers::{self, LeverError, Released, crawl};
use crate::runtime::RuntimeError;
use crate::wire::Mode;

/// A sacrificed container gets this long to end by itself.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// So long a round waits for what it began: enough for files, too little for a runtime.
const PROMPT: Duration = Duration::from_millis(5);
/// On the way out the runtime gets this many chances to be told.
const LAST_TRIES: usize = 5;

/// By which a container is stopped.
const STOPS: &[Kind] = &[Kind::Freeze, Kind::Quota];

fn keys(id: &ContainerId, kinds: &[Kind]) -> Vec<Key> {
    kinds.iter().map(|kind| (id.to_string(), *kind)).collect()
}

impl Agent {
    /// Does what was decided, or only notes it. Holds go before releases, as they were ordered; all holds of a round share one journal write.
    pub(super) async fn carry_out(&mut self, decisions: Vec<Decision>, allowed: bool) {
        let mut begun: Vec<(Entry, Decision)> = Vec::new();
        let mut raised = Vec::new();
        let mut rest = Vec::new();
        for decision in decisions {
            if !allowed {
                // Said again when it may be: the guard tells of its gate only when that changes.
                if matches!(decision.action, Action::Gate { .. }) && self.run.mode == Mode::Apply {
                    self.state.gate_open = None;
                }
                self.note_decision(&decision, false);
                continue;
            }
            match &decision.action {
                // It has nothing that could be released: it comes in when the kubelet asks again.
                Action::Admit { container } if self.waiting.contains_key(container) => {
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
        self.land_for(PROMPT).await;
        for (decision, ordered) in ordered {
            let done = ordered && self.let_go(&decision.action);
            self.note_decision(&decision, done);
        }
        self.forget_unstarted();
    }

    async fn begin(&mut self, begun: Vec<(Entry, Decision)>, leases: &[(Entry, u64)]) {
        // Whose release is not wholly done is asked for again at the next look.
        let (busy, begun): (Vec<_>, Vec<_>) = begun.into_iter().partition(|(entry, _)| self.underway.keys().contains(&entry.key()));
        for (_, decision) in busy {
            self.note_decision(&decision, false);
        }
        if begun.is_empty() {
            return;
        }
        failpoint::hit("before_begin");
        let entries: Vec<Entry> = begun.iter().map(|(entry, _)| entry.clone()).collect();
        if let Err(error) = self.journal.begin(&entries) {
            tracing::error!(%error, "the journal cannot be written: nothing is held");
            return;
        }
        failpoint::hit("after_begin");
        for (entry, decision) in begun {
            self.watch_leak(&entry);
            let high = leases.iter().find(|(lease, _)| lease.key() == entry.key()).map(|(_, high)| *high);
            let (runtime, looked) = (self.runtime.clone(), self.looked);
            self.underway.hold(entry.key(), async move {
                let result = match (&entry.hold, high) {
                    (Hold::High { file, .. }, Some(high)) => std::fs::write(file, high.to_string()).map_err(LeverError::from),
                    _ => levers::hold(&entry, &runtime).await,
                };
                Landed::Held { entry, decision, looked, result }
            });
        }
        self.begin_episode();
        self.land_for(PROMPT).await;
    }

    /// Takes in what lands within that time; the rest lands later.
    async fn land_for(&mut self, patience: Duration) {
        let end = tokio::time::Instant::now() + patience;
        while !self.underway.keys().is_empty() {
            let Ok(landed) = tokio::time::timeout_at(end, self.underway.next()).await else { return };
            self.land(landed);
        }
    }

    /// Takes in what came of a hold or a release.
    pub(super) fn land(&mut self, landed: Landed) {
        match landed {
            // The container ended meanwhile, and its entry with it.
            Landed::Held { entry, .. } if !self.journal.open_entries().contains_key(&entry.key()) => {}
            Landed::Held { entry, decision, looked, result: Ok(()) } => {
                failpoint::hit("after_hold");
                let metrics = &self.shared.metrics;
                metrics.reaction.observe(looked.elapsed().as_secs_f64());
                if entry.hold.kind() == Kind::High {
                    metrics.leases.inc()
                } else {
                    metrics.pauses.inc()
                };
                self.note_decision(&decision, true);
                self.tell(&entry.container, "MemoryGuardPaused", &format!("held: {}", decision.reason));
            }
            Landed::Held { entry, decision, result: Err(error), .. } => {
                failpoint::hit("after_hold");
                self.shared.metrics.failures.inc();
                tracing::warn!(container.name = %entry.name, %error, "could not be held");
                self.note_decision(&decision, false);
                // Perhaps it is held after all.
                self.releasing.insert(entry.key());
            }
            Landed::Released { entry, result: Ok(released) } => {
                failpoint::hit("after_release");
                if released == Released::Foreign {
                    tracing::info!(container.name = %entry.name, "somebody else has changed it meanwhile; theirs stays");
                }
                self.finish(&entry.key());
                failpoint::hit("after_end");
            }
            Landed::Released { entry, result: Err(error) } => {
                tracing::debug!(container.name = %entry.name, %error, "not wholly let go yet");
            }
        }
    }

    fn carry_out_one(&mut self, decision: &Decision) -> bool {
        match &decision.action {
            Action::Resume { container } | Action::Admit { container } => {
                self.armed.remove(&*container.0);
                self.release(&keys(container, STOPS));
                self.tell(&container.0, "MemoryGuardResumed", &format!("goes on: {}", decision.reason));
                true
            }
            Action::EndLease { container } => {
                self.release(&keys(container, &[Kind::High]));
                true
            }
            Action::Lease { container, high, .. } => self.raise(container, *high),
            Action::Sacrifice { container } => self.sacrifice(container, &decision.reason.to_string()),
            Action::Gate { open } => {
                if self.run.taint
                    && let Some(say) = &self.say
                {
                    return say.try_send(Say::Gate { open: *open }).is_ok();
                }
                true
            }
            Action::Pause { .. } => false,
        }
    }

    /// Whether whom this lets go is held no more, or is on its way; true of all that lets nobody go.
    fn let_go(&self, action: &Action) -> bool {
        let keys = match action {
            Action::Resume { container } | Action::Admit { container } => keys(container, STOPS),
            Action::EndLease { container } => keys(container, &[Kind::High]),
            _ => Vec::new(),
        };
        let held = |key: &Key| self.journal.open_entries().get(key).is_some_and(levers::in_effect);
        keys.iter().all(|key| self.underway.keys().contains(key) || !held(key))
    }

    fn pause_entry(&self, id: &ContainerId, lever: Lever, until: drover_memguard::Moment) -> Result<Entry, String> {
        let known = self.inventory.known().get(&*id.0).ok_or("it is not known")?;
        let freezer = known.group.freezer().clone();
        let hold = match lever {
            Lever::Freeze if self.run.freeze_by == FreezeBy::Runtime => {
                Hold::Pause { freezer: Some(freezer).filter(crate::cgroup::Freezer::there) }
            }
            Lever::Freeze => Hold::Freeze { freezer },
            Lever::Quota => {
                let before = known.group.cpu_quota().map_err(|error| error.to_string())?;
                Hold::Quota { dir: known.group.cpu_dir().to_owned(), before, ours: crawl(before, self.run.crawl) }
            }
        };
        Ok(Entry { container: id.to_string(), name: known.name.to_string(), hold, since: clock::now(), until, at_gate: false })
    }

    /// The entry of a new lease; none if there is one already.
    fn lease_entry(&self, id: &ContainerId, until: drover_memguard::Moment) -> Result<Option<Entry>, String> {
        let key = (id.to_string(), Kind::High);
        if self.journal.open_entries().contains_key(&key) && !self.releasing.contains(&key) {
            return Ok(None);
        }
        let known = self.inventory.known().get(&*id.0).ok_or("it is not known")?;
        let file = known.group.high_file().ok_or("it has no memory.high")?;
        let before = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
        let hold = Hold::High { file, before: before.trim().to_owned() };
        Ok(Some(Entry { container: id.to_string(), name: known.name.to_string(), hold, since: clock::now(), until, at_gate: false }))
    }

    /// Sets another value in a lease that is there.
    fn raise(&self, id: &ContainerId, high: u64) -> bool {
        match self.journal.open_entries().get(&(id.to_string(), Kind::High)).map(|entry| &entry.hold) {
            Some(Hold::High { file, .. }) => std::fs::write(file, high.to_string()).is_ok(),
            _ => false,
        }
    }

    /// Lets go; what cannot be finished now is tried again at every look.
    fn release(&mut self, keys: &[Key]) {
        let entries: Vec<Entry> = keys.iter().filter_map(|key| self.journal.open_entries().get(key).cloned()).collect();
        self.releasing.extend(entries.iter().map(Entry::key));
        if !entries.is_empty() {
            failpoint::hit("before_release");
        }
        for entry in entries {
            if self.underway.keys().contains(&entry.key()) {
                continue;
            }
            let runtime = self.runtime.clone();
            self.underway.release(entry.key(), async move {
                let result = levers::release(&entry, Some(&runtime)).await;
                Landed::Released { entry, result }
            });
        }
    }

    /// Books the end of a hold.
    pub(super) fn finish(&mut self, key: &Key) {
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

    /// Also of those that nobody lists any more: without events that is how an end is noticed.
    pub(super) async fn let_go_of_leftovers(&mut self) {
        let unlisted = |key: &&Key| !self.inventory.known().contains_key(&key.0) && !self.armed.contains_key(&key.0);
        self.releasing.extend(self.journal.open_entries().keys().filter(unlisted).cloned());
        if !self.releasing.is_empty() {
            let keys: Vec<Key> = self.releasing.iter().cloned().collect();
            self.release(&keys);
            self.land_for(PROMPT).await;
        }
    }

    pub(super) fn release_all(&mut self) {
        self.releasing.extend(self.journal.open_entries().keys().cloned());
    }

    /// On the way out. What is left then is in the journal, for the watchdog and the next agent.
    pub(super) async fn let_everything_go(&mut self) {
        for _ in 0..LAST_TRIES {
            self.release_all();
            self.let_go_of_leftovers().await;
            while !self.underway.keys().is_empty() {
                self.land_for(self.run.common.poll).await;
                self.sign_of_life();
            }
            if self.journal.open_entries().is_empty() {
                return;
            }
            tokio::time::sleep(self.run.common.poll).await;
        }
        tracing::warn!(left = self.journal.open_entries().len(), "the runtime could not be told of everything that was let go");
    }

    /// Containers with a quota like ours that no journal knows (it was deleted, say): given back what they were created with.
    pub(super) async fn free_orphans(&mut self) {
        let mut orphans: BTreeMap<String, CpuQuota> = BTreeMap::new();
        for (id, known) in self.inventory.known() {
            let (Some(created), Ok(now)) = (known.created_quota, known.group.cpu_quota()) else { continue };
            let journaled = self.journal.open_entries().contains_key(&(id.clone(), Kind::Quota));
            if !journaled && now != created && now == crawl(created, self.run.crawl) {
                orphans.insert(id.clone(), created);
            }
        }
        for (id, created) in orphans {
            let runtime = self.runtime.clone();
            match self.beating(runtime.set_quota(&id, created)).await {
                Ok(()) => tracing::warn!(container.id = id, "had a quota of ours that no journal knew: restored"),
                Err(error) => tracing::warn!(container.id = id, %error, "has a quota of ours that no journal knew"),
            }
        }
    }

    fn sacrifice(&mut self, id: &ContainerId, reason: &str) -> bool {
        let Some(known) = self.inventory.known().get(&*id.0) else { return false };
        let (pod, uid) = (known.pod.clone(), known.uid.clone());
        if let Some(say) = &self.say {
            self.shared.metrics.sacrifices.inc();
            return say.try_send(Say::Evict { pod, uid }).is_ok();
        }
        if !self.run.sacrifice_by_runtime {
            return false;
        }
        tracing::warn!(container.name = %known.name, reason, "is sacrificed");
        self.stopped.insert(id.to_string());
        self.release(&keys(id, &[Kind::Freeze, Kind::Quota, Kind::High]));
        self.shared.metrics.sacrifices.inc();
        let (runtime, id) = (self.runtime.clone(), id.to_string());
        tokio::spawn(async move {
            match runtime.stop(&id, LAST_WORDS).await {
                Ok(()) | Err(RuntimeError::Gone) => {}
                Err(error) => tracing::warn!(container.id = id, %error, "could not be stopped"),
            }
        });
        true
    }

    fn watch_leak(&mut self, entry: &Entry) {
        let seen = self.seen.containers.iter().find(|container| *container.id.0 == *entry.container);
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
        tracing::warn!(container.id = %id, error, "cannot be held");
    }

    /// An Event, if there is an API server.
    pub(super) fn tell(&self, id: &str, reason: &'static str, message: &str) {
        let (Some(say), Some(known)) = (&self.say, self.inventory.known().get(id)) else { return };
        let event = Say::Event {
            pod: known.pod.clone(),
            uid: known.uid.clone(),
            container: known.name.rsplit('/').next().unwrap_or_default().to_owned(),
            reason,
            message: message.to_owned(),
        };
        if say.try_send(event).is_err() {
            tracing::debug!("an Event was dropped: too many wait");
        }
    }
}
