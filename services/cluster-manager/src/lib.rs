//! Cluster-manager: the members. Who they are, how to reach them, whether they answer, and how much room they have.
//!
//! It owns providers, clusters, labels, kv-pairs and the sealed kubeconfigs. Health and capacity are observed and told by
//! feed; they are never stored and nothing is decided here.
//!
//! ```text
//! REST ── documents, labels, credentials (Postgres) ──▶ task supervise ──▶ one worker per member
//!                                                          │                  │ watches nodes and pods, heartbeat, metrics
//!                                                    feed members ◀── Fleet ──┴──▶ feed capacity
//! ```
//! The invariant: a member whose API server is slow, dead or lying costs the other members nothing; each has a worker,
//! a deadline on every request, and a back-off of its own.

mod app;
mod config;
mod http;
mod resources;
mod routes;
mod store;
mod tasks;

pub use config::Config;
pub use routes::openapi;

use drover_service::{self as service, Common, Running};

/// Starts the service.
pub async fn start(config: Config, common: Common) -> anyhow::Result<Running> {
    start_with(config, common, drover_members::Clients::new()).await
}

/// As [`start`], with clients that may have members injected (simulated ones in the same process).
pub async fn start_with(config: Config, common: Common, clients: drover_members::Clients) -> anyhow::Result<Running> {
    let common = common.scoped("cluster-manager");
    let listen = config.listen;
    let app = app::App::connect(config, &common, clients).await?;
    common.readiness.check("database", {
        let store = app.store.clone();
        move || {
            let store = store.clone();
            async move { store.check().await.map_err(|error| error.to_string()) }
        }
    });
    tasks::spawn(&app, &common);
    let listener = service::bind(listen, &common).await?;
    let routes = routes::routes(&app.fleet).with_state(app);
    Ok(service::serve(listener, service::router(routes, &common), &common))
}
