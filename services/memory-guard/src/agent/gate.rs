//! The start gate by events, for runtimes without NRI: when containerd says that a task was created, it is decided whether it may start; one that may not is frozen
//! the moment it has started.
//!
//! Not earlier: `runc start` waits for the container's process to open a fifo, and a frozen one never does, so a freeze before the start
//! would hang the kubelet's call until it times out. What the process allocates between its start and the freeze is the leak of this gate.

use std::time::{Duration, Instant};

use drover_memguard::{Activity, ContainerId};
use tokio::sync::{mpsc, watch};

use super::Agent;
use crate::clock;
use crate::journal::{Entry, Hold};
use crate::nri::Link;
use crate::runtime::{Runtime, RuntimeError, TaskEvent, task_event};
use crate::wire::Mode;

/// Between two attempts to hear events.
const AGAIN: Duration = Duration::from_secs(1);
/// A runtime that has no events says so within this time.
const NO_REFUSAL: Duration = Duration::from_millis(300);
/// A task that was created and not started within this time is not waited for.
const START: Duration = Duration::from_secs(30);

/// What comes out of the stream of events.
pub(super) enum Heard {
    /// An event.
    Event(TaskEvent),
    /// The stream was made anew: events may have been missed.
    Reconnected,
}

/// How it stands with the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hearing {
    /// Not known yet.
    Trying,
    /// It listens.
    Yes,
    /// The runtime has no such thing.
    Never(String),
    /// Not now.
    No(String),
}

/// The stream of events: a task of its own listens, and begins again when the stream breaks.
pub(super) struct Events {
    receiver: mpsc::Receiver<Heard>,
    hearing: watch::Receiver<Hearing>,
}

impl Events {
    pub(super) fn new(runtime: Runtime) -> Self {
        let (sender, receiver) = mpsc::channel(64);
        let (tell, hearing) = watch::channel(Hearing::Trying);
        tokio::spawn(async move {
            while !matches!(*tell.borrow(), Hearing::Never(_)) && !sender.is_closed() {
                let outcome = listen(&runtime, &sender, &tell).await;
                let _ = tell.send(outcome);
                tokio::time::sleep(AGAIN).await;
            }
            sender.closed().await;
        });
        Self { receiver, hearing }
    }

    /// Whether events are heard, after a moment for the first try.
    pub(super) async fn hearing(&mut self) -> Hearing {
        let known = self.hearing.wait_for(|hearing| *hearing != Hearing::Trying);
        match tokio::time::timeout(AGAIN, known).await {
            Ok(Ok(hearing)) => hearing.clone(),
            _ => Hearing::No("no answer yet".to_owned()),
        }
    }

    pub(super) fn state(&self) -> Hearing {
        self.hearing.borrow().clone()
    }

    /// The next thing of interest.
    pub(super) async fn next(&mut self) -> Heard {
        match self.receiver.recv().await {
            Some(heard) => heard,
            None => std::future::pending().await,
        }
    }
}

/// Listens until the stream ends, and says why it did.
async fn listen(runtime: &Runtime, sender: &mpsc::Sender<Heard>, tell: &watch::Sender<Hearing>) -> Hearing {
    let mut opening = std::pin::pin!(runtime.events());
    // containerd answers only with the first event: no refusal for a while is a yes.
    let opened = match tokio::time::timeout(NO_REFUSAL, &mut opening).await {
        Ok(Err(RuntimeError::Unsupported(call))) => return Hearing::Never(RuntimeError::Unsupported(call).to_string()),
        Ok(Err(error)) => return Hearing::No(error.to_string()),
        Ok(Ok(stream)) => Some(stream),
        Err(_) => None,
    };
    let _ = tell.send(Hearing::Yes);
    let _ = sender.send(Heard::Reconnected).await;
    let mut stream = match opened {
        Some(stream) => stream,
        None => match opening.await {
            Ok(stream) => stream,
            Err(error) => return Hearing::No(error.to_string()),
        },
    };
    loop {
        match stream.message().await {
            Ok(Some(envelope)) => {
                if let Some(event) = task_event(&envelope) {
                    let _ = sender.send(Heard::Event(event)).await;
                }
            }
            Ok(None) => return Hearing::No("the stream of events ended".to_owned()),
            Err(status) => return Hearing::No(status.message().to_owned()),
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
        let runtime = self.runtime.clone();
        let both = async { Ok::<_, RuntimeError>((runtime.inspect(id).await?, runtime.sandboxes().await?)) };
        let Ok((mut inspected, sandboxes)) = self.beating(both).await else { return };
        let Some(sandbox) = sandboxes.get(&inspected.sandbox) else { return };
        inspected.pid = i32::try_from(pid).unwrap_or(0);
        self.inventory.add(id, sandbox, &inspected);
        let (allowed, _) = self.may_act();
        // Where the runtime asks before, this one has been let in.
        if !allowed || self.run.mode != Mode::Apply || self.plugin.link() == Link::Yes {
            return;
        }
        let now = clock::now();
        let view = self.cluster.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let Some(container) = self.inventory.newcomer(id, &view, now) else { return };
        let Err(reason) = self.guard.may_start(&mut self.state, &self.seen, &container, now) else { return };
        let Some(known) = self.inventory.known().get(id) else { return };
        // Its probes begin to ask as soon as it has started.
        let until = self.guard.hold_until(&self.state, &container, now);
        let entry = Entry {
            container: id.to_owned(),
            name: container.name.to_string(),
            hold: Hold::Freeze { freezer: known.group.freezer().clone() },
            since: now,
            until,
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
        let runtime = self.runtime.clone();
        if let Err(error) = self.beating(crate::levers::hold(&entry, &runtime)).await {
            tracing::warn!(container.name = %entry.name, %error, "could not be held at its start");
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
        let (by, why) = match (gate, self.plugin.link(), self.events.state()) {
            (None, ..) => ("none", Some("the policy has no gate".to_owned())),
            (Some(_), Link::Yes, _) => ("nri", None),
            (Some(_), Link::No(why), Hearing::Yes) => ("events", Some(format!("not by NRI: {why}"))),
            (Some(_), Link::No(_), Hearing::Trying) => ("none", Some("the runtime has not answered yet".to_owned())),
            (Some(_), Link::No(_), Hearing::Never(why) | Hearing::No(why)) => ("none", Some(why)),
        };
        crate::wire::Gate {
            by: by.to_owned(),
            why,
            open: gate.and(self.state.gate_open),
            demand: gate.map(|gate| self.state.demand.factor(gate)),
        }
    }

    /// How many are held now.
    pub(super) fn held(&self) -> usize {
        self.seen.containers.iter().filter(|container| !matches!(container.activity, Activity::Running { lease: None })).count()
    }
}
