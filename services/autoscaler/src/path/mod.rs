//! The request path of KPA: the queue-proxy measures and limits requests in a pod, and the activator holds them while there is no pod.
//!
//! ```text
//!                    public Service (no selector)
//!                           │ its EndpointSlice, written by the agent: who is in the path
//!             ┌─────────────┴──────────────┐
//!     no room for a burst            room for a burst
//!             ▼                            │
//!   activator: holds requests, reports     │
//!   them to the decider, sends them on     │
//!             └─────────────┬──────────────┘
//!                           ▼
//!              pod: queue-proxy ──▶ app
//! ```
//!
//! How many pods there should be is decided in `libs/autoscaling`. The agent calls [`keeper`]; [`slices`] is the format of the EndpointSlices.

pub mod activator;
pub mod admit;
pub mod demo;
pub mod guards;
pub mod keeper;
pub mod meter;
pub mod probe;
pub mod push;
pub mod queue_proxy;
pub mod refusal;
pub mod slices;
pub mod stale;
pub mod throttler;
pub mod token;
pub mod zero;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use drover_listener::Limits;
use drover_tasks::Tasks;
use kube::config::{KubeConfigOptions, Kubeconfig};
use prometheus_client::metrics::counter::Counter;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// An app, identified by the ScalingPolicy that scales it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub namespace: String,
    /// Name of the ScalingPolicy.
    pub policy: String,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.policy)
    }
}

/// Completes when the process is told to end.
///
/// # Errors
/// If signals cannot be received.
pub async fn termination() -> Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// The result of a process whose tasks have ended: the failure of the task that ended it, if one did.
pub(crate) fn ended(tasks: &Tasks) -> Result<()> {
    tasks.fatal().map_or(Ok(()), |failure| Err(anyhow::anyhow!("{failure}")))
}

/// Serves an admin port: for the kubelet, activators, and whoever looks.
///
/// # Errors
/// The listener cannot be used any longer.
pub async fn serve_admin(listener: TcpListener, routes: Router) -> std::io::Result<()> {
    let limits = Limits { total: 256, per_address: 64, head: Duration::from_secs(30) };
    drover_listener::serve(listener, routes, limits, Counter::default()).await
}

/// A client of the cluster, from a kubeconfig or from the service account of this pod.
pub(crate) async fn client(kubeconfig: Option<&Path>) -> Result<kube::Client> {
    let config = match kubeconfig {
        None => kube::Config::incluster().context("this process has no service account of a pod: use --kubeconfig FILE")?,
        Some(file) => {
            let read = Kubeconfig::read_from(file).with_context(|| format!("cannot read {}", file.display()))?;
            kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.context("the kubeconfig is not usable")?
        }
    };
    Ok(kube::Client::try_from(config)?)
}
