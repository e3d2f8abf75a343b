//! The gateway: one address for all services, and the web page.
//!
//! It decides nothing about applications: [`routes`] says which service a path belongs to, [`proxy`] passes the request on as a peer, [`page`]
//! renders the answers of the services, and [`sign_in`] lets browsers in. What it owns is who may do what and who did what: [`access`].
//! `/internal` is never routed. Traffic of users' applications does not pass here.

mod access;
mod oidc;
mod page;
mod programs;
mod proxy;
mod routes;
mod sign_in;
mod web;

use std::net::SocketAddr;
use std::sync::Arc;

use access::{Access, Audit, Known, RateLimit, Remembered};
use axum::middleware::{from_fn, from_fn_with_state};
use clap::Args;
use drover_service::{Common, Running, SealSettings};
use oidc::Provider;
use programs::Programs;
use secrecy::ExposeSecret;
use sign_in::SignIn;
use utoipa_axum::router::OpenApiRouter;

pub use access::rules::page as roles_page;
pub use access::{AuditSettings, RateSettings};
pub use oidc::OidcSettings;
pub use programs::ProgramSettings;
pub use proxy::PUBLIC;

/// Settings of the gateway.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// Address to listen on
    #[arg(long, env = "DROVER_LISTEN", default_value = "127.0.0.1:7070")]
    pub listen: SocketAddr,
    /// Connections that one address may have open (of IPv6: one /64 network); more are answered 503 and closed
    #[arg(long, env = "DROVER_MAX_CONNECTIONS_PER_ADDRESS", default_value_t = 512, value_name = "COUNT")]
    pub max_connections_per_address: usize,
    /// Seal key
    #[command(flatten)]
    pub seal: SealSettings,
    /// Limit of requests
    #[command(flatten)]
    pub rate: RateSettings,
    /// Limit of programs in containers
    #[command(flatten)]
    pub programs: ProgramSettings,
    /// Audit log
    #[command(flatten)]
    pub audit: AuditSettings,
    /// Identity provider
    #[command(flatten)]
    pub oidc: OidcSettings,
}

/// Starts the gateway. Without a database (an empty URL) there are no tokens besides the API token, and no audit log in the database.
///
/// # Errors
/// The address cannot be listened on, the database cannot be reached, the seal key cannot be read, or the audit log's file cannot be opened.
pub async fn start(config: Config, common: Common) -> anyhow::Result<Running> {
    let mut common = common.scoped("gateway");
    common.connections.per_address = config.max_connections_per_address;
    let store = match common.database_url.expose_secret() {
        "" => None,
        _ => Some(access::connect(common.database_url.clone()).await?.with_key(Arc::new(config.seal.key()?))),
    };
    if let Some(store) = store.clone() {
        common.readiness.check("database", move || {
            let store = store.clone();
            async move { store.check().await.map_err(|error| error.to_string()) }
        });
    }
    let provider = Provider::new(&config.oidc, config.listen)?;
    let remembered = Remembered::default();
    common.identities = Some(Arc::new(Known::new(store.clone(), remembered.clone(), provider.clone())));
    let listener = drover_service::bind(config.listen, &common).await?;
    let services = proxy::Services::new(&common, Programs::new(config.programs))?;
    services.watch_readiness(&common);
    let audit = Audit::open(&config.audit, store.clone())?;
    let access = Access::new(store, remembered, audit, RateLimit::new(config.rate), services.clone());
    let sign_in = SignIn { sessions: common.sessions.clone(), provider, secure: common.tls.is_some() };
    let routes = OpenApiRouter::new()
        .merge(web::routes())
        .merge(proxy::routes())
        .with_state(services)
        .merge(sign_in::routes().with_state(sign_in))
        .merge(access::routes().with_state(access.clone()))
        .layer(from_fn_with_state(access, access::authorize));
    let router = drover_service::router_with_document(routes, &common, proxy::PUBLIC).layer(from_fn(web::errors_as_pages));
    Ok(drover_service::serve(listener, router, &common))
}

/// The OpenAPI document of the gateway's own operations. What it serves at `/openapi.json` has those of all services.
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut document = drover_service::openapi::document("gateway", sign_in::routes());
    document.merge(drover_service::openapi::document("gateway", access::routes()));
    document
}
