//! The sidecar of a pod (Knative's queue-proxy): counts requests, lets as many at once into the app as it takes, and drains.
//!
//! Two ports. On one it is the app; on the other it says whether the app is ready (`/ready`, for the kubelet and the activator), what it
//! measured (`/stats`, for the decider), and waits for the last request (`/wait-for-drain`, for the app's preStop hook).
//! Not here: any decision how many pods there are. Invariant: a request that was let in is answered, whenever the pod is told to go.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use drover_autoscaling::kpa::RequestReport;
use http::{Request, Response, header};
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::Key;
use super::admit::admit;
use super::body::{AnswerBody, Held};
use super::forward::{Forwarder, Onward, PROXIED, answer};
use super::meter::Meter;
use super::probe::Probe;
use super::push::{Decider, Outage};
use super::refusal::Refusal;
use super::room::Room;
use super::serve::{Handler, Stage, serve};
use super::token::{self, Token};

/// Seconds between two reports.
const REPORT: Duration = Duration::from_secs(1);
/// Requests that wait per request that the app takes at once.
const LINE_PER_PLACE: usize = 10;

/// `queue-proxy`.
#[derive(clap::Args, Clone, Debug)]
pub struct Config {
    /// Where requests come in.
    #[arg(long, env = "QUEUE_PROXY_LISTEN", default_value = "0.0.0.0:8012", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Where the kubelet, the activator and the decider ask.
    #[arg(long, env = "QUEUE_PROXY_ADMIN", default_value = "0.0.0.0:8022", value_name = "ADDRESS")]
    pub admin: SocketAddr,
    /// The app's port in this pod.
    #[arg(long, env = "QUEUE_PROXY_APP_PORT", default_value_t = 8080, value_name = "PORT")]
    pub app_port: u16,
    /// Requests at once that the app is given; ten times as many wait, more are refused. 0: any number.
    #[arg(long, env = "QUEUE_PROXY_CONTAINER_CONCURRENCY", default_value_t = 0, value_name = "N")]
    pub container_concurrency: usize,
    /// Path that the app answers with 2xx or 3xx when it is ready; without, it is ready when it accepts connections.
    #[arg(long, env = "QUEUE_PROXY_READY_PATH", value_name = "PATH")]
    pub ready_path: Option<String>,
    /// The agent; absent: what is measured is only shown (`/stats`).
    #[arg(long, env = "QUEUE_PROXY_DECIDER", value_name = "URL", requires = "policy", requires = "namespace")]
    pub decider: Option<String>,
    /// The token that the agent knows it by: a projected one for the audience drover-autoscaler, which the kubelet renews.
    #[arg(long, env = "QUEUE_PROXY_TOKEN", default_value = token::FILE, value_name = "FILE")]
    pub token: PathBuf,
    /// The ScalingPolicy of this pod's app.
    #[arg(long, env = "QUEUE_PROXY_POLICY", value_name = "NAME")]
    pub policy: Option<String>,
    /// Its namespace.
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// This pod's name in what it reports.
    #[arg(long, env = "POD_NAME", default_value = "queue-proxy", value_name = "NAME")]
    pub name: String,
    /// Seconds that a request may wait for its turn.
    #[arg(long, env = "QUEUE_PROXY_PATIENCE", default_value_t = 300, value_name = "SECONDS")]
    pub patience: u64,
    /// Draining ends when nobody came for so many seconds: endpoints take that long to forget a pod.
    #[arg(long, env = "QUEUE_PROXY_QUIET", default_value_t = 5.0, value_name = "SECONDS")]
    pub quiet: f64,
    /// Seconds after which draining ends in any case; less than the pod's terminationGracePeriodSeconds.
    #[arg(long, env = "QUEUE_PROXY_DRAIN", default_value_t = 25.0, value_name = "SECONDS")]
    pub drain: f64,
}

/// `GET /stats`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStats {
    /// The last whole second.
    #[serde(flatten)]
    pub report: RequestReport,
    /// Requests under way now.
    pub under_way: f64,
    /// Seconds since it started.
    pub uptime_seconds: f64,
}

/// A running sidecar.
#[derive(Debug)]
pub struct QueueProxy {
    app: SocketAddr,
    probe: Probe,
    patience: Duration,
    quiet: Duration,
    meter: Arc<Meter>,
    /// None: the app takes any number.
    room: Option<Arc<Room>>,
    forwarder: Forwarder,
    came: AtomicU64,
    latest: Mutex<RequestReport>,
    stage: watch::Sender<Stage>,
}

