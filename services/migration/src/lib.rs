//! Migration: who may move, who moves first, and plans.
//!
//! It owns migration intents, policies, algorithms and parameters (documents), and plans: documents too, never effects.
//! It moves nothing and holds no room; it plans on a copy of the ledger that it follows by feed, and whoever applies a plan
//! has placement judge it again.
//!
//! ```text
//! feed fleet ── FleetCopy ─┐
//! documents ── movability, policy ── PlanRequest ── scheduling::plan ── plan (with its whole input, for replay)
//! prometheus ─────────────────────────┘
//! ```
//! The invariant: a plan leaves `proposed` once, for one operation.

mod app;
mod config;
mod http;
mod resources;
mod routes;
mod store;
mod tasks;

pub use app::PlanInput;
pub use config::Config;
pub use routes::openapi;

use axum::Router;
use drover_service::{self as service, Common, Running};

/// Starts the service.
pub async fn start(config: Config, common: Common) -> anyhow::Result<Running> {
    let common = common.scoped("migration");
    let router = assemble(&config, &common).await?;
    let listener = service::bind(config.listen, &common).await?;
    Ok(service::serve(listener, router, &common))
}

/// The service without its socket: its tasks run on `common`.
pub async fn assemble(config: &Config, common: &Common) -> anyhow::Result<Router> {
    let app = app::App::connect(config, common).await?;
    tasks::spawn(&app, common);
    Ok(service::router(routes::routes().with_state(app), common))
}
