//! The agent of a node: observes, lets the guard decide, carries the decisions out. One loop in one thread.
//!
//! Invariants: a hold is in the journal before it is carried out; nothing is held unless a dead man's switch runs; what the journal of an
//! earlier agent names is released before anything else; on exit everything is released.

mod act;
mod event_gate;
mod nri_gate;
mod pending;
mod policy;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use drover_memguard::{ContainerId, Guard, GuardState, Levers, NodeMemory, Observation, Reading};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::api::{ApiServer, ApiWrite, ClusterView};
use crate::cgroup::{Hierarchy, NodeMemorySource};
use crate::clock;
use crate::config::Run;
use crate::heartbeat::{Heartbeat, HeartbeatMonitor};
use crate::http::{Shared, serve_address, serve_socket};
use crate::inventory::{Finding, Inventory, RuntimeListing, list};
use crate::journal::{HoldKey, Journal, JournalEntry};
use crate::nri::NriPlugin;
use crate::runtime::{Runtime, RuntimeError};
use crate::supervise::spawn;
use crate::watchdog::StateFiles;
use crate::wire::Mode;

use event_gate::EventStream;
use nri_gate::RefusedContainer;
use pending::PendingChanges;
use report::{MemoryTrend, RememberedDecision};

/// The list of containers is read at least this often, and whenever a task begins or ends.
const REFRESH: Duration = Duration::from_secs(5);
/// The status of the runtime before it was asked for the first time.
const UNASKED: &str = "not asked yet";
/// Writes that may queue for the API server; more are dropped.
const WRITE_QUEUE: usize = 256;

/// The agent of a node with everything it knows.
pub struct Agent {
    run: Run,
    files: StateFiles,
    guard: Guard,
    policy_because: String,
    state: GuardState,
    observation: Observation,
    inventory: Inventory,
    journal: Journal,
    runtime: Runtime,
    runtime_status: String,
    events: EventStream,
    plugin: NriPlugin,
    memory_source: NodeMemorySource,
    memory_description: String,
    hierarchy: Hierarchy,
    cluster: Arc<Mutex<ClusterView>>,
    api_writes: Option<mpsc::Sender<ApiWrite>>,
    api_server: Option<ApiServer>,
    /// Whether the node is to be tainted; `None` until the gate was first opened or closed.
    tainted: watch::Sender<Option<bool>>,
    shared: Arc<Shared>,
    heartbeat: Heartbeat,
    watchdog: HeartbeatMonitor,
    child: Option<Child>,
    /// Entries that are being released: undone as far as possible, and repeated until the runtime has been told too.
    releasing: BTreeSet<HoldKey>,
    /// Holds and releases of which the runtime is still being told.
    pending: PendingChanges,
    /// Containers that are to be held as soon as they have started, since when.
    to_hold: BTreeMap<String, (JournalEntry, Instant)>,
    /// Containers that were refused at their creation; the kubelet will ask again.
    refused: BTreeMap<ContainerId, RefusedContainer>,
    /// Containers that the guard has stopped: their death is no OOM kill.
    stopped: BTreeSet<String>,
    episode: Option<u64>,
    remembered: BTreeMap<ContainerId, RememberedDecision>,
    memory: MemoryTrend,
    refreshed: Option<Instant>,
    listing: Option<JoinHandle<Result<RuntimeListing, RuntimeError>>>,
    observed_at: Instant,
}

/// Runs the agent until it receives SIGTERM or SIGINT.
///
/// # Errors
/// When the agent cannot start: no cgroups, no place for the journal, bad settings. Later errors are logged and survived.
pub async fn run(run: Run) -> Result<()> {
    let files = StateFiles::of(&run.common.state);
    std::fs::create_dir_all(&run.common.state).with_context(|| format!("cannot create {}", run.common.state.display()))?;
    let mut agent = Agent::new(run, files).await?;
    let shared = agent.shared.clone();
    let socket = agent.files.socket();
    spawn(&shared.clone().tasks, "socket", {
        let shared = shared.clone();
        move || serve_socket(socket.clone(), shared.clone())
    });
    if let Some(address) = agent.run.listen {
        spawn(&shared.clone().tasks, "metrics-server", move || serve_address(address, shared.clone()));
    }
    agent.work().await
}

