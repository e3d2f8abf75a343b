//! The activator: holds requests of apps that have no pod or too few for a burst, reports them to the decider, and sends them on when pods have
//! free slots.
//!
//! Each app has a port of its own, so that nothing in a request needs to identify the app. The activator's only source are EndpointSlices
//! ([`super::slices`]): it needs no other right, and while the API server is unavailable it continues with what it knows.

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
use drover_proxy::forward::Forwarder;
use drover_proxy::serve::{ListenerStage, serve};
use drover_tasks::{OnFailure, Tasks};
use futures::{StreamExt, TryStreamExt, future};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::app::{Poke, ServedApp};
use self::backends::Backends;
use self::catalogue::App;
use super::push::{DeciderClient, OutageLog};
use super::slices::PATH;
use super::token::{self, Token};
use super::{Key, serve_admin};
use crate::watch_backoff::WatchBackoff;

const SECOND: Duration = Duration::from_secs(1);
/// Maximum number of first requests that wait to be reported; others are reported with their second.
const POKES: usize = 1_024;

/// Settings of `activator`.
#[derive(clap::Args, Clone, Debug)]
pub struct Config {
    /// Kubeconfig of the cluster; absent: the service account of the activator's own pod.
    #[arg(long, env = "ACTIVATOR_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Address of this activator's pod, by which the agent knows it.
    #[arg(long, env = "POD_IP", value_name = "IP")]
    pub address: IpAddr,
    /// Name of this activator in its reports.
    #[arg(long, env = "POD_NAME", default_value = "activator", value_name = "NAME")]
    pub name: String,
    /// Address at which the ports of apps are opened.
    #[arg(long, env = "ACTIVATOR_BIND", default_value = "0.0.0.0", value_name = "IP")]
    pub bind: IpAddr,
    /// Address for the health check and the state of apps.
    #[arg(long, env = "ACTIVATOR_ADMIN", default_value = "0.0.0.0:8023", value_name = "ADDRESS")]
    pub admin: SocketAddr,
    /// URL of the agent.
    #[arg(long, env = "ACTIVATOR_DECIDER", default_value = "http://drover-autoscaler.kube-system:9465", value_name = "URL")]
    pub decider: String,
    /// File with the token that identifies this pod to the agent: a projected token for the audience drover-autoscaler, renewed by the kubelet.
    #[arg(long, env = "ACTIVATOR_TOKEN", default_value = token::FILE, value_name = "FILE")]
    pub token: PathBuf,
    /// Maximum seconds that a request is held.
    #[arg(long, env = "ACTIVATOR_PATIENCE", default_value_t = 300, value_name = "SECONDS")]
    pub patience: u64,
    /// Draining ends when no request came for this many seconds.
    #[arg(long, env = "ACTIVATOR_QUIET", default_value_t = 5.0, value_name = "SECONDS")]
    pub quiet: f64,
    /// Seconds after which draining ends in any case; must be less than the pod's terminationGracePeriodSeconds.
    #[arg(long, env = "ACTIVATOR_DRAIN", default_value_t = 300.0, value_name = "SECONDS")]
    pub drain: f64,
}

/// The answer of `GET /apps/{namespace}/{policy}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppStatus {
    /// Port at which the app is served.
    pub port: u16,
    /// Whether clients are sent to activators.
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
    poked: tokio::sync::Mutex<mpsc::Receiver<Poke>>,
    tasks: Tasks,
    apps: Mutex<BTreeMap<Key, OpenApp>>,
    connections: TaskTracker,
    /// Whether all slices have been read once.
    synced: AtomicBool,
    leaving: watch::Sender<bool>,
}

#[derive(Debug)]
struct OpenApp {
    port: u16,
    in_path: bool,
    served: Arc<ServedApp>,
}

/// Runs until the process is told to end and all requests are answered.
///
/// # Errors
/// If the settings cannot be used, or a task failed that cannot be restarted.
pub async fn run(config: Config) -> Result<()> {
    let client = super::client(config.kubeconfig.as_deref()).await?;
    let decider = DeciderClient::new(&config.decider, config.name.clone(), Token::new(config.token.clone()))?;
    let admin = TcpListener::bind(config.admin).await.with_context(|| format!("cannot listen on {}", config.admin))?;
    let asks = admin.local_addr()?;
    let failed = CancellationToken::new();
    let tasks = Tasks::new(failed.clone());
    let activator = Activator::new(&config, tasks.clone());
    let (tracker, never) = (TaskTracker::new(), CancellationToken::new());
    let routes = activator.clone().admin_routes();
    tasks.spawn_once(&tracker, never.clone(), "admin-server", |_| serve_admin(admin, routes));
    tasks.spawn(&tracker, never.clone(), "follow", OnFailure::Restart, {
        let activator = activator.clone();
        move |_| activator.clone().follow(client.clone())
    });
    tasks.spawn(&tracker, never, "report", OnFailure::Restart, {
        let activator = activator.clone();
        move |_| activator.clone().tell(decider.clone())
    });
    tracing::info!(address = %config.address, admin = %asks, "activator");
    tokio::select! {
        ended = super::termination() => ended?,
        () = failed.cancelled() => {}
    }
    tracing::info!("leaving");
    let limit = Duration::from_secs_f64(config.drain);
    if tokio::time::timeout(limit, activator.drain(Duration::from_secs_f64(config.quiet))).await.is_err() {
        tracing::warn!("requests are still in progress after {limit:?}");
    }
    super::ended(&tasks)
}