/// Runs until it is told to end and all requests are answered.
///
/// # Errors
/// An address is taken.
pub async fn run(config: Config) -> Result<()> {
    let bind = async |address: SocketAddr| TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"));
    let (listener, admin) = (bind(config.listen).await?, bind(config.admin).await?);
    let (listens, asks) = (listener.local_addr()?, admin.local_addr()?);
    let limit = Duration::from_secs_f64(config.drain);
    let proxy = QueueProxy::new(&config);
    tracing::info!(listen = %listens, admin = %asks, app = %proxy.app, "queue-proxy");
    let to = match (&config.decider, config.namespace, config.policy) {
        (Some(base), Some(namespace), Some(policy)) => {
            Some((Decider::new(base, config.name, Token::new(config.token))?, Key { namespace, policy }))
        }
        _ => None,
    };
    tokio::spawn(proxy.clone().report(to));
    tokio::spawn(axum::serve(admin, proxy.clone().questions()).into_future());
    let serving = tokio::spawn(proxy.clone().serve(listener));
    super::told_to_end().await?;
    tracing::info!("draining");
    let drained = async {
        proxy.drain().await;
        serving.await
    };
    if tokio::time::timeout(limit, drained).await.is_err() {
        tracing::warn!(left = proxy.meter.under_way(), "requests are left after {limit:?}");
    }
    Ok(())
}

impl QueueProxy {
    /// Makes one; [`Self::serve`] and [`Self::questions`] let it work.
    pub fn new(config: &Config) -> Arc<Self> {
        let app = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), config.app_port);
        let room = (config.container_concurrency > 0).then(|| {
            let room = Room::new(config.container_concurrency.saturating_mul(LINE_PER_PLACE));
            room.furnish([(app, config.container_concurrency)]);
            room
        });
        Arc::new(Self {
            app,
            probe: Probe::new(config.ready_path.clone()),
            patience: Duration::from_secs(config.patience),
            quiet: Duration::from_secs_f64(config.quiet),
            meter: Meter::new(),
            room,
            forwarder: Forwarder::default(),
            came: AtomicU64::new(0),
            latest: Mutex::default(),
            stage: watch::Sender::default(),
        })
    }

    /// Serves requests until it is drained.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) {
        let stage = self.stage.subscribe();
        serve(listener, self, stage).await;
    }

    /// What it answers on its other port.
    pub fn questions(self: Arc<Self>) -> Router {
        Router::new().route("/ready", get(ready)).route("/stats", get(stats)).route("/wait-for-drain", get(wait_for_drain)).with_state(self)
    }

    /// Reports once a second, for ever.
    pub async fn report(self: Arc<Self>, to: Option<(Decider, Key)>) {
        let mut every = tokio::time::interval(REPORT);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut outage = Outage::default();
        loop {
            every.tick().await;
            let report = self.meter.report();
            *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = report;
            if let Some((decider, key)) = &to {
                outage.note(&decider.push(key, report).await);
            }
        }
    }

    /// Stops being ready, serves whoever still comes until nobody does, lets the listener go. May be called again and beside itself.
    pub async fn drain(&self) {
        let forward = |to: Stage| {
            move |stage: &mut Stage| {
                *stage < to && {
                    *stage = to;
                    true
                }
            }
        };
        self.stage.send_if_modified(forward(Stage::Leaving));
        loop {
            let before = self.came.load(Ordering::Relaxed);
            tokio::time::sleep(self.quiet).await;
            if self.came.load(Ordering::Relaxed) == before {
                break;
            }
        }
        self.stage.send_if_modified(forward(Stage::Closing));
    }

    async fn counted(&self, mut onward: Onward) -> Response<AnswerBody> {
        self.came.fetch_add(1, Ordering::Relaxed);
        let proxied = onward.take(&PROXIED).is_some();
        let mut held = Held { under_way: Some(self.meter.enter(proxied)), lease: None };
        if let Some(room) = &self.room {
            match admit(room, onward.body(), self.patience).await {
                Ok(lease) => held.lease = Some(lease),
                Err(refusal) => return refusal.response(),
            }
        }
        self.forward(onward, held).await
    }

    async fn forward(&self, onward: Onward, held: Held) -> Response<AnswerBody> {
        match self.forwarder.send(self.app, &onward).await {
            Ok(response) => answer(response, onward, held),
            Err(failure) => Refusal::from(failure).response(),
        }
    }
}

impl Handler for QueueProxy {
    async fn handle(self: Arc<Self>, request: Request<Incoming>, client: SocketAddr) -> Response<AnswerBody> {
        // The kubelet's own probes of the app are neither load nor do they wait.
        let probe = request.headers().get(header::USER_AGENT).is_some_and(|agent| agent.as_bytes().starts_with(b"kube-probe/"));
        let onward = Onward::new(request, client);
        if probe { self.forward(onward, Held::default()).await } else { self.counted(onward).await }
    }
}

async fn ready(State(proxy): State<Arc<QueueProxy>>) -> (StatusCode, String) {
    if *proxy.stage.borrow() != Stage::Serving {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n".to_owned());
    }
    match proxy.probe.ask(proxy.app).await {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("the app is not ready: {why}\n")),
    }
}

async fn stats(State(proxy): State<Arc<QueueProxy>>) -> Json<PodStats> {
    let report = *proxy.latest.lock().unwrap_or_else(PoisonError::into_inner);
    Json(PodStats { report, under_way: proxy.meter.under_way(), uptime_seconds: proxy.meter.now() })
}

/// Answers when the app may end: the kubelet sends it SIGTERM only then.
async fn wait_for_drain(State(proxy): State<Arc<QueueProxy>>) -> &'static str {
    proxy.drain().await;
    let mut pause = Duration::from_millis(5);
    while proxy.meter.under_way() > 0.0 {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(100));
    }
    "drained\n"
}
