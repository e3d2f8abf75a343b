//! Connections of clients: how many there may be, and how long a request's head may take.
//!
//! Each connection costs memory and a file descriptor before a request has named anybody, so what follows here holds for everyone, with
//! and without a token. Bodies have the time limit of their request.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::response::Response;
use clap::Args;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use prometheus_client::metrics::counter::Counter;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;
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
    let tls = tls.map(TlsAcceptor::from);
    let refused = Counter::<u64>::default();
    metrics.register(|registry| registry.register("connections_refused", "Connections closed because of a limit", refused.clone()));
    // Not hyper-util's builder: it waits for the first byte without a time limit.
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(limits.head_seconds));
    let (open, running) = (OpenConnections::default(), TaskTracker::new());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(error),
            Err(error) => {
                if !concerns_one_connection(&error) {
                    // No file descriptors are left, for example. Connections that end give some back.
                    tracing::error!(%error, "cannot accept connections");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                continue;
            }
        };
        let Some(place) = open.take(from.ip(), limits) else {
            if refused.inc() == 0 {
                tracing::warn!(%from, "a connection was closed because of a limit of connections; further ones are only counted (drover_connections_refused_total)");
            }
            refuse(&stream);
            continue;
        };
        // Long polls and answers of one small packet must not wait for more.
        let _ = stream.set_nodelay(true);
        let (http, router, tls, stop) = (http.clone(), router.clone(), tls.clone(), stop.clone());
        // Ends with its client or after `stop`; a handler's panic has been answered before it gets here.
        running.spawn(async move {
            let ended = match tls {
                None => serve(&http, stream, AddExtension::new(router, ConnectInfo(from)), stop).await,
                Some(tls) => {
                    let handshake = tokio::time::timeout(Duration::from_secs(limits.head_seconds), tls.accept(stream));
                    match stop.run_until_cancelled(handshake).await {
                        Some(Ok(Ok(stream))) => {
                            let peer = stream.get_ref().1.peer_certificates().and_then(|chain| service_of(chain.first()?));
                            let router = AddExtension::new(AddExtension::new(router, ConnectInfo(from)), peer);
                            serve(&http, stream, router, stop).await
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
            drop(place);
        });
    }
    drop(listener);
    running.close();
    running.wait().await;
    Ok(())
}

/// Answers the requests of a connection until its client ends it, or, after `stop`, until the request that runs is answered.
async fn serve<S, T>(http: &http1::Builder, stream: S, service: T, stop: CancellationToken) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: Service<Request<Incoming>, Response = Response, Error = Infallible> + Clone + Send + 'static,
    T::Future: Send,
{
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).with_upgrades());
    tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }
}

fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
}

/// Answers without reading, as far as the socket takes it at once.
fn refuse(stream: &TcpStream) {
    const BODY: &str = r#"{"type":"/docs/errors/busy_server","title":"The service has too much to do","status":503,"detail":"Too many connections are open; close some, or try again later","code":"busy_server"}"#;
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        BODY.len()
    );
    let _ = stream.try_write(format!("{head}{BODY}").as_bytes());
}

/// The number of open connections, of each address and in all.
#[derive(Clone, Default)]
struct OpenConnections(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// An open connection. Dropping it lets another one begin.
struct OpenConnection {
    all: OpenConnections,
    of: IpAddr,
}

impl OpenConnections {
    fn take(&self, from: IpAddr, limits: ConnectionLimits) -> Option<OpenConnection> {
        let of = network(from);
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.values().sum::<usize>() >= limits.total || counts.get(&of).is_some_and(|count| *count >= limits.per_address) {
            return None;
        }
        *counts.entry(of).or_default() += 1;
        Some(OpenConnection { all: self.clone(), of })
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut counts = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.of) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.of);
            }
        }
    }
}

/// Who counts as one client: an IPv4 address, or the /64 network that a customer of a provider has.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        address => address,
    }
}
