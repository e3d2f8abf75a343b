//! Migration: which apps may be moved, in which order, and plans for moves.
//!
//! It owns migration intents, policies, algorithms, parameters and plans. All of them are documents: making a plan moves nothing and
//! reserves no room. Plans are made on a copy of the ledger that follows placement's feed. When a plan is applied, placement checks it
//! again.
//!
//! ```text
//! feed fleet ── FleetCopy ─┐
//! documents ── movability, policy ── PlanRequest ── scheduling::plan ── plan (with its whole input, for replay)
//! prometheus ─────────────────────────┘
//! ```
//! Invariant: a plan leaves the state `proposed` once, and is accepted by one operation at most.

mod app;
mod config;
mod http;
mod resources;
mod routes;
mod store;
mod tasks;

pub use app::{PlanInput, TimeMeter};
pub use config::Config;
pub use routes::openapi;

use axum::Router;
use drover_service::{self as service, Common, Running};

/// Starts the service.
///
/// # Errors
/// The address cannot be bound, or as [`assemble`].
pub async fn start(config: Config, common: Common) -> anyhow::Result<Running> {
    let common = common.scoped("migration");
    let router = assemble(&config, &common).await?;
    let listener = service::bind(config.listen, &common).await?;
    Ok(service::serve(listener, router, &common))
}

/// Makes the service without its socket. Its tasks run on `common`.
///
/// # Errors
/// The database is unavailable, a migration fails, or the built-in documents cannot be made.
pub async fn assemble(config: &Config, common: &Common) -> anyhow::Result<Router> {
    let app = app::App::connect(config, common).await?;
    tasks::spawn(&app, common);
    Ok(service::router(routes::routes().with_state(app), common))
}