impl Agent {
    async fn new(run: Run, files: StateFiles) -> Result<Self> {
        let hierarchy = Hierarchy::detect(&run.cgroup_root)?;
        let meminfo = run.proc.join("meminfo");
        let (memory_source, mut memory_description) = match &run.cgroup {
            Some(path) => {
                let source = NodeMemorySource::group(hierarchy.group_at(path), &meminfo).with_context(|| format!("no cgroup {path}"))?;
                (source, format!("cgroup {path}"))
            }
            None => (NodeMemorySource::machine(&meminfo)?, "/proc/meminfo".to_owned()),
        };
        if run.eviction > 0 {
            memory_description = format!("{memory_description}, minus the {} MiB below which the kubelet evicts", run.eviction >> 20);
        }
        let runtime = Runtime::at(&run.common.runtime, run.common.deadline);
        let shared = Arc::new(Shared::default());
        let events = EventStream::new(runtime.clone(), &shared.tasks);
        let plugin = NriPlugin::new(run.nri.clone(), &shared.tasks);
        let journal = Journal::open(&files.journal()).context("the journal cannot be opened, and without it nothing can be held safely")?;
        let levers = Levers { freeze: true, quota: true, high: hierarchy.version() == "v2" };
        let inventory = Inventory::new(hierarchy.clone(), run.proc.clone(), levers);
        let cluster = Arc::new(Mutex::new(ClusterView::default()));
        let tainted = watch::Sender::new(None);
        let mut api_server = None;
        let api_writes = match run.kubeconfig.is_some() || run.in_cluster {
            true => {
                anyhow::ensure!(!run.node.is_empty(), "--kubeconfig and --in-cluster need --node, the name of this node in the API server");
                let server = ApiServer::new(run.kubeconfig.as_deref(), run.node.clone()).await?;
                let (sender, receiver) = mpsc::channel(WRITE_QUEUE);
                let (view, receiver) = (cluster.clone(), Arc::new(tokio::sync::Mutex::new(receiver)));
                let taint = tainted.subscribe();
                api_server = Some(server.clone());
                let reporter = report::of_node(&shared);
                spawn(&shared.tasks, "api-server", move || {
                    server.clone().run(view.clone(), receiver.clone(), taint.clone(), reporter.clone())
                });
                Some(sender)
            }
            false => None,
        };
        let releasing = journal.open_entries().keys().cloned().collect();
        let mut agent = Self {
            guard: policy::guard(&run)?,
            policy_because: String::new(),
            state: GuardState::default(),
            observation: Observation::default(),
            heartbeat: Heartbeat::start(&files.agent_pulse())?,
            watchdog: HeartbeatMonitor::new(&files.watchdog_pulse()),
            child: None,
            runtime_status: UNASKED.to_owned(),
            shared,
            to_hold: BTreeMap::new(),
            refused: BTreeMap::new(),
            stopped: BTreeSet::new(),
            episode: None,
            remembered: BTreeMap::new(),
            memory: MemoryTrend::default(),
            refreshed: None,
            listing: None,
            observed_at: Instant::now(),
            run,
            files,
            inventory,
            journal,
            runtime,
            events,
            plugin,
            memory_source,
            memory_description,
            hierarchy,
            cluster,
            api_writes,
            api_server,
            tainted,
            releasing,
            pending: PendingChanges::default(),
        };
        agent.choose_policy().await;
        Ok(agent)
    }

