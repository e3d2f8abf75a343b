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
mod shared;
mod store;
mod tasks;
mod worker;

use std::sync::Arc;

use axum::Router;
use drover_members::Clients;
use drover_service::{self as service, Common, FeedReader, OnFailure, Running};
use drover_store::failpoint::Failpoints;

pub use config::Config;
pub use routes::openapi;

/// Where tests can stop it: around every word to a member that changes something.
pub const FAILPOINTS: [&str; 4] =
    ["synchronizer/apply/before", "synchronizer/apply/after_effect", "synchronizer/delete/before", "synchronizer/delete/after_effect"];

/// Starts the service.
pub async fn start(config: Config, common: Common) -> anyhow::Result<Running> {
    let common = common.scoped("resource-synchronizer");
    let router = assemble(&common, Arc::new(Clients::new()), Failpoints::of_process()).await?;
    let listener = service::bind(config.listen, &common).await?;
    Ok(service::serve(listener, router, &common))
}

/// The service without its listener. `clients` may hold clients of its caller's making (simulated members in the same
/// process); `failpoints` are where a test stops it.
pub async fn assemble(common: &Common, clients: Arc<Clients>, failpoints: Failpoints) -> anyhow::Result<Router> {
    let app = app::App::connect(common, clients, failpoints).await?;
    let members = FeedReader::new(app.cluster_manager.clone(), "/internal/feeds/members");
    common.readiness.heard("cluster-manager", members.contact());
    let of = app.clone();
    common.spawn("follow-members", OnFailure::Restart, move |task| tasks::follow_members(of.clone(), members.for_task(task)));
    let routes = routes::routes(&app.statuses).with_state(app);
    Ok(service::router(routes, common))
}
