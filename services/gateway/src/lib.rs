//! The gateway: one address for all services, and the web page.
//!
//! It owns no state and decides nothing: [`routes`] says which service a path belongs to, [`proxy`] passes the request on
//! with the peer token, [`page`] renders the answers of the services, and [`sign_in`] lets browsers in. `/internal` is never routed. Traffic of users' applications does
//! not pass here.

mod page;
mod proxy;
mod routes;
mod sign_in;
mod web;

use std::net::SocketAddr;

use axum::middleware::from_fn;
use clap::Args;
use drover_service::{Common, Running, Sessions};
use utoipa_axum::router::OpenApiRouter;

/// Settings of the gateway.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// Address to listen on
    #[arg(long, env = "DROVER_LISTEN", default_value = "127.0.0.1:7070")]
    pub listen: SocketAddr,
    /// Connections that one address may have open (of IPv6: one /64 network); more are answered 503 and closed
    #[arg(long, env = "DROVER_MAX_CONNECTIONS_PER_ADDRESS", default_value_t = 512, value_name = "COUNT")]
    pub max_connections_per_address: usize,
}

/// Starts the gateway.
///
/// # Errors
/// The address cannot be listened on.
pub async fn start(config: Config, common: Common) -> anyhow::Result<Running> {
    let mut common = common.scoped("gateway");
    common.connections.per_address = config.max_connections_per_address;
    let listener = drover_service::bind(config.listen, &common).await?;
    let services = proxy::Services::new(&common);
    services.watch_readiness(&common);
    let routes =
        OpenApiRouter::new().merge(web::routes()).merge(proxy::routes()).with_state(services).merge(sign_in::routes(&common.sessions));
    let router = drover_service::router_with_document(routes, &common, proxy::PUBLIC).layer(from_fn(web::errors_as_pages));
    Ok(drover_service::serve(listener, router, &common))
}

/// The OpenAPI document of the gateway's own operations. What it serves at `/openapi.json` has those of all services.
pub fn openapi() -> utoipa::openapi::OpenApi {
    let own = sign_in::routes(&Sessions::default());
    drover_service::openapi::document("gateway", OpenApiRouter::new().merge(web::routes()).merge(proxy::routes()).merge(own))
}
