//! The connections of a service: the limits that its settings have, TLS, and what is known of a client. The limits themselves are kept
//! by `drover_listener`.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use clap::Args;
use drover_listener::{Limits, answer, http1};
use prometheus_client::metrics::counter::Counter;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower_http::add_extension::AddExtension;

use crate::metrics::Metrics;
use crate::tls::service_of;

/// Limits of a listener.
#[derive(Args, Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Connections that may be open at the same time; more are answered 503 and closed
    #[arg(long = "max-connections", env = "DROVER_MAX_CONNECTIONS", default_value_t = 4096, value_name = "COUNT")]
    pub total: usize,
    /// Seconds in which a client must have sent the head of its next request, 1 to 3600
    #[arg(long, env = "DROVER_HEAD_SECONDS", default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub head_seconds: u64,
    /// Connections that one address may have open (of IPv6: one /64 network). Only the gateway sets it: all requests to the other
    /// services come from few addresses.
    #[arg(skip = usize::MAX)]
    pub per_address: usize,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self { total: 4096, per_address: usize::MAX, head_seconds: 30 }
    }
}

impl From<ConnectionLimits> for Limits {
    fn from(limits: ConnectionLimits) -> Self {
        Self { total: limits.total, per_address: limits.per_address, head: Duration::from_secs(limits.head_seconds) }
    }
}

/// Answers requests of the listener until `stop`, then closes unused connections and waits for requests that run.
///
/// # Errors
/// The listener cannot be used any longer.
pub(crate) async fn accept(
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    tls: Option<Arc<ServerConfig>>,
    metrics: &Metrics,
    stop: CancellationToken,
) -> io::Result<()> {
    let (tls, limits) = (tls.map(TlsAcceptor::from), Limits::from(limits));
    let refused = Counter::<u64>::default();
    metrics.register(|registry| registry.register("connections_refused", "Connections closed because of a limit", refused.clone()));
    let http = http1(limits);
    drover_listener::accept(listener, limits, &refused, stop.cancelled(), |stream, from| {
        let (http, tls, stop) = (http.clone(), tls.clone(), stop.clone());
        let from = from.expect("a client over TCP has an address");
        let router = AddExtension::new(router.clone(), ConnectInfo(from));
        async move {
            let ended = match tls {
                None => answer(&http, stream, router, stop).await,
                Some(tls) => {
                    let handshake = tokio::time::timeout(limits.head, tls.accept(stream));
                    match stop.run_until_cancelled(handshake).await {
                        Some(Ok(Ok(stream))) => {
                            let peer = stream.get_ref().1.peer_certificates().and_then(|chain| service_of(chain.first()?));
                            answer(&http, stream, AddExtension::new(router, peer), stop).await
                        }
                        Some(Ok(Err(error))) => {
                            tracing::debug!(%error, %from, "a client and this service did not agree on TLS");
                            Ok(())
                        }
                        // It took too long, or the service ends.
                        Some(Err(_)) | None => Ok(()),
                    }
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, %from, "a connection broke off");
            }
        }
    })
    .await
}
