//! The activator: holds requests of apps that have no pod, or too few for a burst, tells the decider, and lets them go as pods have room.
//!
//! Each app has a port of its own here, so that nothing in a request need say whose it is. All it knows comes from EndpointSlices
//! ([`super::slices`]): it needs no other right, and while the API server is away it goes on with what it knew.

mod app;
pub mod backends;
pub mod catalogue;
pub mod reporter;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use futures::{StreamExt, TryStreamExt, future};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::task::TaskTracker;

use self::app::{Poke, Served};
use self::catalogue::App;
use super::Key;
use super::forward::Forwarder;
use super::push::{Decider, Outage};
use super::serve::{Stage, serve};
use super::slices::PATH;
use super::token::{self, Token};
use crate::patience::Patience;

const SECOND: Duration = Duration::from_secs(1);
/// First requests that wait to be told; what does not fit is told with its second.
const POKES: usize = 1_024;

/// `activator`.
#[derive(clap::Args, Clone, Debug)]
pub struct Config {
    /// Kubeconfig of the cluster; absent: the service account of the pod that this is.
    #[arg(long, env = "ACTIVATOR_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The address by which the agent knows this activator: the pod's.
    #[arg(long, env = "POD_IP", value_name = "IP")]
    pub address: IpAddr,
    /// Its name in what it reports.
    #[arg(long, env = "POD_NAME", default_value = "activator", value_name = "NAME")]
    pub name: String,
    /// Where apps' ports are opened.
    #[arg(long, env = "ACTIVATOR_BIND", default_value = "0.0.0.0", value_name = "IP")]
    pub bind: IpAddr,
    /// Where it says whether it is healthy, and what it holds.
    #[arg(long, env = "ACTIVATOR_ADMIN", default_value = "0.0.0.0:8023", value_name = "ADDRESS")]
    pub admin: SocketAddr,
    /// The agent.
    #[arg(long, env = "ACTIVATOR_DECIDER", default_value = "http://drover-autoscaler.kube-system:9465", value_name = "URL")]
    pub decider: String,
    /// The token that the agent knows it by: a projected one for the audience drover-autoscaler, which the kubelet renews.
    #[arg(long, env = "ACTIVATOR_TOKEN", default_value = token::FILE, value_name = "FILE")]
    pub token: PathBuf,
    /// Seconds that a request is held at most.
    #[arg(long, env = "ACTIVATOR_PATIENCE", default_value_t = 300, value_name = "SECONDS")]
    pub patience: u64,
    /// Leaving ends when nobody came for so many seconds.
    #[arg(long, env = "ACTIVATOR_QUIET", default_value_t = 5.0, value_name = "SECONDS")]
    pub quiet: f64,
    /// Seconds after which leaving ends in any case; less than the pod's terminationGracePeriodSeconds.
    #[arg(long, env = "ACTIVATOR_DRAIN", default_value_t = 300.0, value_name = "SECONDS")]
    pub drain: f64,
}

/// `GET /apps/{namespace}/{policy}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppStatus {
    /// Port that is open for it.
    pub port: u16,
    /// Whether clients are sent here.
    pub in_path: bool,
    /// Requests that wait for a pod.
    pub waiting: usize,
    /// Requests that wait or are being answered.
    pub under_way: f64,
    /// Pods that take requests.
    pub pods: usize,
}

/// An activator.
#[derive(Debug)]
pub struct Activator {
    me: IpAddr,
    bind: IpAddr,
    patience: Duration,
    forwarder: Arc<Forwarder>,
    pokes: mpsc::Sender<Poke>,
    apps: Mutex<BTreeMap<Key, Opened>>,
    connections: TaskTracker,
    /// All slices were seen once.
    synced: AtomicBool,
    leaving: watch::Sender<bool>,
}

#[derive(Debug)]
struct Opened {
    port: u16,
    in_path: bool,
    served: Arc<Served>,
}

/// Runs until it is told to end and all requests are answered.
///
/// # Errors
/// The settings are not usable.
pub async fn run(config: Config) -> Result<()> {
    let client = super::client(config.kubeconfig.as_deref()).await?;
    let decider = Decider::new(&config.decider, config.name.clone(), Token::new(config.token.clone()))?;
    let admin = TcpListener::bind(config.admin).await.with_context(|| format!("cannot listen on {}", config.admin))?;
    let asks = admin.local_addr()?;
    let (activator, pokes) = Activator::new(&config);
    tokio::spawn(axum::serve(admin, activator.clone().questions()).into_future());
    tokio::spawn(activator.clone().follow(client));
    tokio::spawn(activator.clone().tell(decider, pokes));
    tracing::info!(address = %config.address, admin = %asks, "activator");
    super::told_to_end().await?;
    tracing::info!("leaving");
    let limit = Duration::from_secs_f64(config.drain);
    if tokio::time::timeout(limit, activator.drain(Duration::from_secs_f64(config.quiet))).await.is_err() {
        tracing::warn!("requests are left after {limit:?}");
    }
    Ok(())
}

impl Activator {
    /// Makes one that knows no app; what it wants to tell at once comes out of the channel.
    pub fn new(config: &Config) -> (Arc<Self>, mpsc::Receiver<Poke>) {
        let (pokes, told) = mpsc::channel(POKES);
        let activator = Self {
            me: config.address,
            bind: config.bind,
            patience: Duration::from_secs(config.patience),
            forwarder: Arc::default(),
            pokes,
            apps: Mutex::default(),
            connections: TaskTracker::new(),
            synced: AtomicBool::new(false),
            leaving: watch::Sender::default(),
        };
        (Arc::new(activator), told)
    }