    async fn work(&mut self) -> Result<()> {
        let mut stop = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let mut tick = tokio::time::interval(self.run.common.poll);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        if !self.releasing.is_empty() {
            tracing::warn!(count = self.releasing.len(), "an earlier agent left containers held; they are released now");
        }
        loop {
            tokio::select! {
                _ = stop.0.recv() => break,
                _ = stop.1.recv() => break,
                event = self.events.next() => self.on_event(event).await,
                question = self.plugin.next() => self.on_question(question),
                finished = self.pending.next() => self.finish_change(finished),
                listing = finished(&mut self.listing) => self.on_listing(listing).await,
                _ = tick.tick() => self.poll().await,
            }
        }
        self.release_everything().await;
        self.untaint().await;
        if let Some(mut child) = self.child.take() {
            let _ = child.kill().await;
        }
        Ok(())
    }

    /// Without an agent nobody would remove the taint, and no pod would come to this node any more.
    async fn untaint(&mut self) {
        if let Some(server) = self.api_server.clone()
            && self.tainted.send_replace(Some(false)) == Some(true)
            && let Err(error) = self.beating(server.untaint()).await
        {
            tracing::warn!(error = format!("{error:#}"), "the taint of the node stays until an agent runs here again");
        }
    }

    /// One poll: observe, decide, carry out, publish.
    async fn poll(&mut self) {
        self.beat();
        if self.listing.is_none() && self.refreshed.is_none_or(|at| at.elapsed() >= REFRESH) {
            self.refreshed = Some(Instant::now());
            let known = self.inventory.known().keys().cloned().collect();
            self.listing = Some(tokio::spawn(list(self.runtime.clone(), known)));
        }
        self.adapt_policy();
        self.release_leftovers().await;
        self.observe();
        let (allowed, hindered) = self.may_act();
        if !allowed && !self.journal.open_entries().is_empty() {
            self.release_all();
        }
        let decisions = match self.run.mode {
            Mode::Off => Vec::new(),
            // Nothing is decided before the containers were listed once.
            _ if self.runtime_status == UNASKED => Vec::new(),
            Mode::Recommend | Mode::Apply => self.guard.step(&mut self.state, &self.observation, clock::now()),
        };
        self.carry_out(decisions, allowed).await;
        self.note_episode();
        self.publish(hindered);
    }

