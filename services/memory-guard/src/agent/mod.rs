//! The agent of a node: looks, lets the guard decide, carries it out. One loop, one thread.
//!
//! Invariants: nothing is held that is not in the journal first; nothing is held unless a dead man's switch is alive; what the journal
//! of an earlier agent says is let go before anything else; on the way out everything is let go.

mod act;
mod gate;
mod newcomers;
mod policy;
mod report;
mod underway;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use drover_memguard::{ContainerId, Guard, Levers, NodeMemory, Observation, Reading, State};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::api::{ApiServer, ClusterView, Say};
use crate::cgroup::{Hierarchy, NodeMemorySource};
use crate::clock;
use crate::config::Run;
use crate::heartbeat::{Heartbeat, Pulse};
use crate::http::{Shared, serve_address, serve_socket};
use crate::inventory::{Finding, Inventory, Listing, list};
use crate::journal::{Entry, Journal, Key};
use crate::nri::Plugin;
use crate::runtime::{Runtime, RuntimeError};
use crate::watchdog::Files;
use crate::wire::Mode;

use gate::Events;
use newcomers::Waiting;
use report::{Memory, Said};
use underway::Underway;

/// The list of containers is read anew this often, besides whenever a task begins or ends.
const REFRESH: Duration = Duration::from_secs(5);
/// What is said of the runtime before it was asked.
const UNASKED: &str = "not asked yet";
/// Events that may wait for the API server; more are dropped.
const SAY_QUEUE: usize = 256;

/// The agent.
pub struct Agent {
    run: Run,
    files: Files,
    guard: Guard,
    policy_because: String,
    state: State,
    seen: Observation,
    inventory: Inventory,
    journal: Journal,
    runtime: Runtime,
    runtime_words: String,
    events: Events,
    plugin: Plugin,
    memory_source: NodeMemorySource,
    memory_words: String,
    hierarchy: Hierarchy,
    cluster: Arc<Mutex<ClusterView>>,
    say: Option<mpsc::Sender<Say>>,
    shared: Arc<Shared>,
    beat: Heartbeat,
    watchdog: Pulse,
    child: Option<Child>,
    /// Entries on their way out: let go as far as possible, to be repeated until the runtime has been told too.
    releasing: BTreeSet<Key>,
    /// Holds and releases of which the runtime is being told.
    underway: Underway,
    /// To be held when they start.
    armed: BTreeMap<String, (Entry, Instant)>,
    /// Refused at their creation; the kubelet will ask again.
    waiting: BTreeMap<ContainerId, Waiting>,
    /// Stopped by the guard: their death is no OOM kill.
    stopped: BTreeSet<String>,
    episode: Option<u64>,
    said: BTreeMap<ContainerId, Said>,
    memory: Memory,
    refreshed: Option<Instant>,
    listing: Option<JoinHandle<Result<Listing, RuntimeError>>>,
    looked: Instant,
}

/// Runs the agent until it is told to stop.
///
/// # Errors
/// It cannot begin: no cgroups, no place for the journal, bad settings. Later troubles are logged and survived.
pub async fn run(run: Run) -> Result<()> {
    let files = Files::of(&run.common.state);
    std::fs::create_dir_all(&run.common.state).with_context(|| format!("cannot make {}", run.common.state.display()))?;
    let mut agent = Agent::new(run, files).await?;
    let shared = agent.shared.clone();
    let socket = agent.files.socket();
    tokio::spawn({
        let shared = shared.clone();
        async move {
            if let Err(error) = serve_socket(&socket, shared).await {
                tracing::error!(error = format!("{error:#}"), "the agent cannot be asked");
            }
        }
    });
    if let Some(address) = agent.run.listen {
        tokio::spawn(async move {
            if let Err(error) = serve_address(address, shared).await {
                tracing::error!(error = format!("{error:#}"), "the metrics cannot be read");
            }
        });
    }
    agent.work().await
}

