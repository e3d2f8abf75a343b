//! The start gate by events: when containerd says that a task was created, it is decided whether it may start; one that may not is frozen
//! the moment it has started.
//!
//! Not earlier: `runc start` waits for the container's process to open a fifo, and a frozen one never does, so a freeze before the start
//! would hang the kubelet's call until it times out. What the process allocates between its start and the freeze is the leak of this gate.

use std::time::{Duration, Instant};

use drover_memguard::{Activity, ContainerId};
use tonic::Streaming;

use super::Agent;
use crate::clock;
use crate::journal::{Entry, Hold};
use crate::proto::containerd::types::Envelope;
use crate::runtime::{Runtime, RuntimeError, TaskEvent, task_event};
use crate::wire::Mode;

/// Between two attempts to hear events.
const AGAIN: Duration = Duration::from_secs(1);
/// A task that was created and not started within this time is not waited for.
const START: Duration = Duration::from_secs(30);

/// The stream of events, made anew when it breaks.
pub(super) struct Events {
    runtime: Runtime,
    stream: Option<Streaming<Envelope>>,
    last_try: Option<Instant>,
}

/// What came out of the stream.
pub(super) enum Heard {
    Event(TaskEvent),
    /// Events may have been missed.
    Reconnected,
}

impl Events {
    pub(super) fn new(runtime: Runtime) -> Self {
        Self { runtime, stream: None, last_try: None }
    }

    pub(super) fn heard(&self) -> bool {
        self.stream.is_some()
    }

    pub(super) async fn connect(&mut self) -> Result<(), RuntimeError> {
        self.last_try = Some(Instant::now());
        self.stream = Some(self.runtime.events().await?);
        Ok(())
    }

    /// The next thing of interest. Safe to drop and call again.
    pub(super) async fn next(&mut self) -> Heard {
        loop {
            match &mut self.stream {
                None => {
                    if let Some(wait) = self.last_try.and_then(|at| AGAIN.checked_sub(at.elapsed())) {
                        tokio::time::sleep(wait).await;
                    }
                    match self.connect().await {
                        Ok(()) => return Heard::Reconnected,
                        // A runtime that has no such call will not grow one.
                        Err(RuntimeError::Unsupported(_)) => std::future::pending().await,
                        Err(_) => {}
                    }
                }
                Some(stream) => match stream.message().await {
                    Ok(Some(envelope)) => {
                        if let Some(event) = task_event(&envelope) {
                            return Heard::Event(event);
                        }
                    }
                    Ok(None) | Err(_) => self.stream = None,
                },
            }
        }
    }
}

impl Agent {
    pub(super) async fn on_event(&mut self, heard: Heard) {
        self.sign_of_life();
        match heard {
            Heard::Reconnected => self.refreshed = None,
            Heard::Event(TaskEvent::Created { id, pid }) => self.on_created(&id, pid).await,
            Heard::Event(TaskEvent::Started { id, .. }) => self.on_started(&id).await,
            Heard::Event(TaskEvent::Exited { id, code }) => self.on_exited(&id, code),
        }
    }

    async fn on_created(&mut self, id: &str, pid: u32) {
        // A sandbox is no container of CRI and answers "not found".
        let Ok(mut inspected) = self.runtime.inspect(id).await else { return };
        let Ok(sandboxes) = self.runtime.sandboxes().await else { return };
        let Some(sandbox) = sandboxes.get(&inspected.sandbox) else { return };
        inspected.pid = i32::try_from(pid).unwrap_or(0);
        self.inventory.add(id, sandbox, &inspected);
        let (allowed, _) = self.may_act();
        if !allowed || self.run.mode != Mode::Apply {
            return;
        }
        let now = clock::now();
        let view = self.cluster.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let Some(container) = self.inventory.newcomer(id, &view, now) else { return };
        let Err(reason) = self.guard.may_start(&mut self.state, &self.seen, &container, now) else { return };
        let Some(known) = self.inventory.known().get(id) else { return };
        // Its probes begin to ask as soon as it has started.
        let longest = container.permission.longest(self.guard.safety.max_hold);
        let entry = Entry {
            container: id.to_owned(),
            name: container.name.to_string(),
            hold: Hold::Freeze { freezer: known.group.freezer().clone() },
            since: now,
            until: now + longest,
            at_gate: true,
        };
        if let Err(error) = self.journal.begin(std::slice::from_ref(&entry)) {
            tracing::error!(%error, "the journal cannot be written: nothing is held");
            return;
        }
        tracing::info!(container.name = %container.name, reason = %reason, "is held at its start");
        self.note(&ContainerId::from(id), None, &reason, true);
        self.tell(id, "MemoryGuardHeld", &format!("held at its start: {reason}"));
        self.armed.insert(id.to_owned(), (entry, Instant::now()));
    }

    async fn on_started(&mut self, id: &str) {
        let Some((entry, _)) = self.armed.remove(id) else { return };
        if let Err(error) = crate::levers::hold(&entry, &self.runtime).await {
            tracing::warn!(container.name = %entry.name, %error, "could not be held at its start");
            self.shared.metrics.failures.inc();
            self.releasing.insert(entry.key());
            return;
        }
        self.shared.metrics.gated.inc();
        self.begin_episode();
        if let Some(known) = self.inventory.get_mut(id) {
            known.leak = Some((0, 0));
        }
    }

    fn on_exited(&mut self, id: &str, code: u32) {
        const SIGKILLED: u32 = 137;
        let known = self.inventory.known().contains_key(id);
        if known && code == SIGKILLED && !self.stopped.contains(id) {
            self.shared.metrics.oom_kills.inc();
        }
        self.stopped.remove(id);
        self.inventory.forget(id);
        self.gone(id);
    }

    /// Created, held ready, and never started.
    pub(super) fn forget_unstarted(&mut self) {
        let late: Vec<String> = self.armed.iter().filter(|(_, (_, at))| at.elapsed() > START).map(|(id, _)| id.clone()).collect();
        for id in late {
            if let Some((entry, _)) = self.armed.remove(&id) {
                self.releasing.insert(entry.key());
            }
        }
    }

    /// Whether somebody is at the gate.
    pub(super) fn gate_words(&self) -> crate::wire::Gate {
        let gate = self.guard.policy.gate();
        let by = if gate.is_some() && self.events.heard() { "events" } else { "none" };
        crate::wire::Gate {
            by: by.to_owned(),
            open: gate.and(self.state.gate_open),
            demand: gate.map(|gate| self.state.demand.factor(gate)),
        }
    }

    /// How many are held now.
    pub(super) fn held(&self) -> usize {
        self.seen.containers.iter().filter(|container| !matches!(container.activity, Activity::Running { lease: None })).count()
    }
}
