//! The gateway: one address for all services, and the web page.
//!
//! It owns no state and decides nothing: [`routes`] says which service a path belongs to, [`proxy`] passes the request on
//! with the peer token, [`page`] renders the answers of the services. `/internal` is never routed. Traffic of users' applications does
//! not pass here.

mod page;
mod proxy;
mod routes;
mod web;

use std::net::SocketAddr;

use clap::Args;
use drover_service::{Common, Running};
use utoipa_axum::router::OpenApiRouter;

/// Settings of the gateway.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// Address to listen on
    #[arg(long, env = "DROVER_LISTEN", default_value = "127.0.0.1:7070")]
    pub listen: SocketAddr,
}

/// Starts the gateway.
///
/// # Errors
/// The address cannot be listened on.
pub async fn start(config: Config, common: Common) -> anyhow::Result<Running> {
    let common = common.scoped("gateway");
    let listener = drover_service::bind(config.listen, &common).await?;
    let services = proxy::Services::new(&common);
    services.watch_readiness(&common);
    let routes = OpenApiRouter::new().merge(web::routes()).merge(proxy::routes()).with_state(services);
    Ok(drover_service::serve(listener, drover_service::router(routes, &common), &common))
}

/// The gateway's own OpenAPI document; the operations behind it are in the documents of the services.
pub fn openapi() -> utoipa::openapi::OpenApi {
    drover_service::openapi::document("gateway", OpenApiRouter::new().merge(web::routes()).merge(proxy::routes()))
}