impl Agent {
    async fn new(run: Run, files: Files) -> Result<Self> {
        let hierarchy = Hierarchy::detect(&run.cgroup_root)?;
        let meminfo = run.proc.join("meminfo");
        let (memory_source, mut memory_words) = match &run.cgroup {
            Some(path) => {
                let source = NodeMemorySource::group(hierarchy.group_at(path), &meminfo).with_context(|| format!("no cgroup {path}"))?;
                (source, format!("cgroup {path}"))
            }
            None => (NodeMemorySource::machine(&meminfo)?, "/proc/meminfo".to_owned()),
        };
        if run.eviction > 0 {
            memory_words = format!("{memory_words}, without the {} MiB below which the kubelet evicts", run.eviction >> 20);
        }
        let runtime = Runtime::at(&run.common.runtime, run.common.deadline);
        let events = Events::new(runtime.clone());
        let plugin = Plugin::new(run.nri.clone());
        let journal = Journal::open(&files.journal()).context("the journal cannot be opened: nothing could be held safely")?;
        let levers = Levers { freeze: true, quota: true, high: hierarchy.version() == "v2" };
        let inventory = Inventory::new(hierarchy.clone(), run.proc.clone(), levers);
        let cluster = Arc::new(Mutex::new(ClusterView::default()));
        let say = match run.kubeconfig.is_some() || run.in_cluster {
            true => {
                anyhow::ensure!(!run.node.is_empty(), "with an API server --node is needed: the node's name there");
                let server = ApiServer::new(run.kubeconfig.as_deref(), run.node.clone()).await?;
                let (sender, receiver) = mpsc::channel(SAY_QUEUE);
                tokio::spawn(server.run(cluster.clone(), receiver));
                Some(sender)
            }
            false => None,
        };
        let releasing = journal.open_entries().keys().cloned().collect();
        let mut agent = Self {
            guard: policy::guard(&run)?,
            policy_because: String::new(),
            state: State::default(),
            seen: Observation::default(),
            beat: Heartbeat::start(&files.agent_pulse())?,
            watchdog: Pulse::of(&files.watchdog_pulse()),
            child: None,
            runtime_words: UNASKED.to_owned(),
            shared: Arc::default(),
            armed: BTreeMap::new(),
            waiting: BTreeMap::new(),
            stopped: BTreeSet::new(),
            episode: None,
            said: BTreeMap::new(),
            memory: Memory::default(),
            refreshed: None,
            listing: None,
            looked: Instant::now(),
            run,
            files,
            inventory,
            journal,
            runtime,
            events,
            plugin,
            memory_source,
            memory_words,
            hierarchy,
            cluster,
            say,
            releasing,
            underway: Underway::default(),
        };
        agent.choose_policy().await;
        Ok(agent)
    }

    async fn work(&mut self) -> Result<()> {
        let mut stop = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let mut tick = tokio::time::interval(self.run.common.poll);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        if !self.releasing.is_empty() {
            tracing::warn!(count = self.releasing.len(), "an earlier agent left containers held; they are let go");
        }
        loop {
            tokio::select! {
                _ = stop.0.recv() => break,
                _ = stop.1.recv() => break,
                event = self.events.next() => self.on_event(event).await,
                question = self.plugin.next() => self.on_question(question),
                landed = self.underway.next() => self.land(landed),
                listing = finished(&mut self.listing) => self.on_listing(listing).await,
                _ = tick.tick() => self.look_and_act().await,
            }
        }
        self.let_everything_go().await;
        if let Some(mut child) = self.child.take() {
            let _ = child.kill().await;
        }
        Ok(())
    }

    /// One poll.
    async fn look_and_act(&mut self) {
        self.sign_of_life();
        if self.listing.is_none() && self.refreshed.is_none_or(|at| at.elapsed() >= REFRESH) {
            self.refreshed = Some(Instant::now());
            let known = self.inventory.known().keys().cloned().collect();
            self.listing = Some(tokio::spawn(list(self.runtime.clone(), known)));
        }
        self.let_go_of_leftovers().await;
        self.look();
        let (allowed, hindered) = self.may_act();
        if !allowed && !self.journal.open_entries().is_empty() {
            self.release_all();
        }
        let decisions = match self.run.mode {
            Mode::Off => Vec::new(),
            // Not before it is known who there is.
            _ if self.runtime_words == UNASKED => Vec::new(),
            Mode::Recommend | Mode::Apply => self.guard.step(&mut self.state, &self.seen, clock::now()),
        };
        self.carry_out(decisions, allowed).await;
        self.note_episode();
        self.publish(hindered);
    }

