//! The agent: watches policies, observes workloads, lets libs/autoscaling decide, scales, and reports why.
//!
//! Invariants: only the holder of the Lease writes ([`lease`]); nothing is written over a change that somebody else made since it was read
//! ([`target`]); a value that could not be read or is too old never becomes a number ([`observe`]); an agent that begins to act scales
//! nothing down for one stabilisation window ([`worker`]).

pub mod callers;
pub mod clock;
pub mod failpoint;
pub mod http;
pub mod inbox;
pub mod learner;
pub mod lease;
pub mod metrics;
pub mod observe;
pub mod pods;
pub mod prometheus;
pub mod report;
pub mod selector;
pub mod tables;
pub mod target;
pub mod tend;
pub mod up;
pub mod usage;
pub mod worker;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::http::HeaderValue;
use drover_autoscaling::DecisionRecord;
use drover_tasks::{OnFailure, Tasks};
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::events::Recorder;
use kube::{Api, Client};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::limit::ConcurrencyLimitLayer;
use uuid::Uuid;

use crate::config::Agent;
use crate::path;
use crate::path::keeper::Keeper;
use crate::path::push::{PushAnswer, PushClient};
use crate::status::Change;
use crate::webhook::{self, Namespaces};
use crate::wire::{Push, Standing};
use callers::Callers;
use clock::Clock;
use inbox::{Inbox, Key};
use lease::{Election, Leadership};
use metrics::Metrics;
use pods::Pods;
use prometheus::PrometheusClient;
use target::ScalableKinds;
use usage::UsageReader;

/// Maximum concurrent requests to the API server. Each takes a connection, and with slow answers all policies would send theirs at the same
/// time. A watch counts until it begins.
const AT_ONCE: usize = 16;
/// Time for the workers to save what they learned when the agent is told to end.
const SAVED_WITHIN: Duration = Duration::from_secs(12);
/// In the Lease, separates the identity of a process from the address at which other agents reach it.
const AT: char = '@';

/// Everything that the policies' workers share.
pub struct Context {
    client: Client,
    clock: Clock,
    pods: Pods,
    usages: UsageReader,
    kinds: ScalableKinds,
    inbox: Inbox,
    prometheus: PrometheusClient,
    callers: Callers,
    post: PushClient,
    leadership: Leadership,
    acting: watch::Receiver<Option<String>>,
    recorder: Recorder,
    metrics: Metrics,
    keeper: Arc<Keeper>,
    tasks: Tasks,
    latest: Latest,
    unwritten: Unwritten,
}

/// The last decision about a policy.
pub(crate) struct Decided {
    standing: Standing,
    record: Arc<DecisionRecord>,
    /// The copy of an app that the policy belongs to, if Drover applied it.
    binding: Option<Uuid>,
}

/// The last decision about each policy.
pub(crate) type Latest = Arc<Mutex<HashMap<Key, Decided>>>;

/// By policy (uid), the whole history since a change that no written status has yet. Should the worker end before it writes the status, the
/// next one adds it.
type Unwritten = Mutex<HashMap<String, Vec<Change>>>;

impl Context {
    fn publish_decision(&self, key: &Key, decided: Decided) {
        self.latest().insert(key.clone(), decided);
    }
    fn standing(&self, key: &Key) -> Option<Standing> {
        self.latest().get(key).map(|decided| decided.standing.clone())
    }
    fn decision(&self, key: &Key) -> Option<Arc<DecisionRecord>> {
        self.latest().get(key).map(|decided| decided.record.clone())
    }
    fn forget(&self, key: &Key) {
        let mut latest = self.latest();
        latest.remove(key);
        if !latest.keys().any(|other| other.0 == key.0) {
            self.usages.forget(&key.0);
        }
        drop(latest);
        self.metrics.forget(key);
    }
    fn latest(&self) -> MutexGuard<'_, HashMap<Key, Decided>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unwritten(&self) -> MutexGuard<'_, HashMap<String, Vec<Change>>> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a push on to the agent that acts.
    async fn pass_on(&self, authorization: Option<HeaderValue>, push: &Push) -> Result<PushAnswer> {
        let acting = self.acting.borrow().clone().unwrap_or_default();
        let (_, address) =
            acting.split_once(AT).filter(|(_, address)| !address.is_empty()).context("the acting agent advertises no address")?;
        self.post.send(format!("http://{address}/v1/statistics").try_into()?, authorization, push).await
    }
}

