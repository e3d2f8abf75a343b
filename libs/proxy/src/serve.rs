//! The listener of a proxy: HTTP/1.1 and h2c on one port, and a way to stop without failing a request.
//!
//! Stopping has two steps. [`ListenerStage::Leaving`]: serves all requests, but asks clients to go elsewhere (`Connection: close` on the next answer,
//! GOAWAY); idle connections stay open, since the client may be writing a request. [`ListenerStage::Closing`]: no request came for a while, so idle
//! connections are closed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, Response, Version, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio_util::task::TaskTracker;

use crate::body::AnswerBody;

/// Wait after a failed accept (for example, when no file descriptor is left).
const BREATH: Duration = Duration::from_millis(100);
/// Longer than clients keep idle connections (Go: 90 s), so that none is closed just when it is used again.
const IDLE: Duration = Duration::from_secs(120);

/// Stage of a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListenerStage {
    /// It serves.
    #[default]
    Serving,
    /// It serves, and asks clients to go elsewhere.
    Leaving,
    /// It closes idle connections, accepts no new ones, and lets the rest end.
    Closing,
}

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    /// The answer to a request of `client`.
    fn handle(self: Arc<Self>, request: Request<Incoming>, client: SocketAddr) -> impl Future<Output = Response<AnswerBody>> + Send;
}

/// Serves until [`ListenerStage::Closing`], and then until the last connection has ended.
pub async fn serve<H: Handler>(listener: TcpListener, handler: Arc<H>, stage: watch::Receiver<ListenerStage>) {
    let connections = TaskTracker::new();
    let mut closing = stage.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = closing.wait_for(|stage| *stage == ListenerStage::Closing) => break,
        };
        match accepted {
            Ok((stream, client)) => {
                let _ = stream.set_nodelay(true); // without it requests are slower, but not wrong
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

/// Serves one connection until it ends, or is ended as `stage` says.
pub async fn connection<H: Handler, S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    client: SocketAddr,
    handler: Arc<H>,
    stage: watch::Receiver<ListenerStage>,
) {
    let second = Arc::new(Notify::new());
    let service = service_fn(|request: Request<Incoming>| {
        let (handler, stage) = (handler.clone(), stage.clone());
        let version = request.version();
        if version == Version::HTTP_2 {
            second.notify_one();
        }
        async move {
            let mut response = handler.handle(request, client).await;
            if version < Version::HTTP_2 && *stage.borrow() != ListenerStage::Serving && !response.headers().contains_key(header::UPGRADE) {
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
            // An error is caused by the client: it went away or did not speak HTTP.
            _ = serving.as_mut() => return,
            () = goes.as_mut(), if !asked => {
                asked = true;
                serving.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Completes when this connection is to be shut down: HTTP/2 when leaving begins (GOAWAY loses no request), HTTP/1 at the close.
async fn leaves(mut stage: watch::Receiver<ListenerStage>, second: &Notify) {
    let mut closing = stage.clone();
    let told = async {
        let _ = stage.wait_for(|stage| *stage >= ListenerStage::Leaving).await;
        second.notified().await;
    };
    tokio::select! {
        () = told => {}
        _ = closing.wait_for(|stage| *stage == ListenerStage::Closing) => {}
    }
}
