//! The agent: watches policies, looks at workloads, lets libs/autoscaling decide, scales, and says why.
//!
//! Invariants: only the holder of the Lease writes ([`lease`]); nothing is written that somebody else has changed since it was read
//! ([`target`]); what could not be read, or is too old, never becomes a number ([`observe`]); whoever begins to act scales nothing
//! down for one stabilisation window ([`worker`]).

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
pub mod usage;
pub mod worker;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::http::HeaderValue;
use drover_autoscaling::DecisionRecord;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::events::Recorder;
use kube::{Api, Client};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower::limit::ConcurrencyLimitLayer;

use crate::config::Agent;
use crate::path::keeper::Keeper;
use crate::path::push::{Answered, Post};
use crate::wire::{Push, Standing};
use callers::Callers;
use clock::Clock;
use inbox::{Inbox, Key};
use lease::{Election, Leadership};
use metrics::Metrics;
use pods::Pods;
use prometheus::Asker;
use target::Kinds;
use usage::Usages;

/// Questions that the API server is asked at once: each takes a connection of its own, and when answers are slow all policies would ask
/// together. A watch counts until it begins.
const AT_ONCE: usize = 16;
/// Between this process's name and the address where other agents reach it, in the Lease.
const AT: char = '@';

/// What all policies share.
pub struct Context {
    client: Client,
    clock: Clock,
    pods: Pods,
    usages: Usages,
    kinds: Kinds,
    inbox: Inbox,
    prometheus: Asker,
    callers: Callers,
    post: Post,
    leadership: Leadership,
    acting: watch::Receiver<Option<String>>,
    recorder: Recorder,
    metrics: Metrics,
    keeper: Arc<Keeper>,
    board: Mutex<HashMap<Key, (Standing, Arc<DecisionRecord>)>>,
}

impl Context {
    fn show(&self, key: &Key, standing: Standing, record: Arc<DecisionRecord>) {
        self.board().insert(key.clone(), (standing, record));
    }
    fn standing(&self, key: &Key) -> Option<Standing> {
        self.board().get(key).map(|(standing, _)| standing.clone())
    }
    fn decision(&self, key: &Key) -> Option<Arc<DecisionRecord>> {
        self.board().get(key).map(|(_, record)| record.clone())
    }
    fn forget(&self, key: &Key) {
        let mut board = self.board();
        board.remove(key);
        if !board.keys().any(|other| other.0 == key.0) {
            self.usages.forget(&key.0);
        }
        drop(board);
        self.metrics.forget(key);
    }
    fn board(&self) -> MutexGuard<'_, HashMap<Key, (Standing, Arc<DecisionRecord>)>> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a push on to the agent that acts.
    async fn pass_on(&self, authorization: Option<HeaderValue>, push: &Push) -> Result<Answered> {
        let acting = self.acting.borrow().clone().unwrap_or_default();
        let (_, address) = acting.split_once(AT).filter(|(_, address)| !address.is_empty()).context("whoever acts says no address")?;
        self.post.send(format!("http://{address}/v1/statistics").try_into()?, authorization, push).await
    }
}

/// Runs until it is told to stop.
///
/// # Errors
/// The settings are not usable.
pub async fn run(settings: Agent) -> Result<()> {
    let client = client(&settings).await?;
    let (stop, release) = (CancellationToken::new(), CancellationToken::new());
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;

    let advertise = settings.advertise.map(|address| address.to_string()).unwrap_or_default();
    let identity = format!("{}_{}{AT}{advertise}", hostname(), uuid::Uuid::new_v4());
    let leases = Api::namespaced(client.clone(), &settings.lease_namespace);
    let duration = Duration::from_secs(u64::from(settings.lease_seconds));
    let (election, leadership, acting) = Election::new(leases, settings.lease.clone(), identity, duration);
    let context = Arc::new(Context {
        recorder: Recorder::new(client.clone(), "drover-autoscaler".into()),
        client: client.clone(),
        clock: Clock::default(),
        pods: Pods::default(),
        usages: Usages::default(),
        kinds: Kinds::default(),
        inbox: Inbox::default(),
        prometheus: Asker::default(),
        callers: Callers::new(client.clone(), settings.trust.clone()),
        post: Post::default(),
        leadership: leadership.clone(),
        acting,
        metrics: Metrics::default(),
        keeper: Keeper::new(client.clone()),
        board: Mutex::default(),
    });
    let listener = TcpListener::bind(settings.listen).await.with_context(|| format!("cannot listen on {}", settings.listen))?;
    tracing::info!(address = %listener.local_addr()?, "listening");

    let election = tokio::spawn(election.run(release.clone()));
    let namespace = settings.watch_namespace.as_deref();
    let acting = tend::act(context.clone(), namespace, leadership, stop.clone());
    tokio::pin!(acting);
    tokio::select! {
        () = &mut acting => {}
        served = http::serve(listener, context.clone()) => served?,
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    // First what was learned is kept, then the Lease is given back.
    stop.cancel();
    let _ = tokio::time::timeout(Duration::from_secs(5), acting).await;
    release.cancel();
    election.await.context("the election failed")
}

async fn client(settings: &Agent) -> Result<Client> {
    let config = match &settings.kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
        }
        None => kube::Config::incluster().context("this is no pod with a service account; give --kubeconfig")?,
    };
    Ok(ClientBuilder::try_from(config)?.with_layer(&ConcurrencyLimitLayer::new(AT_ONCE)).build())
}

fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "agent".to_owned(), |name| name.trim().to_owned())
}