/// Runs until the process is told to end.
///
/// # Errors
/// If the settings cannot be used, or a task failed that cannot be restarted.
pub async fn run(settings: Agent) -> Result<()> {
    let AgentClients { policies: client, election } = AgentClients::new(&config(&settings).await?)?;
    let (stop, release, failed) = (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
    let tasks = Tasks::new(failed.clone());
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;

    let advertise = settings.advertise.map(|address| address.to_string()).unwrap_or_default();
    let identity = format!("{}_{}{AT}{advertise}", hostname(), uuid::Uuid::new_v4());
    let leases = Api::namespaced(election, &settings.lease_namespace);
    let duration = Duration::from_secs(u64::from(settings.lease_seconds));
    let latest = Latest::default();
    let (election, leadership, acting) = Election::new(leases, settings.lease.clone(), identity, duration);
    let election = election.reporting(up::source(latest.clone()));
    let context = Arc::new(Context {
        recorder: Recorder::new(client.clone(), "drover-autoscaler".into()),
        client: client.clone(),
        clock: Clock::default(),
        pods: Pods::default(),
        usages: UsageReader::default(),
        kinds: ScalableKinds::default(),
        inbox: Inbox::default(),
        prometheus: PrometheusClient::default(),
        callers: Callers::new(client.clone(), settings.trust.clone()),
        post: PushClient::default(),
        leadership: leadership.clone(),
        acting,
        metrics: Metrics::new(&tasks),
        keeper: Keeper::new(client.clone(), settings.watch_namespace.clone(), tasks.clone()),
        tasks: tasks.clone(),
        latest,
        unwritten: Unwritten::default(),
    });
    let listener = TcpListener::bind(settings.listen).await.with_context(|| format!("cannot listen on {}", settings.listen))?;
    tracing::info!(address = %listener.local_addr()?, "listening");

    // The first two end by themselves: what was learned is saved, then the Lease is released.
    let (never, scaling, rest) = (CancellationToken::new(), TaskTracker::new(), TaskTracker::new());
    tasks.spawn(&rest, never.clone(), "election", OnFailure::Restart, {
        let release = release.clone();
        move |_| election.clone().run(release.clone())
    });
    tasks.spawn(&scaling, never, "scaling", OnFailure::Restart, {
        let (context, stop, namespace) = (context.clone(), stop.clone(), settings.watch_namespace.clone());
        move |_| tend::act(context.clone(), namespace.clone(), leadership.clone(), stop.clone())
    });
    let namespaces = Namespaces { own: settings.lease_namespace.clone(), watched: settings.watch_namespace.clone() };
    let acts: webhook::Acts = Arc::new({
        let leadership = context.leadership.clone();
        move || leadership.remaining().is_some()
    });
    webhook::start(settings.webhook, namespaces, context.client.clone(), acts, &tasks, &rest, &stop).await?;
    tasks.spawn_once(&rest, stop.clone(), "http-server", |_| http::serve(listener, context));
    tokio::select! {
        () = failed.cancelled() => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    stop.cancel();
    scaling.close();
    let _ = tokio::time::timeout(SAVED_WITHIN, scaling.wait()).await;
    release.cancel();
    rest.close();
    let _ = tokio::time::timeout(duration, rest.wait()).await;
    path::ended(&tasks)
}

async fn config(settings: &Agent) -> Result<kube::Config> {
    match &settings.kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))?;
            Ok(kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)
        }
        None => kube::Config::incluster().context("this process has no service account of a pod; use --kubeconfig"),
    }
}

/// The clients of an agent.
pub struct AgentClients {
    /// Shared by all policies; sends at most [`AT_ONCE`] requests at the same time.
    pub policies: Client,
    /// For the Lease only: with a slow API server its renewals would queue behind the requests of all policies, and the agent would stop
    /// acting.
    pub election: Client,
}

impl AgentClients {
    /// # Errors
    /// If the settings cannot be used.
    pub fn new(config: &kube::Config) -> Result<Self> {
        Ok(Self {
            policies: ClientBuilder::try_from(config.clone())?.with_layer(&ConcurrencyLimitLayer::new(AT_ONCE)).build(),
            election: ClientBuilder::try_from(config.clone())?.build(),
        })
    }
}

fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "agent".to_owned(), |name| name.trim().to_owned())
}