impl Activator {
    /// Creates an activator without apps. Its apps are served by supervised tasks.
    pub fn new(config: &Config, tasks: Tasks) -> Arc<Self> {
        let (pokes, poked) = mpsc::channel(POKES);
        let activator = Self {
            me: config.address,
            bind: config.bind,
            patience: Duration::from_secs(config.patience),
            forwarder: Arc::default(),
            pokes,
            poked: tokio::sync::Mutex::new(poked),
            tasks,
            apps: Mutex::default(),
            connections: TaskTracker::new(),
            synced: AtomicBool::new(false),
            leaving: watch::Sender::default(),
        };
        Arc::new(activator)
    }

    /// The routes of the admin port.
    pub fn admin_routes(self: Arc<Self>) -> Router {
        Router::new().route("/healthz", get(healthz)).route("/apps/{namespace}/{policy}", get(status)).with_state(self)
    }

    /// Follows the cluster's slices, for ever.
    async fn follow(self: Arc<Self>, client: Client) {
        let config = watcher::Config::default().labels(PATH);
        let mut events = watcher(Api::<EndpointSlice>::all(client), config).backoff(WatchBackoff::default()).boxed();
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
                        tracing::warn!(%error, "EndpointSlices cannot be watched; continuing with what is known");
                    }
                    continue;
                }
            }
            failing = false;
            self.set(catalogue::apps(known.values())).await;
        }
    }

    /// Opens, changes and closes apps so that they are `wanted`.
    pub async fn set(self: &Arc<Self>, wanted: BTreeMap<Key, App>) {
        self.apps().retain(|key, opened| {
            let stays = wanted.get(key).is_some_and(|app| app.port == opened.port);
            if !stays {
                opened.served.stage.send_replace(ListenerStage::Closing);
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
                        self.apps().insert(key.clone(), OpenApp { port, in_path, served: served.clone() });
                        served
                    }
                    // The agent checks that the port is open before it sends clients here, so they stay with the pods.
                    Err(error) => {
                        tracing::error!(app = %key, "{error:#}");
                        continue;
                    }
                },
            };
            served.set(app);
        }
    }

    async fn open(&self, key: &Key, port: u16) -> Result<Arc<ServedApp>> {
        let address = SocketAddr::new(self.bind, port);
        let bind = move || async move { TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}")) };
        let mut listener = Some(bind().await?);
        let backends = Backends::new(self.me, self.tasks.clone());
        let served = ServedApp::new(key.clone(), backends, self.forwarder.clone(), self.pokes.clone(), self.patience);
        let (app, never) = (served.clone(), CancellationToken::new());
        self.tasks.spawn(&self.connections, never, format!("app/{key}"), OnFailure::RestartOneOfMany, move |_| {
            let (app, listener) = (app.clone(), listener.take());
            async move {
                let listener = match listener {
                    Some(listener) => listener,
                    None => bind().await?,
                };
                serve(listener, app.clone(), app.stage.subscribe()).await;
                Ok::<_, anyhow::Error>(())
            }
        });
        Ok(served)
    }

    /// Reports to the decider, for ever.
    pub async fn tell(self: Arc<Self>, decider: DeciderClient) {
        let mut pokes = self.poked.lock().await;
        let mut every = tokio::time::interval(SECOND);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut outage = OutageLog::default();
        loop {
            tokio::select! {
                biased;
                Some((key, report)) = pokes.recv() => {
                    let result = decider.push(&key, report).await;
                    outage.note(&result);
                    if result.is_err() && let Some(opened) = self.apps().get(&key) {
                        opened.served.reporter.report_rejected();
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

    /// Asks clients to go elsewhere, serves requests until no more come, and waits for the last ones to end.
    pub async fn drain(&self, quiet: Duration) {
        self.leaving.send_replace(true);
        let stages = |to: ListenerStage| {
            for opened in self.apps().values() {
                opened.served.stage.send_replace(to);
            }
        };
        stages(ListenerStage::Leaving);
        let under_way = || self.apps().values().map(|opened| opened.served.reporter.under_way()).sum::<f64>();
        loop {
            tokio::time::sleep(quiet).await;
            if under_way() == 0.0 {
                break;
            }
        }
        stages(ListenerStage::Closing);
        self.connections.close();
        self.connections.wait().await;
    }

    /// The state of an app.
    pub fn status(&self, key: &Key) -> Option<AppStatus> {
        let apps = self.apps();
        let OpenApp { port, in_path, served } = apps.get(key)?;
        let (waiting, under_way, pods) = (served.throttler.waiting(), served.reporter.under_way(), served.throttler.destinations());
        Some(AppStatus { port: *port, in_path: *in_path, waiting, under_way, pods })
    }

    fn apps(&self) -> MutexGuard<'_, BTreeMap<Key, OpenApp>> {
        self.apps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn healthz(State(activator): State<Arc<Activator>>) -> (StatusCode, &'static str) {
    if *activator.leaving.borrow() {
        (StatusCode::SERVICE_UNAVAILABLE, "leaving\n")
    } else if activator.synced.load(Ordering::Relaxed) {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the cluster's EndpointSlices have not been read yet\n")
    }
}

async fn status(
    State(activator): State<Arc<Activator>>,
    Path((namespace, policy)): Path<(String, String)>,
) -> Result<Json<AppStatus>, StatusCode> {
    activator.status(&Key { namespace, policy }).map(Json).ok_or(StatusCode::NOT_FOUND)
}
