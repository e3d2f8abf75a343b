//! Resource-synchronizer: bindings become objects in members, and stay so.
//!
//! It owns desired bindings, bundles and the inventory of what it applied; it decides nothing about where things run and
//! writes into no other service.
//!
//! ```text
//! PUT bundles, bindings ── Postgres ── dirty ids ──┐
//! feed members ── a worker per member, started, stopped ┤
//!                                                  ├── Worker: World (what is seen) against desired and inventory
//! watches of the member (kinds in its inventory) ──┘        │
//!                                                   apply, delete by uid ── feed bindings
//! ```
//! Invariants: a row of the inventory exists before its object does; the newest desired row is read before anything is
//! written; a member that does not answer delays its own worker only; an object that is not its app's is never touched.

mod app;
mod config;
mod http;
mod routes;
mod store;
mod tasks;
mod worker;

use std::sync::Arc;

use drover_members::Clients;
use drover_service::{self as service, Common, Running};

pub use config::Config;
pub use routes::openapi;

/// Starts the service.
pub async fn start(config: Config, common: Common) -> anyhow::Result<Running> {
    start_with(config, common, Arc::new(Clients::new())).await
}

/// Starts the service with clients of its caller's making (simulated members in the same process).
pub async fn start_with(config: Config, common: Common, clients: Arc<Clients>) -> anyhow::Result<Running> {
    let common = common.scoped("resource-synchronizer");
    let app = app::App::connect(&common, clients).await?;
    let follow = tasks::follow_members(app.clone());
    common.spawn(follow);
    let listener = service::bind(config.listen, &common).await?;
    let routes = routes::routes(&app.statuses).with_state(app);
    Ok(service::serve(listener, service::router(routes, &common), &common))
}
