//! A listener of a proxy: HTTP/1.1 and h2c on one port, and a way to leave without a failed request.
//!
//! Leaving has two steps. [`Stage::Leaving`]: still serves all, but asks clients to go (`Connection: close` on the next answer, GOAWAY). Idle
//! connections are not closed under a client that may be writing. [`Stage::Closing`]: nobody came for a while; what is idle is closed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, Response, Version, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio_util::task::TaskTracker;

use super::body::AnswerBody;

/// Wait after a failed accept (no file descriptor is left).
const BREATH: Duration = Duration::from_millis(100);
/// Longer than clients keep idle connections (Go: 90 s), so that none is closed as it is used again.
const IDLE: Duration = Duration::from_secs(120);

/// How a listener stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It serves.
    #[default]
    Serving,
    /// It serves, and asks clients to go elsewhere.
    Leaving,
    /// It closes what is idle, takes nobody new, and lets the rest end.
    Closing,
}

/// What answers.
pub trait Handler: Send + Sync + 'static {
    /// The answer to a request of `client`.
    fn handle(self: Arc<Self>, request: Request<Incoming>, client: SocketAddr) -> impl Future<Output = Response<AnswerBody>> + Send;
}

/// Serves until [`Stage::Closing`] and then until the last connection ended.
pub async fn serve<H: Handler>(listener: TcpListener, handler: Arc<H>, stage: watch::Receiver<Stage>) {
    let connections = TaskTracker::new();
    let mut closing = stage.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = closing.wait_for(|stage| *stage == Stage::Closing) => break,
        };
        match accepted {
            Ok((stream, client)) => {
                connections.spawn(connection(stream, client, handler.clone(), stage.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(BREATH).await;
            }
        }
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn connection<H: Handler>(stream: TcpStream, client: SocketAddr, handler: Arc<H>, stage: watch::Receiver<Stage>) {
    let _ = stream.set_nodelay(true); // slower without, not wrong
    let second = Arc::new(Notify::new());
    let service = service_fn(|request: Request<Incoming>| {
        let (handler, stage) = (handler.clone(), stage.clone());
        let version = request.version();
        if version == Version::HTTP_2 {
            second.notify_one();
        }
        async move {
            let mut response = handler.handle(request, client).await;
            if version < Version::HTTP_2 && *stage.borrow() != Stage::Serving && !response.headers().contains_key(header::UPGRADE) {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE);
    builder.http2().timer(TokioTimer::new());
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(serving);
    let goes = leaves(stage.clone(), &second);
    tokio::pin!(goes);
    let mut asked = false;
    loop {
        tokio::select! {
            // An error is the client's: it went away or spoke no HTTP.
            _ = serving.as_mut() => return,
            () = goes.as_mut(), if !asked => {
                asked = true;
                serving.as_mut().graceful_shutdown();
            }
        }
    }
}

/// When this connection is to be wound up: HTTP/2 as soon as leaving begins (it can be told so without loss), HTTP/1 at the close.
async fn leaves(mut stage: watch::Receiver<Stage>, second: &Notify) {
    let mut closing = stage.clone();
    let told = async {
        let _ = stage.wait_for(|stage| *stage >= Stage::Leaving).await;
        second.notified().await;
    };
    tokio::select! {
        () = told => {}
        _ = closing.wait_for(|stage| *stage == Stage::Closing) => {}
    }
}
