//! Resource-synchronizer: creates the objects of bindings in members, corrects drift, and deletes them.
//!
//! It owns desired bindings, bundles and the inventory of what it applied. It does not decide where apps run, and it writes
//! into no other service.
//!
//! ```text
//! PUT bundles, bindings ── Postgres ── changed ids ─┐
//! feed members ── starts and stops a worker per member ┤
//!                                                  ├── Worker: compares MemberView with desired rows and inventory
//! watches of the member (kinds in its inventory) ──┘        │
//!                                                   apply, delete by uid ── feed bindings
//! watch of EndpointSlices, where Services were applied ── feed endpoints ── names: Services that answer in other members
//! feed routes ── gateways: weights of HTTPRoutes ── feed traffic
//! ```
//! Invariants: a row of the inventory exists before its object does; the newest desired row is read before anything is
//! written; a member that does not answer delays only its own worker; an object of another owner is never changed.

mod app;
mod config;
mod gateways;
mod group_commit;
mod http;
mod links;
mod names;
mod preflight;
mod recent_bundles;
mod routes;
mod shared;
mod store;
mod tasks;
mod volumes;
mod worker;

use std::sync::Arc;

use axum::Router;
use drover_members::{Clients, Reach};
use drover_service::{self as service, Common, FeedReader, OnFailure, Running};
use drover_store::SealKey;
use drover_store::failpoint::Failpoints;

pub use config::Config;
use gateways::Gateways;
pub use routes::openapi;

/// Where tests can stop the service: before and after every request that changes a member.
pub const FAILPOINTS: [&str; 4] =
    ["synchronizer/apply/before", "synchronizer/apply/after_effect", "synchronizer/delete/before", "synchronizer/delete/after_effect"];

/// Starts the service.
///
/// # Errors
/// When the database or the address cannot be used.
pub async fn start(config: Config, common: Common) -> anyhow::Result<Running> {
    let common = common.scoped("resource-synchronizer");
    let reach = if common.local_clusters { Reach::Anywhere } else { Reach::Remote };
    let links = links::PeerLinks(common.peer("cluster-manager", &common.peers.cluster_manager));
    let clients = Clients::new(reach).through(Arc::new(links));
    let router = assemble(&common, config.seal.key()?, Arc::new(clients), Failpoints::of_process()).await?;
    let listener = service::bind(config.listen, &common).await?;
    Ok(service::serve(listener, router, &common))
}

/// The service without its listener. `clients` may contain clients that the caller made (simulated members in the same
/// process); `failpoints` are those that a test sets.
///
/// # Errors
/// When the database cannot be used.
pub async fn assemble(common: &Common, key: SealKey, clients: Arc<Clients>, failpoints: Failpoints) -> anyhow::Result<Router> {
    let app = app::App::connect(common, key, clients, failpoints).await?;
    let members = FeedReader::new(app.cluster_manager.clone(), "/internal/feeds/members");
    common.readiness.heard("cluster-manager", members.contact());
    let of = app.clone();
    common.spawn("follow-members", OnFailure::Restart, move |task| tasks::follow_members(of.clone(), members.for_task(task)));
    let of = app.clone();
    common.spawn("follow-endpoints", OnFailure::Restart, move |task| names::follow_endpoints(of.clone(), task));
    let gateways = Gateways::default();
    let tables = FeedReader::new(common.peer("orchestrator", &common.peers.orchestrator), "/internal/feeds/routes");
    let of = gateways.clone();
    common.spawn("follow-routes", OnFailure::Restart, move |task| of.clone().follow(tables.for_task(task)));
    let of = (gateways.clone(), app.clone());
    common.spawn("gateways", OnFailure::Restart, move |task| of.0.clone().carry(of.1.clone(), task));
    let routes = routes::routes(&app.statuses, &app.endpoints, gateways.reports()).with_state(app);
    Ok(service::router(routes, common))
}
