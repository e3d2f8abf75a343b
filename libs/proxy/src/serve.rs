//! The listener of a proxy: HTTP/1.1 and h2c on one port, and a way to stop without failing a request.
//!
//! Stopping has two steps. [`ListenerStage::Leaving`]: serves all requests, but asks clients to go elsewhere (`Connection: close` on the next answer,
//! GOAWAY); idle connections stay open, since the client may be writing a request. [`ListenerStage::Closing`]: no request came for a while, so idle
//! connections are closed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use drover_listener::{Limits, accept};
use http::{HeaderValue, Request, Response, Version, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};

use crate::body::AnswerBody;

/// Connections per port. No limit per address: a node may hide all clients behind its own.
const LIMITS: Limits = Limits { total: 16_384, per_address: usize::MAX, head: IDLE };
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
    let mut closing = stage.clone();
    let closed = async {
        let _ = closing.wait_for(|stage| *stage == ListenerStage::Closing).await;
    };
    let refused = Counter::default();
    let served = accept(listener, LIMITS, &refused, closed, |stream, client| {
        connection(stream, client.expect("a client over TCP has an address"), handler.clone(), stage.clone())
    });
    if let Err(error) = served.await {
        tracing::error!(%error, "the listener cannot be used any longer");
    }
}

/// Serves one connection until it ends, or is ended as `stage` says. One on which no request begins in time is closed: the time limit of
/// hyper-util's builder begins only when it knows the version of HTTP.
pub async fn connection<H: Handler, S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    client: SocketAddr,
    handler: Arc<H>,
    stage: watch::Receiver<ListenerStage>,
) {
    let (http2, began) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let service = service_fn(|request: Request<Incoming>| {
        began.notify_one();
        let (handler, stage) = (handler.clone(), stage.clone());
        let version = request.version();
        if version == Version::HTTP_2 {
            http2.notify_one();
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
    let goes = leaves(stage.clone(), &http2);
    tokio::pin!(goes);
    let begins = tokio::time::timeout(IDLE, began.notified());
    tokio::pin!(begins);
    let (mut asked, mut used) = (false, false);
    loop {
        tokio::select! {
            // An error is caused by the client: it went away or did not speak HTTP.
            _ = serving.as_mut() => return,
            in_time = begins.as_mut(), if !used => match in_time {
                Ok(()) => used = true,
                Err(_) => return,
            },
            () = goes.as_mut(), if !asked => {
                asked = true;
                serving.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Completes when this connection is to be shut down: one of HTTP/2 (`http2` is told at its requests) when leaving begins, because GOAWAY
/// loses no request; one of HTTP/1 at the close.
async fn leaves(mut stage: watch::Receiver<ListenerStage>, http2: &Notify) {
    let mut closing = stage.clone();
    let told = async {
        let _ = stage.wait_for(|stage| *stage >= ListenerStage::Leaving).await;
        http2.notified().await;
    };
    tokio::select! {
        () = told => {}
        _ = closing.wait_for(|stage| *stage == ListenerStage::Closing) => {}
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::{Instant, timeout};

    use super::*;

    struct Greeter;

    impl Handler for Greeter {
        async fn handle(self: Arc<Self>, _: Request<Incoming>, _: SocketAddr) -> Response<AnswerBody> {
            Response::new(AnswerBody::from(Full::from("served")))
        }
    }

    /// A client of a connection, which is served while the sender exists.
    fn client() -> (tokio::io::DuplexStream, watch::Sender<ListenerStage>) {
        let (client, server) = tokio::io::duplex(1024);
        let (serving, stage) = watch::channel(ListenerStage::Serving);
        tokio::spawn(connection(server, SocketAddr::from(([127, 0, 0, 1], 1)), Arc::new(Greeter), stage));
        (client, serving)
    }

    #[tokio::test(start_paused = true)]
    async fn connection_without_a_request_is_closed() {
        // Nothing; half a preface of HTTP/2, a whole one without a request; half a head.
        for sent in ["", "PRI * HT", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET / HTTP/1.1\r\nhost:"] {
            let (mut client, _serving) = client();
            let began = Instant::now();
            client.write_all(sent.as_bytes()).await.unwrap();
            let closed = timeout(IDLE * 2, client.read_to_end(&mut Vec::new())).await;
            assert!(closed.is_ok(), "{sent:?} stays open");
            assert!(began.elapsed() >= IDLE, "{sent:?} is closed early");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn connection_that_is_used_again_stays_open() {
        let (mut client, _serving) = client();
        for _ in 0..4 {
            client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with(b"served") {
                let read = client.read_buf(&mut answer).await.unwrap();
                assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&answer));
            }
            tokio::time::sleep(IDLE * 2 / 3).await;
        }
    }
}
