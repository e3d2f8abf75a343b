//! The start gate by events, for runtimes without NRI. When containerd reports that a task was created, the guard decides whether it may
//! start; one that may not is frozen as soon as it has started.
//!
//! It is not frozen earlier, because `runc start` waits for the container's process to open a fifo, which a frozen process never does: a
//! freeze before the start would block the kubelet's call until it times out. What the process allocates between its start and the freeze
//! is the leak of this gate.

use std::time::{Duration, Instant};

use drover_memguard::{Activity, ContainerId};
use drover_tasks::Tasks;
use tokio::sync::{mpsc, watch};

use super::Agent;
use crate::clock;
use crate::journal::{Hold, JournalEntry};
use crate::nri::NriLink;
use crate::runtime::{Runtime, RuntimeError, TaskEvent, task_event};
use crate::wire::Mode;

/// Time between two attempts to subscribe to events.
const AGAIN: Duration = Duration::from_secs(1);
/// A runtime without events refuses the subscription within this time.
const NO_REFUSAL: Duration = Duration::from_millis(300);
/// A task that was created and not started within this time is not waited for any more.
const START: Duration = Duration::from_secs(30);

/// An item of the event stream.
pub(super) enum StreamItem {
    Event(TaskEvent),
    /// The stream was opened anew, so events may have been missed.
    Reconnected,
}

/// The state of the event stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StreamState {
    /// It is not known yet whether the runtime has events.
    Trying,
    /// Events are received.
    Receiving,
    /// The runtime has no events.
    Unsupported(String),
    /// Events are not received at present.
    Interrupted(String),
}

/// The event stream: a task of its own receives the events, and subscribes again when the stream breaks.
pub(super) struct EventStream {
    receiver: mpsc::Receiver<StreamItem>,
    state: watch::Receiver<StreamState>,
}

impl EventStream {
    pub(super) fn new(runtime: Runtime, tasks: &Tasks) -> Self {
        let (sender, receiver) = mpsc::channel(64);
        let (tell, state) = watch::channel(StreamState::Trying);
        crate::supervise::spawn(tasks, "runtime-events", move || {
            let (runtime, sender, tell) = (runtime.clone(), sender.clone(), tell.clone());
            async move {
                while !matches!(*tell.borrow(), StreamState::Unsupported(_)) && !sender.is_closed() {
                    let outcome = receive_events(&runtime, &sender, &tell).await;
                    let _ = tell.send(outcome);
                    tokio::time::sleep(AGAIN).await;
                }
                sender.closed().await;
            }
        });
        Self { receiver, state }
    }

    /// The state of the stream, after waiting briefly for the first attempt.
    pub(super) async fn settled_state(&mut self) -> StreamState {
        let known = self.state.wait_for(|state| *state != StreamState::Trying);
        match tokio::time::timeout(AGAIN, known).await {
            Ok(Ok(state)) => state.clone(),
            _ => StreamState::Interrupted("the runtime has not answered yet".to_owned()),
        }
    }

    pub(super) fn state(&self) -> StreamState {
        self.state.borrow().clone()
    }

    /// Waits for the next item.
    pub(super) async fn next(&mut self) -> StreamItem {
        match self.receiver.recv().await {
            Some(item) => item,
            None => std::future::pending().await,
        }
    }
}

/// Receives events until the stream ends. Returns why it ended.
async fn receive_events(runtime: &Runtime, sender: &mpsc::Sender<StreamItem>, tell: &watch::Sender<StreamState>) -> StreamState {
    let mut opening = std::pin::pin!(runtime.events());
    // containerd answers only with the first event, so a subscription that is not refused for a while counts as accepted.
    let opened = match tokio::time::timeout(NO_REFUSAL, &mut opening).await {
        Ok(Err(RuntimeError::Unsupported(call))) => return StreamState::Unsupported(RuntimeError::Unsupported(call).to_string()),
        Ok(Err(error)) => return StreamState::Interrupted(error.to_string()),
        Ok(Ok(stream)) => Some(stream),
        Err(_) => None,
    };
    let _ = tell.send(StreamState::Receiving);
    let _ = sender.send(StreamItem::Reconnected).await;
    let mut stream = match opened {
        Some(stream) => stream,
        None => match opening.await {
            Ok(stream) => stream,
            Err(error) => return StreamState::Interrupted(error.to_string()),
        },
    };
    loop {
        match stream.message().await {
            Ok(Some(envelope)) => {
                if let Some(event) = task_event(&envelope) {
                    let _ = sender.send(StreamItem::Event(event)).await;
                }
            }
            Ok(None) => return StreamState::Interrupted("the event stream ended".to_owned()),
            Err(status) => return StreamState::Interrupted(status.message().to_owned()),
        }
    }
}

