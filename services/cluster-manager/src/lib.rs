//! Cluster-manager: registers the members, stores how to reach them, and observes their health and capacity.
//!
//! It owns providers, clusters, labels, kv-pairs and the sealed kubeconfigs. Health and capacity are observed and published by
//! feed, never stored. It makes no placement decision.
//!
//! ```text
//! REST ── documents, labels, credentials (Postgres) ──▶ task follow-registrations ──▶ one worker per member
//!                                                          │                  │ watches nodes and pods, heartbeat, metrics
//!                                                    feed members ◀── Fleet ──┴──▶ feed capacity
//! ```
//! Agents of members that cannot be reached connect to a listener of their own; other services reach those members through here
//! (`/internal/links`).
//!
//! The invariant: a member whose API server is slow, unreachable or faulty does not affect other members; each has its own worker
//! and back-off, and every request has a deadline.

mod app;
mod config;
mod http;
mod probe;
mod resources;
mod routes;
mod store;
mod tasks;

pub use config::Config;
pub use routes::openapi;

use anyhow::Context;
use drover_members::{Clients, Reach};
use drover_service::{self as service, Common, Running};
use tokio::net::TcpListener;

/// Starts the service.
///
/// # Errors
/// The database is unavailable, the seal key cannot be read, or the address is taken.
pub async fn start(config: Config, common: Common) -> anyhow::Result<Running> {
    let reach = if common.local_clusters { Reach::Anywhere } else { Reach::Remote };
    start_with(config, common, Clients::new(reach)).await
}

/// As [`start`], with clients into which simulated members of the same process may be injected.
///
/// # Errors
/// As [`start`].
pub async fn start_with(config: Config, common: Common, clients: Clients) -> anyhow::Result<Running> {
    let common = common.scoped("cluster-manager");
    let listen = config.listen;
    let agents = match config.link_listen {
        None => None,
        Some(at) => Some(TcpListener::bind(at).await.with_context(|| format!("cannot take agents of clusters on {at}"))?),
    };
    let address = match &agents {
        None => None,
        Some(bound) => Some(config.link_address.clone().unwrap_or(bound.local_addr()?.to_string())),
    };
    let app = app::App::connect(config, &common, clients, address).await?;
    common.readiness.check("database", {
        let store = app.store.clone();
        move || {
            let store = store.clone();
            async move { store.check().await.map_err(|error| error.to_string()) }
        }
    });
    tasks::spawn(&app, &common, agents);
    let listener = service::bind(listen, &common).await?;
    let routes = routes::routes(&app.fleet).with_state(app);
    Ok(service::serve(listener, service::router(routes, &common), &common))
}
