//! The sidecar of a pod (Knative's queue-proxy): counts requests, limits how many the app gets at the same time, and drains.
//!
//! It has two ports. One forwards requests to the app. The other says whether the app is ready (`/ready`, for the kubelet and the activator),
//! shows what was measured (`/stats`), and waits for the last request (`/wait-for-drain`, for the app's preStop hook).
//! How many pods there are is decided elsewhere. Invariant: a request that was admitted is answered, whenever the pod is told to end. A
//! second signal ends only the wait for late requests.

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
use drover_proxy::body::AnswerBody;
use drover_proxy::forward::{ForwardedRequest, Forwarder, PROXIED, answer};
use drover_proxy::serve::{Handler, ListenerStage, serve};
use drover_tasks::{OnFailure, Tasks};
use http::{Request, Response, header};
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admit::admit;
use super::guards::RequestGuards;
use super::meter::Meter;
use super::probe::Probe;
use super::push::{DeciderClient, OutageLog};
use super::refusal::Refusal;
use super::throttler::Throttler;
use super::token::{self, Token};
use super::{Key, serve_admin};

/// Interval of reports.
const REPORT: Duration = Duration::from_secs(1);
/// Length of the queue per request that the app takes at the same time.
const QUEUE_PER_SLOT: usize = 10;

/// Settings of `queue-proxy`.
#[derive(clap::Args, Clone, Debug)]
pub struct Config {
    /// Address for requests.
    #[arg(long, env = "QUEUE_PROXY_LISTEN", default_value = "0.0.0.0:8012", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Address for the kubelet, the activator and the decider.
    #[arg(long, env = "QUEUE_PROXY_ADMIN", default_value = "0.0.0.0:8022", value_name = "ADDRESS")]
    pub admin: SocketAddr,
    /// The app's port in this pod.
    #[arg(long, env = "QUEUE_PROXY_APP_PORT", default_value_t = 8080, value_name = "PORT")]
    pub app_port: u16,
    /// Requests that the app gets at the same time; ten times as many wait, more are refused. 0: unlimited.
    #[arg(long, env = "QUEUE_PROXY_CONTAINER_CONCURRENCY", default_value_t = 0, value_name = "N")]
    pub container_concurrency: usize,
    /// Path that the app answers with 2xx or 3xx when it is ready; absent: it is ready when it accepts connections.
    #[arg(long, env = "QUEUE_PROXY_READY_PATH", value_name = "PATH")]
    pub ready_path: Option<String>,
    /// URL of the agent; absent: what is measured is only shown (`/stats`).
    #[arg(long, env = "QUEUE_PROXY_DECIDER", value_name = "URL", requires = "policy", requires = "namespace")]
    pub decider: Option<String>,
    /// File with the token that identifies this pod to the agent: a projected token for the audience drover-autoscaler, renewed by the kubelet.
    #[arg(long, env = "QUEUE_PROXY_TOKEN", default_value = token::FILE, value_name = "FILE")]
    pub token: PathBuf,
    /// The ScalingPolicy of this pod's app.
    #[arg(long, env = "QUEUE_PROXY_POLICY", value_name = "NAME")]
    pub policy: Option<String>,
    /// Namespace of the ScalingPolicy.
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// This pod's name in its reports.
    #[arg(long, env = "POD_NAME", default_value = "queue-proxy", value_name = "NAME")]
    pub name: String,
    /// Seconds that a request may wait in the queue.
    #[arg(long, env = "QUEUE_PROXY_PATIENCE", default_value_t = 300, value_name = "SECONDS")]
    pub patience: u64,
    /// Draining ends when no request came for this many seconds: it takes that long until clients no longer use the pod's endpoint.
    #[arg(long, env = "QUEUE_PROXY_QUIET", default_value_t = 5.0, value_name = "SECONDS")]
    pub quiet: f64,
    /// Seconds after which draining ends in any case; must be less than the pod's terminationGracePeriodSeconds.
    #[arg(long, env = "QUEUE_PROXY_DRAIN", default_value_t = 25.0, value_name = "SECONDS")]
    pub drain: f64,
}

/// The answer of `GET /stats`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStats {
    /// Averages of the last whole second.
    #[serde(flatten)]
    pub report: RequestReport,
    /// Requests in progress now.
    pub under_way: f64,
    /// Seconds since the start.
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
    /// None: the app takes any number of requests.
    throttler: Option<Arc<Throttler>>,
    forwarder: Forwarder,
    came: AtomicU64,
    latest: Mutex<RequestReport>,
    stage: watch::Sender<ListenerStage>,
}