impl Agent {
    pub(super) async fn on_event(&mut self, item: StreamItem) {
        self.beat();
        match item {
            StreamItem::Reconnected => self.refreshed = None,
            StreamItem::Event(TaskEvent::Created { id, pid }) => self.on_created(&id, pid).await,
            StreamItem::Event(TaskEvent::Started { id, .. }) => self.on_started(&id).await,
            StreamItem::Event(TaskEvent::Exited { id, code }) => self.on_exited(&id, code),
        }
    }

    async fn on_created(&mut self, id: &str, pid: u32) {
        // A pod sandbox is a task too, but no container of CRI, and answers "not found".
        let runtime = self.runtime.clone();
        let both = async { Ok::<_, RuntimeError>((runtime.inspect(id).await?, runtime.sandboxes().await?)) };
        let Ok((mut inspected, sandboxes)) = self.beating(both).await else { return };
        let Some(sandbox) = sandboxes.get(&inspected.sandbox) else { return };
        inspected.pid = i32::try_from(pid).unwrap_or(0);
        self.inventory.add(id, sandbox, &inspected);
        let (allowed, _) = self.may_act();
        // Where the runtime asks before it creates a container, this one was allowed already.
        if !allowed || self.run.mode != Mode::Apply || self.plugin.link() == NriLink::Yes {
            return;
        }
        let now = clock::now();
        let view = self.cluster.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let Some(container) = self.inventory.describe_at_start(id, &view, now) else { return };
        let Err(reason) = self.guard.may_start(&mut self.state, &self.observation, &container, now) else { return };
        let Some(known) = self.inventory.known().get(id) else { return };
        // Its probes begin as soon as it has started.
        let until = self.guard.hold_until(&self.state, &container, now);
        let entry = JournalEntry {
            container: id.to_owned(),
            name: container.name.to_string(),
            hold: Hold::Freeze { freezer: known.group.freezer().clone() },
            since: now,
            until,
            at_gate: true,
        };
        if let Err(error) = self.journal.begin(std::slice::from_ref(&entry)) {
            tracing::error!(%error, "the journal cannot be written, so nothing is held");
            return;
        }
        tracing::info!(container.name = %container.name, reason = %reason, "a container is held at its start");
        self.note(&ContainerId::from(id), None, &reason, true);
        self.send_event(id, "MemoryGuardHeld", &format!("held at its start: {reason}"));
        self.to_hold.insert(id.to_owned(), (entry, Instant::now()));
    }

    async fn on_started(&mut self, id: &str) {
        let Some((entry, _)) = self.to_hold.remove(id) else { return };
        let runtime = self.runtime.clone();
        if let Err(error) = self.beating(crate::levers::hold(&entry, &runtime)).await {
            tracing::warn!(container.name = %entry.name, %error, "a container could not be held at its start");
            self.shared.metrics.failures.inc();
            self.releasing.insert(entry.key());
            return;
        }
        self.shared.metrics.gated.inc();
        self.refreshed = None;
        self.begin_episode();
        if let Some(known) = self.inventory.get_mut(id) {
            known.leak = Some((0, 0));
        }
    }

    fn on_exited(&mut self, id: &str, code: u32) {
        const SIGKILLED: u32 = 137;
        let known = self.inventory.forget(id);
        if known && code == SIGKILLED && !self.stopped.contains(id) {
            self.shared.metrics.oom_kills.inc();
        }
        self.stopped.remove(id);
        self.gone(id);
    }

    /// Gives up containers that were to be held and never started.
    pub(super) fn forget_unstarted(&mut self) {
        let late: Vec<String> = self.to_hold.iter().filter(|(_, (_, at))| at.elapsed() > START).map(|(id, _)| id.clone()).collect();
        for id in late {
            if let Some((entry, _)) = self.to_hold.remove(&id) {
                self.releasing.insert(entry.key());
            }
        }
    }

    /// The gate's part of the status.
    pub(super) fn gate_status(&self) -> crate::wire::GateStatus {
        let gate = self.guard.policy.gate();
        let (by, why) = match (gate, self.plugin.link(), self.events.state()) {
            (None, ..) => ("none", Some("the policy has no gate".to_owned())),
            (Some(_), NriLink::Yes, _) => ("nri", None),
            (Some(_), NriLink::No(why), StreamState::Receiving) => ("events", Some(format!("not by NRI: {why}"))),
            (Some(_), NriLink::No(_), StreamState::Trying) => ("none", Some("the runtime has not answered yet".to_owned())),
            (Some(_), NriLink::No(_), StreamState::Unsupported(why) | StreamState::Interrupted(why)) => ("none", Some(why)),
        };
        crate::wire::GateStatus {
            by: by.to_owned(),
            why,
            open: gate.and(self.state.gate_open),
            demand: gate.map(|gate| self.state.demand.factor(gate)),
        }
    }

    /// The number of containers that are held now.
    pub(super) fn held(&self) -> usize {
        self.observation.containers.iter().filter(|container| !matches!(container.activity, Activity::Running { lease: None })).count()
    }
}
