//! The request path of KPA: who measures and limits requests in a pod, and who holds them while there is none.
//!
//! ```text
//!                    public Service (no selector)
//!                           │ its EndpointSlice, written by the agent: who is in the path
//!             ┌─────────────┴──────────────┐
//!     burst fits nowhere             enough room
//!             ▼                            │
//!   activator: holds, pokes the decider,   │
//!   releases by capacity                   │
//!             └─────────────┬──────────────┘
//!                           ▼
//!              pod: queue-proxy ──▶ app
//! ```
//!
//! Not here: how many pods there should be (`libs/autoscaling`). [`keeper`] is what the agent calls, [`slices`] how its word is written down.

pub mod activator;
pub mod admit;
pub mod body;
pub mod demo;
pub mod forward;
pub mod keeper;
pub mod meter;
pub mod probe;
pub mod push;
pub mod queue_proxy;
pub mod refusal;
pub mod room;
pub mod serve;
pub mod slices;
pub mod token;
pub mod zero;

use std::path::Path;

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::signal::unix::{SignalKind, signal};

/// An app, by the ScalingPolicy that scales it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Namespace.
    pub namespace: String,
    /// Name of the ScalingPolicy.
    pub policy: String,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.policy)
    }
}

/// Ends when the process is told to.
///
/// # Errors
/// Signals cannot be heard.
pub async fn told_to_end() -> Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// A client of the cluster: by a file, or as the pod that this is.
pub(crate) async fn client(kubeconfig: Option<&Path>) -> Result<kube::Client> {
    let config = match kubeconfig {
        None => kube::Config::incluster().context("this is no pod: say --kubeconfig FILE")?,
        Some(file) => {
            let read = Kubeconfig::read_from(file).with_context(|| format!("cannot read {}", file.display()))?;
            kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.context("the kubeconfig is not usable")?
        }
    };
    Ok(kube::Client::try_from(config)?)
}
