//! Placement: the ledger. It decides which member each app goes to, keeps the claims on room, and explains decisions.
//!
//! It owns decisions, claims and the head of the ledger. Members and their capacity are followed by feed, and what users asked for
//! comes with each request. It writes into no other service.
//!
//! ```text
//! PUT decisions ─┐               ┌─ Book (memory) ── decide, in sequence
//! PUT transactions ── queue ── Writer
//!                                └─ head, decision, claim, receipt (Postgres) ── one statement, compare-and-swap on head
//! feeds members, capacity ── Book ── feed fleet
//! ```
//! The invariant: every answer is committed, onto exactly the ledger that it was decided on.

mod app;
mod config;
mod http;
mod routes;
mod store;
mod tasks;

pub use config::Config;
pub use routes::openapi;

use axum::Router;
use drover_service::{self as service, Common, Running};
use drover_store::failpoint::Failpoints;

/// Failpoints for tests: before and after the statement that commits a batch.
pub const FAILPOINTS: [&str; 2] = ["ledger/commit/before", "ledger/commit/after"];

/// Starts the service.
///
/// # Errors
/// The database is unavailable, or the address is taken.
pub async fn start(config: Config, common: Common) -> anyhow::Result<Running> {
    let common = common.scoped("placement");
    let router = assemble(&common, Failpoints::of_process()).await?;
    let listener = service::bind(config.listen, &common).await?;
    Ok(service::serve(listener, router, &common))
}

/// The service without its socket; its tasks run on `common`. `failpoints` reacts to [`FAILPOINTS`].
///
/// # Errors
/// The database is unavailable, a migration fails, or the log cannot be read.
pub async fn assemble(common: &Common, failpoints: Failpoints) -> anyhow::Result<Router> {
    let app = app::App::connect(common, failpoints).await?;
    tasks::spawn(&app, common);
    let routes = routes::routes(&app.fleet).with_state(app);
    Ok(service::router(routes, common))
}
