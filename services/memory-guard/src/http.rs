//! The agent's HTTP answers: all of them on its socket (root only) and, if an address is given, `/metrics`, `/pressure` and `/healthz`
//! there. Nothing can be changed over either.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Json;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use drover_listener::{Accept, Limits};
use drover_tasks::Tasks;
use tokio::net::{TcpListener, UnixListener};

use crate::metrics::Metrics;
use crate::wire::{Pressure, Status};

/// Few ask: a monitoring system, the kubelet, whoever looks at the node. The agent has 15 MiB.
const LIMITS: Limits = Limits { total: 64, per_address: 32, head: Duration::from_secs(30) };

/// What the HTTP handlers share with the agent: the latest status and the metrics.
#[derive(Debug)]
pub struct Shared {
    status: Mutex<Option<(Status, std::time::Instant)>>,
    pub metrics: Metrics,
    /// The agent's background tasks.
    pub tasks: Tasks,
}

impl Default for Shared {
    fn default() -> Self {
        // No task ends the process: the guard's own loop goes on, and all others can be started again.
        let tasks = Tasks::default();
        Self { status: Mutex::default(), metrics: Metrics::new(&tasks), tasks }
    }
}

impl Shared {
    /// Replaces the latest status.
    pub fn publish(&self, status: Status) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = Some((status, std::time::Instant::now()));
    }

    /// The latest status, with the age of its reading.
    pub fn latest(&self) -> Option<Status> {
        let guard = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        guard.as_ref().map(|(status, at)| {
            let mut status = status.clone();
            status.pressure.age_seconds += at.elapsed().as_secs_f64();
            status
        })
    }
}

/// Serves the socket, after removing an old one: only one agent uses the directory.
///
/// # Errors
/// When the socket cannot be created, or serving fails.
pub async fn serve_socket(path: PathBuf, shared: Arc<Shared>) -> Result<()> {
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error).context("cannot remove the old socket"),
        _ => {}
    }
    let listener = UnixListener::bind(&path).with_context(|| format!("cannot listen on {}", path.display()))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    serve(listener, machines().route("/status", get(status)), shared).await.context("serving the socket failed")
}

/// Serves metrics, pressure and health at an address.
///
/// # Errors
/// When the address cannot be listened on, or serving fails.
pub async fn serve_address(address: SocketAddr, shared: Arc<Shared>) -> Result<()> {
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    serve(listener, machines(), shared).await.context("serving the address failed")
}

async fn serve(listener: impl Accept, router: Router<Arc<Shared>>, shared: Arc<Shared>) -> std::io::Result<()> {
    let refused = shared.metrics.refused.clone();
    drover_listener::serve(listener, router.with_state(shared), LIMITS, refused).await
}

fn machines() -> Router<Arc<Shared>> {
    Router::new().route("/metrics", get(metrics)).route("/pressure", get(pressure)).route("/healthz", get(health))
}

async fn status(State(shared): State<Arc<Shared>>) -> Result<Json<Status>, StatusCode> {
    shared.latest().map(Json).ok_or(StatusCode::SERVICE_UNAVAILABLE)
}

async fn pressure(State(shared): State<Arc<Shared>>) -> Result<Json<Pressure>, StatusCode> {
    shared.latest().map(|status| Json(status.pressure)).ok_or(StatusCode::SERVICE_UNAVAILABLE)
}

async fn health(State(shared): State<Arc<Shared>>) -> (StatusCode, String) {
    if shared.latest().is_none_or(|status| status.pressure.age_seconds >= 5.0) {
        return (StatusCode::SERVICE_UNAVAILABLE, "the agent has not observed the node for 5 s\n".to_owned());
    }
    let failing: Vec<String> = shared.tasks.unready().into_iter().map(|(task, error)| format!("task {task} fails: {error}\n")).collect();
    if failing.is_empty() { (StatusCode::OK, "ok\n".to_owned()) } else { (StatusCode::SERVICE_UNAVAILABLE, failing.concat()) }
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    match shared.metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