    /// What it answers on its other port.
    pub fn questions(self: Arc<Self>) -> Router {
        Router::new().route("/healthz", get(healthz)).route("/apps/{namespace}/{policy}", get(status)).with_state(self)
    }

    /// Follows the slices of the cluster, for ever.
    async fn follow(self: Arc<Self>, client: Client) {
        let config = watcher::Config::default().labels(PATH);
        let mut events = watcher(Api::<EndpointSlice>::all(client), config).backoff(Patience::default()).boxed();
        let mut known: BTreeMap<(String, String), EndpointSlice> = BTreeMap::new();
        let mut listed = BTreeMap::new();
        let mut failing = false;
        let name = |slice: &EndpointSlice| {
            let meta = &slice.metadata;
            (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
        };
        loop {
            match events.try_next().await {
                Ok(Some(Event::Init)) => listed.clear(),
                Ok(Some(Event::InitApply(slice))) => {
                    listed.insert(name(&slice), slice);
                    continue;
                }
                Ok(Some(Event::InitDone)) => {
                    known = std::mem::take(&mut listed);
                    self.synced.store(true, Ordering::Relaxed);
                }
                Ok(Some(Event::Apply(slice))) => {
                    known.insert(name(&slice), slice);
                }
                Ok(Some(Event::Delete(slice))) => {
                    known.remove(&name(&slice));
                }
                Ok(None) => return,
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(%error, "EndpointSlices cannot be watched; going on with what is known");
                    }
                    continue;
                }
            }
            failing = false;
            self.set(catalogue::apps(known.values())).await;
        }
    }

    /// Opens, changes and closes apps so that they are these.
    pub async fn set(self: &Arc<Self>, wanted: BTreeMap<Key, App>) {
        self.apps().retain(|key, opened| {
            let stays = wanted.get(key).is_some_and(|app| app.port == opened.port);
            if !stays {
                opened.served.stage.send_replace(Stage::Closing);
            }
            stays
        });
        for (key, app) in wanted {
            let (port, in_path) = (app.port, app.in_path);
            let there = self.apps().get_mut(&key).map(|opened| {
                opened.in_path = in_path;
                opened.served.clone()
            });
            let served = match there {
                Some(served) => served,
                None => match self.open(&key, port).await {
                    Ok(served) => {
                        self.apps().insert(key.clone(), Opened { port, in_path, served: served.clone() });
                        served
                    }
                    // The agent asks whether it is open before it sends clients here: they stay with the pods.
                    Err(error) => {
                        tracing::error!(app = %key, "{error:#}");
                        continue;
                    }
                },
            };
            served.set(app);
        }
    }

    async fn open(&self, key: &Key, port: u16) -> Result<Arc<Served>> {
        let address = SocketAddr::new(self.bind, port);
        let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
        let served = Served::new(key.clone(), self.me, self.forwarder.clone(), self.pokes.clone(), self.patience);
        self.connections.spawn(serve(listener, served.clone(), served.stage.subscribe()));
        Ok(served)
    }

    /// Tells the decider, for ever.
    pub async fn tell(self: Arc<Self>, decider: Decider, mut pokes: mpsc::Receiver<Poke>) {
        let mut every = tokio::time::interval(SECOND);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut outage = Outage::default();
        loop {
            tokio::select! {
                biased;
                Some((key, report)) = pokes.recv() => {
                    let result = decider.push(&key, report).await;
                    outage.note(&result);
                    if result.is_err() && let Some(opened) = self.apps().get(&key) {
                        opened.served.reporter.not_told();
                    }
                }
                _ = every.tick() => {
                    let reports: Vec<_> = self.apps().iter().filter_map(|(key, opened)| Some((key.clone(), opened.served.reporter.report()?))).collect();
                    let pushes = reports.iter().map(|(key, report)| decider.push(key, *report));
                    future::join_all(pushes).await.iter().for_each(|result| outage.note(result));
                }
            }
        }
    }

    /// Asks clients to go, serves whoever still comes until nobody does, and lets the last requests end.
    pub async fn drain(&self, quiet: Duration) {
        self.leaving.send_replace(true);
        let stages = |to: Stage| {
            for opened in self.apps().values() {
                opened.served.stage.send_replace(to);
            }
        };
        stages(Stage::Leaving);
        let under_way = || self.apps().values().map(|opened| opened.served.reporter.under_way()).sum::<f64>();
        loop {
            tokio::time::sleep(quiet).await;
            if under_way() == 0.0 {
                break;
            }
        }
        stages(Stage::Closing);
        self.connections.close();
        self.connections.wait().await;
    }

    /// How it serves an app.
    pub fn status(&self, key: &Key) -> Option<AppStatus> {
        let apps = self.apps();
        let Opened { port, in_path, served } = apps.get(key)?;
        let (waiting, under_way, pods) = (served.room.waiting(), served.reporter.under_way(), served.room.places());
        Some(AppStatus { port: *port, in_path: *in_path, waiting, under_way, pods })
    }

    fn apps(&self) -> MutexGuard<'_, BTreeMap<Key, Opened>> {
        self.apps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn healthz(State(activator): State<Arc<Activator>>) -> (StatusCode, &'static str) {
    if *activator.leaving.borrow() {
        (StatusCode::SERVICE_UNAVAILABLE, "leaving\n")
    } else if activator.synced.load(Ordering::Relaxed) {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the cluster's EndpointSlices were not read yet\n")
    }
}

async fn status(
    State(activator): State<Arc<Activator>>,
    Path((namespace, policy)): Path<(String, String)>,
) -> Result<Json<AppStatus>, StatusCode> {
    activator.status(&Key { namespace, policy }).map(Json).ok_or(StatusCode::NOT_FOUND)
}
