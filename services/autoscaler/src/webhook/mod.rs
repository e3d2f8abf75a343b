//! Scale to zero for those who apply objects without Drover: what the annotation `drover.io/scale-to-zero` stands for is added in the
//! cluster. Off unless the agent is given an address for it.
//!
//! ```text
//! kubectl apply ─▶ API server ─▶ [`admission`]: the Deployment gets its sidecar, the Service stays without its selector
//!                       ▲
//!                       └─────── [`complete`]: the agent that acts adds the rest, also to what was admitted while nobody answered
//! ```
//!
//! Invariant: an object without the annotation is never changed, nor one that Drover applies (the hub has added to it already). If no agent
//! answers, the API server admits objects as they are (`failurePolicy: Ignore`). What is added is said in one place,
//! [`drover_autoscaling::to_zero`].

mod admission;
mod certificate;
mod complete;
mod expanded;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::post;
use clap::Args;
use drover_listener::Limits;
use drover_tasks::{OnFailure, Tasks};
use kube::Client;
use prometheus_client::metrics::counter::Counter;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Only API servers connect.
const LIMITS: Limits = Limits { total: 16, per_address: 16, head: Duration::from_secs(5) };

/// An object in the API server's store has at most 1.5 MiB, and a request has the old one, too. The limits together are below what the agent
/// may use of memory.
const BODY: usize = 4 << 20;

/// Settings of the webhook.
#[derive(Args, Clone, Debug)]
pub struct Webhook {
    /// Address to answer the API server's admission requests on (HTTPS), for scale to zero by annotation; absent: off. Needs
    /// deploy/autoscaler/webhook/webhook.yaml.
    #[arg(id = "webhook", long = "webhook", env = "AUTOSCALER_WEBHOOK", value_name = "ADDRESS", requires = "sidecar_image")]
    pub listen: Option<std::net::SocketAddr>,
    /// Image of the sidecars that are added: that of the agent.
    #[arg(long, env = "AUTOSCALER_SIDECAR_IMAGE", value_name = "IMAGE")]
    pub sidecar_image: Option<String>,
    /// Names and IP addresses by which the API server reaches it.
    #[arg(
        long,
        env = "AUTOSCALER_WEBHOOK_NAMES",
        default_value = "drover-autoscaler-webhook.kube-system.svc",
        value_name = "NAME",
        value_delimiter = ','
    )]
    pub webhook_names: Vec<String>,
    /// Name of the MutatingWebhookConfiguration that gets its certificate, and of the Secret that agents share it by.
    #[arg(long, env = "AUTOSCALER_WEBHOOK_CONFIGURATION", default_value = "drover-autoscaler-webhook", value_name = "NAME")]
    pub webhook_configuration: String,
}

/// Says whether this agent is the one that acts.
pub type Acts = Arc<dyn Fn() -> bool + Send + Sync>;

/// The namespaces that an agent knows.
#[derive(Clone, Debug)]
pub struct Namespaces {
    /// Where the certificate is kept.
    pub own: String,
    /// The only one that it looks at; none: it looks at all.
    pub watched: Option<String>,
}

/// What the parts share.
pub(crate) struct Shared {
    client: Client,
    image: String,
    /// Present when there is a certificate.
    tls: Mutex<Option<Arc<ServerConfig>>>,
    /// Something was admitted that may need the rest.
    admitted: Notify,
}

impl Shared {
    fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    fn set_tls(&self, config: Arc<ServerConfig>) {
        *self.tls.lock().unwrap_or_else(PoisonError::into_inner) = Some(config);
    }
}

/// Starts the tasks, if the settings ask for them.
///
/// # Errors
/// The address cannot be used.
pub async fn start(
    settings: Webhook,
    namespaces: Namespaces,
    client: Client,
    acts: Acts,
    tasks: &Tasks,
    tracker: &TaskTracker,
    stop: &CancellationToken,
) -> Result<()> {
    let Webhook { listen: Some(address), sidecar_image: Some(image), webhook_names, webhook_configuration } = settings else {
        return Ok(());
    };
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    tracing::info!(address = %listener.local_addr()?, "answering admission requests");
    let shared = Arc::new(Shared { client, image, tls: Mutex::default(), admitted: Notify::new() });
    let kept = certificate::Kept { namespace: namespaces.own, name: webhook_configuration, names: webhook_names };
    tasks.spawn(tracker, stop.clone(), "webhook-certificate", OnFailure::Restart, {
        let shared = shared.clone();
        move |task| certificate::keep(shared.clone(), kept.clone(), task)
    });
    tasks.spawn(tracker, stop.clone(), "scale-to-zero", OnFailure::Restart, {
        let (shared, namespace) = (shared.clone(), namespaces.watched);
        move |task| complete::run(shared.clone(), namespace.clone(), acts.clone(), task)
    });
    tasks.spawn_once(tracker, stop.clone(), "webhook", |_| serve(listener, shared));
    Ok(())
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) -> Result<()> {
    let router =
        Router::new().route("/v1/scale-to-zero", post(admission::answer)).layer(DefaultBodyLimit::max(BODY)).with_state(shared.clone());
    let http = drover_listener::http1(LIMITS);
    let (never, refused) = (std::future::pending(), Counter::<u64>::default());
    let accepted = drover_listener::accept(listener, LIMITS, &refused, never, |stream, from| {
        let (tls, router, http) = (shared.tls(), router.clone(), http.clone());
        async move {
            // Without a certificate nobody can be answered; the API server goes on without an answer.
            let Some(tls) = tls else { return };
            let handshake = tokio::time::timeout(LIMITS.head, TlsAcceptor::from(tls).accept(stream)).await;
            let Ok(Ok(stream)) = handshake else { return tracing::debug!(?from, "a TLS handshake failed") };
            if let Err(error) = drover_listener::answer(&http, stream, router, CancellationToken::new()).await {
                tracing::debug!(%error, ?from, "a connection broke off");
            }
        }
    });
    accepted.await.context("the listener of the webhook failed")
}