    /// Waits for the runtime and goes on to show that it lives: a runtime that is slow must not look like an agent that is dead.
    pub(super) async fn beating<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                result = &mut work => return result,
                () = tokio::time::sleep(self.run.common.poll) => self.sign_of_life(),
            }
        }
    }

    fn sign_of_life(&mut self) {
        if let Err(error) = self.beat.beat() {
            // The watchdog will take us for dead and let everything go: the safe side.
            tracing::error!(%error, "no sign of life can be given");
        }
        self.keep_watchdog();
    }

    async fn on_listing(&mut self, listing: Result<Listing, RuntimeError>) {
        match listing {
            Ok(listing) => {
                self.inventory.update(listing);
                if self.runtime_words.starts_with("not ") {
                    self.introduce().await;
                }
            }
            Err(error) => {
                if !self.runtime_words.starts_with("not answering") {
                    tracing::warn!(%error, "the runtime cannot be asked who runs; going on with those known");
                }
                self.runtime_words = format!("not answering: {error}");
            }
        }
    }

    /// First contact, and each after a break.
    async fn introduce(&mut self) {
        let runtime = self.runtime.clone();
        if let Ok((name, version)) = self.beating(runtime.version()).await {
            self.runtime_words = format!("{name} {version}");
        }
        self.free_orphans().await;
    }

    fn look(&mut self) {
        let now = clock::now();
        self.looked = Instant::now();
        let node = match self.memory_source.read() {
            // What is below the eviction threshold is nobody's: the kubelet evicts before it is taken.
            Ok(memory) => Reading::seen(NodeMemory { capacity: memory.capacity.saturating_sub(self.run.eviction), ..memory }, now),
            Err(error) => {
                tracing::warn!(%error, "the memory of the node cannot be read");
                Reading::Missing
            }
        };
        let mut undecided = self.releasing.clone();
        undecided.extend(self.underway.keys().iter().cloned());
        undecided.extend(self.armed.values().map(|(entry, _)| entry.key()));
        let view = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        let (containers, findings) = self.inventory.look(&self.journal, &undecided, self.underway.holds(), &view, now);
        self.seen = Observation { node, containers, budgets: view.allowances() };
        drop(view);
        self.see_waiting(now);
        self.memory.learn(&self.seen, now);
        for finding in findings {
            match finding {
                Finding::Vanished(id) => {
                    self.refreshed = None;
                    self.gone(&id);
                }
                Finding::LetGoByOthers(entry) => {
                    tracing::info!(container.name = %entry.name, "somebody else let it go");
                    self.releasing.insert(entry.key());
                }
            }
        }
    }

    /// Whether holds may be made now, and else why not.
    fn may_act(&mut self) -> (bool, Option<String>) {
        if self.run.mode != Mode::Apply {
            return (false, None);
        }
        // Before that a leader looks like anybody else.
        if self.say.is_some() && self.cluster.lock().unwrap_or_else(PoisonError::into_inner).version == 0 {
            return (false, Some("the API server has not answered yet: who holds a Lease or has a budget is not known".to_owned()));
        }
        // As patient with the watchdog as it is with us, and a second for its start.
        if self.watchdog.alive(self.run.common.poll * 3 + Duration::from_secs(1)) {
            (true, None)
        } else {
            (false, Some("no dead man's switch is alive: nothing is held without one".to_owned()))
        }
    }

    /// Starts the watchdog, and again if it ended. In a session of its own: what kills our group does not kill it.
    fn keep_watchdog(&mut self) {
        if self.run.external_watchdog || self.run.mode != Mode::Apply {
            return;
        }
        match self.child.as_mut().map(Child::try_wait) {
            Some(Ok(None)) => return,
            Some(Ok(Some(status))) => {
                // "Another one is on duty" is fine as long as its pulse goes.
                if status.success() && self.watchdog.alive(self.run.common.poll * 3) {
                    return;
                }
                tracing::warn!(%status, "the dead man's switch ended; it is started again");
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
                .stdin(Stdio::null())
                .process_group(0)
                .spawn()
        });
        match spawned {
            Ok(child) => self.child = Some(child),
            Err(error) => tracing::error!(%error, "the dead man's switch cannot be started: nothing will be held"),
        }
    }

    fn gone(&mut self, id: &str) {
        self.armed.remove(id);
        let keys: Vec<Key> = self.journal.open_entries().keys().filter(|key| key.0 == id).cloned().collect();
        for key in keys {
            self.finish(&key);
        }
    }
}

/// The result of a task when it is there; waits for ever if there is none.
async fn finished(task: &mut Option<JoinHandle<Result<Listing, RuntimeError>>>) -> Result<Listing, RuntimeError> {
    let result = match task {
        Some(running) => running.await,
        None => std::future::pending().await,
    };
    *task = None;
    result.unwrap_or_else(|error| Err(RuntimeError::Unreachable(error.to_string())))
}