    /// Waits for `work` and keeps the heartbeat going, so that an agent that waits for a slow runtime does not look dead.
    pub(super) async fn beating<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                result = &mut work => return result,
                () = tokio::time::sleep(self.run.common.poll) => self.beat(),
            }
        }
    }

    fn beat(&mut self) {
        if let Err(error) = self.heartbeat.beat() {
            // The watchdog will regard this agent as dead and release everything, which is the safe outcome.
            tracing::error!(%error, "the heartbeat cannot be written");
        }
        self.keep_watchdog();
    }

    async fn on_listing(&mut self, listing: Result<RuntimeListing, RuntimeError>) {
        match listing {
            Ok(listing) => {
                self.inventory.update(listing);
                if self.runtime_status.starts_with("not ") {
                    self.greet_runtime().await;
                }
            }
            Err(error) => {
                if !self.runtime_status.starts_with("not answering") {
                    tracing::warn!(%error, "the runtime does not list its containers; continuing with those already known");
                }
                self.runtime_status = format!("not answering: {error}");
            }
        }
    }

    /// On the first contact with the runtime, and on each one after an interruption.
    async fn greet_runtime(&mut self) {
        let runtime = self.runtime.clone();
        if let Ok((name, version)) = self.beating(runtime.version()).await {
            self.runtime_status = format!("{name} {version}");
        }
        self.restore_orphaned_quotas().await;
    }

    fn observe(&mut self) {
        let now = clock::now();
        self.observed_at = Instant::now();
        let node = match self.memory_source.read() {
            // The memory below the eviction threshold cannot be used, because the kubelet evicts before it is taken.
            Ok(memory) => Reading::seen(NodeMemory { capacity: memory.capacity.saturating_sub(self.run.eviction), ..memory }, now),
            Err(error) => {
                tracing::warn!(%error, "the memory of the node cannot be read");
                Reading::Missing
            }
        };
        let mut undecided = self.releasing.clone();
        undecided.extend(self.pending.keys().iter().cloned());
        undecided.extend(self.to_hold.values().map(|(entry, _)| entry.key()));
        let view = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        let (containers, findings) = self.inventory.observe(&self.journal, &undecided, self.pending.holds(), &view, now);
        self.observation = Observation { node, containers, budgets: view.allowances() };
        drop(view);
        self.observe_refused(now);
        self.memory.learn(&self.observation, now);
        for finding in findings {
            match finding {
                Finding::Vanished(id) => {
                    self.refreshed = None;
                    self.gone(&id);
                }
                Finding::ReleasedByOthers(entry) => {
                    tracing::info!(container.name = %entry.name, "something else released a held container");
                    self.releasing.insert(entry.key());
                }
            }
        }
    }

    /// Whether containers may be held now, and if not, why.
    fn may_act(&mut self) -> (bool, Option<String>) {
        if self.run.mode != Mode::Apply {
            return (false, None);
        }
        // Before the API server was read, a leader cannot be told from other pods.
        if self.api_writes.is_some() && self.cluster.lock().unwrap_or_else(PoisonError::into_inner).version == 0 {
            return (
                false,
                Some(
                    "the API server has not answered yet, so it is not known which pods hold a Lease or have a PodDisruptionBudget"
                        .to_owned(),
                ),
            );
        }
        // The watchdog gets as much time as it gives the agent, and a second for its start.
        if self.watchdog.alive(self.run.common.poll * 3 + Duration::from_secs(1)) {
            (true, None)
        } else {
            (false, Some("the dead man's switch does not run, and nothing is held without it".to_owned()))
        }
    }

    /// Starts the watchdog, and again if it ended. It gets a process group of its own, so that a signal to the agent's group does not
    /// reach it.
    fn keep_watchdog(&mut self) {
        if self.run.external_watchdog || self.run.mode != Mode::Apply {
            return;
        }
        match self.child.as_mut().map(Child::try_wait) {
            Some(Ok(None)) => return,
            Some(Ok(Some(status))) => {
                // It ends with success when another watchdog runs, which is fine as long as that one's heartbeat is seen.
                if status.success() && self.watchdog.alive(self.run.common.poll * 3) {
                    return;
                }
                tracing::warn!(%status, "the dead man's switch ended and is started again");
            }
            _ => {}
        }
        let common = &self.run.common;
        let spawned = std::env::current_exe().and_then(|program| {
            Command::new(program)
                .arg("watchdog")
                .arg("--state")
                .arg(&common.state)
                .arg("--runtime")
                .arg(&common.runtime)
                .args(["--poll", &format!("{}ms", common.poll.as_millis())])
                .args(["--deadline", &format!("{}ms", common.deadline.as_millis())])
                .env_remove("MEMGUARD_DIE_AT")
                .env_remove("MEMGUARD_STALL_AT")
                .stdin(Stdio::null())
                .process_group(0)
                .spawn()
        });
        match spawned {
            Ok(child) => self.child = Some(child),
            Err(error) => tracing::error!(%error, "the dead man's switch cannot be started, so nothing will be held"),
        }
    }

    fn gone(&mut self, id: &str) {
        self.to_hold.remove(id);
        let keys: Vec<HoldKey> = self.journal.open_entries().keys().filter(|key| key.0 == id).cloned().collect();
        for key in keys {
            self.finish(&key);
        }
    }
}

/// The result of a task when it has ended; waits for ever if there is no task.
async fn finished(task: &mut Option<JoinHandle<Result<RuntimeListing, RuntimeError>>>) -> Result<RuntimeListing, RuntimeError> {
    let result = match task {
        Some(running) => running.await,
        None => std::future::pending().await,
    };
    *task = None;
    result.unwrap_or_else(|error| Err(RuntimeError::Unreachable(error.to_string())))
}