/// Runs until the process is told to end and all requests are answered.
///
/// # Errors
/// If an address cannot be bound, or a task failed that cannot be restarted.
pub async fn run(config: Config) -> Result<()> {
    let bind = async |address: SocketAddr| TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"));
    let (listener, admin) = (bind(config.listen).await?, bind(config.admin).await?);
    let (listens, asks) = (listener.local_addr()?, admin.local_addr()?);
    let limit = Duration::from_secs_f64(config.drain);
    let proxy = QueueProxy::new(&config);
    tracing::info!(listen = %listens, admin = %asks, app = %proxy.app, "queue-proxy");
    let to = match (&config.decider, config.namespace, config.policy) {
        (Some(base), Some(namespace), Some(policy)) => {
            Some((DeciderClient::new(base, config.name, Token::new(config.token))?, Key { namespace, policy }))
        }
        _ => None,
    };
    let failed = CancellationToken::new();
    let (tasks, never) = (Tasks::new(failed.clone()), CancellationToken::new());
    let (serving, rest) = (TaskTracker::new(), TaskTracker::new());
    tasks.spawn(&rest, never.clone(), "report", OnFailure::Restart, {
        let proxy = proxy.clone();
        move |_| proxy.clone().report(to.clone())
    });
    let routes = proxy.clone().admin_routes();
    tasks.spawn_once(&rest, never.clone(), "admin-server", |_| serve_admin(admin, routes));
    tasks.spawn_once(&serving, never, "proxy-server", {
        let proxy = proxy.clone();
        move |_| proxy.serve(listener)
    });
    tokio::select! {
        ended = super::termination() => ended?,
        () = failed.cancelled() => {}
    }
    tracing::info!("draining");
    serving.close();
    let drained = async {
        tokio::select! {
            () = proxy.drain() => {}
            // A second signal ends the wait for late requests, but not the requests in progress.
            _ = super::termination() => proxy.advance(ListenerStage::Closing),
        }
        serving.wait().await;
    };
    if tokio::time::timeout(limit, drained).await.is_err() {
        tracing::warn!(left = proxy.meter.under_way(), "requests are still in progress after {limit:?}");
    }
    super::ended(&tasks)
}

impl QueueProxy {
    /// Creates a sidecar; [`Self::serve`] and [`Self::admin_routes`] run it.
    pub fn new(config: &Config) -> Arc<Self> {
        let app = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), config.app_port);
        let throttler = (config.container_concurrency > 0).then(|| {
            let throttler = Throttler::new(config.container_concurrency.saturating_mul(QUEUE_PER_SLOT));
            throttler.set_destinations([(app, config.container_concurrency)]);
            throttler
        });
        Arc::new(Self {
            app,
            probe: Probe::new(config.ready_path.clone()),
            patience: Duration::from_secs(config.patience),
            quiet: Duration::from_secs_f64(config.quiet),
            meter: Meter::new(),
            throttler,
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

    /// The routes of the admin port.
    pub fn admin_routes(self: Arc<Self>) -> Router {
        Router::new().route("/ready", get(ready)).route("/stats", get(stats)).route("/wait-for-drain", get(wait_for_drain)).with_state(self)
    }

    /// Reports once a second, for ever.
    pub async fn report(self: Arc<Self>, to: Option<(DeciderClient, Key)>) {
        let mut every = tokio::time::interval(REPORT);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut outage = OutageLog::default();
        loop {
            every.tick().await;
            let report = self.meter.report();
            *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = report;
            if let Some((decider, key)) = &to {
                outage.note(&decider.push(key, report).await);
            }
        }
    }

    /// Stops being ready, serves requests until no more come, then closes the listener. May be called repeatedly and concurrently.
    pub async fn drain(&self) {
        self.advance(ListenerStage::Leaving);
        loop {
            let before = self.came.load(Ordering::Relaxed);
            tokio::time::sleep(self.quiet).await;
            if self.came.load(Ordering::Relaxed) == before {
                break;
            }
        }
        self.advance(ListenerStage::Closing);
    }

    /// Moves the listener on to a later stage.
    fn advance(&self, to: ListenerStage) {
        self.stage.send_if_modified(|stage| *stage < to && std::mem::replace(stage, to) < to);
    }

    async fn counted(&self, mut forwarded: ForwardedRequest) -> Response<AnswerBody> {
        self.came.fetch_add(1, Ordering::Relaxed);
        let proxied = forwarded.take(&PROXIED).is_some();
        let mut held = RequestGuards { under_way: Some(self.meter.enter(proxied)), permit: None };
        if let Some(throttler) = &self.throttler {
            match admit(throttler, forwarded.body(), self.patience).await {
                Ok(permit) => held.permit = Some(permit),
                Err(refusal) => return refusal.response(),
            }
        }
        self.forward(forwarded, held).await
    }

    async fn forward(&self, forwarded: ForwardedRequest, held: RequestGuards) -> Response<AnswerBody> {
        match self.forwarder.send(self.app, &forwarded).await {
            Ok(response) => answer(response, forwarded, held),
            Err(failure) => Refusal::from(failure).response(),
        }
    }
}

impl Handler for QueueProxy {
    async fn handle(self: Arc<Self>, request: Request<Incoming>, client: SocketAddr) -> Response<AnswerBody> {
        // The kubelet's own probes of the app are not load, and they do not wait.
        let probe = request.headers().get(header::USER_AGENT).is_some_and(|agent| agent.as_bytes().starts_with(b"kube-probe/"));
        let forwarded = ForwardedRequest::new(request, client);
        if probe { self.forward(forwarded, RequestGuards::default()).await } else { self.counted(forwarded).await }
    }
}

async fn ready(State(proxy): State<Arc<QueueProxy>>) -> (StatusCode, String) {
    if *proxy.stage.borrow() != ListenerStage::Serving {
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

/// Answers when the app may end; the kubelet sends it SIGTERM only after that.
async fn wait_for_drain(State(proxy): State<Arc<QueueProxy>>) -> &'static str {
    proxy.drain().await;
    let mut pause = Duration::from_millis(5);
    while proxy.meter.under_way() > 0.0 {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(100));
    }
    "drained\n"
}
