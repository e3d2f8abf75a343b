//! Connections of clients: how many there may be, and how long a request's head may take.
//!
//! Each connection costs memory and a file descriptor before a request has named anybody, so what follows here holds for everyone, with
//! and without a token. Bodies have the time limit of their request. What happens on a connection is the caller's business:
//! [`serve`] is for those who need neither TLS nor an orderly end.

mod open;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

pub use open::{Full, OpenConnection, OpenConnections, Place, Places};

/// Limits of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections that may be open at the same time; more are answered 503 and closed.
    pub total: usize,
    /// Connections that one address may have open (of IPv6: one /64 network).
    pub per_address: usize,
    /// Time in which a client must have sent the head of its next request.
    pub head: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { total: 4096, per_address: usize::MAX, head: Duration::from_secs(30) }
    }
}

/// A socket that accepts connections.
pub trait Accept: Send + 'static {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection, and where it comes from, if that is an address.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, Option<SocketAddr>)>> + Send;

    /// Sends as much as the connection takes at once.
    fn send_at_once(stream: &Self::Stream, bytes: &[u8]);
}

impl Accept for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, Option<SocketAddr>)> {
        let (stream, from) = Self::accept(self).await?;
        // Long polls and answers of one small packet must not wait for more.
        let _ = stream.set_nodelay(true);
        Ok((stream, Some(from)))
    }

    fn send_at_once(stream: &TcpStream, bytes: &[u8]) {
        let _ = stream.try_write(bytes);
    }
}

impl Accept for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, Option<SocketAddr>)> {
        Ok((Self::accept(self).await?.0, None))
    }

    fn send_at_once(stream: &UnixStream, bytes: &[u8]) {
        let _ = stream.try_write(bytes);
    }
}

/// Gives each connection to `connection` until `stop`, and then waits for those that are open.
///
/// # Errors
/// The listener cannot be used any longer.
pub async fn accept<L: Accept, F: Future<Output = ()> + Send + 'static>(
    listener: L,
    limits: Limits,
    refused: &Counter,
    stop: impl Future<Output = ()>,
    mut connection: impl FnMut(L::Stream, Option<SocketAddr>) -> F,
) -> io::Result<()> {
    let (open, running) = (OpenConnections::default(), TaskTracker::new());
    let mut stop = pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.as_mut() => break,
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
        let Some(place) = open.take(from.map(|from| from.ip()), limits) else {
            if refused.inc() == 0 {
                tracing::warn!(?from, "a connection was closed because of a limit of connections; further ones are only counted");
            }
            refuse::<L>(&stream);
            continue;
        };
        let served = connection(stream, from);
        // Ends with its client or after `stop`; a handler's panic has been answered before it gets here.
        running.spawn(async move {
            served.await;
            drop(place);
        });
    }
    drop(listener);
    running.close();
    running.wait().await;
    Ok(())
}

/// Answers the requests of a listener until the future is dropped. For agents: without TLS, without an orderly end.
///
/// # Errors
/// The listener cannot be used any longer.
pub async fn serve<L, S, B>(listener: L, service: S, limits: Limits, refused: Counter) -> io::Result<()>
where
    L: Accept,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let http = http1(limits);
    accept(listener, limits, &refused, std::future::pending(), |stream, from| {
        let (http, service) = (http.clone(), service.clone());
        async move {
            if let Err(error) = answer(&http, stream, service, CancellationToken::new()).await {
                tracing::debug!(%error, ?from, "a connection broke off");
            }
        }
    })
    .await
}

/// HTTP/1.1 with the time limit of heads. Not hyper-util's builder: it waits for the first byte without a time limit.
pub fn http1(limits: Limits) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.head);
    http
}

/// Answers the requests of a connection until its client ends it, or, after `stop`, until the request that runs is answered.
///
/// # Errors
/// The client went away or did not speak HTTP.
pub async fn answer<S, T, B>(http: &http1::Builder, stream: S, service: T, stop: CancellationToken) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    T::Future: Send,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
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

/// Answers that there are too many connections, without reading, as far as the socket takes it at once.
pub fn refuse<L: Accept>(stream: &L::Stream) {
    const BODY: &str = r#"{"type":"/docs/errors/busy_server","title":"The service has too much to do","status":503,"detail":"Too many connections are open; close some, or try again later","code":"busy_server"}"#;
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        BODY.len()
    );
    L::send_at_once(stream, format!("{head}{BODY}").as_bytes());
}
