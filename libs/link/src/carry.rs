//! Streams over the connection of an agent: the hub asks for them by HTTP/2 `CONNECT`, the agent joins each with a connection to its API
//! server.
//!
//! Invariants: a stream that nobody reads stops no other one, because the window of the connection is as large as those of all streams; a
//! connection that does not answer for `PING` and `PONG` is broken, and all its streams end at once.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self as client, SendRequest};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http2 as server;
use hyper::service::service_fn;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::wire::API_SERVER;

/// Time between two questions whether the other end is there.
const PING: Duration = Duration::from_secs(5);
/// How long the answer may take.
const PONG: Duration = Duration::from_secs(5);
/// How many streams a connection has at most at the same time.
const STREAMS: u32 = 256;
/// How many bytes of a stream may be under way.
const WINDOW: u32 = 256 << 10;
/// How long the agent may take to connect to its API server.
const OPEN: Duration = Duration::from_secs(5);
/// The most that is read of why a stream was refused.
const REASON: usize = 1 << 10;

/// A connection to the API server, for the hub.
pub type Stream = TokioIo<Upgraded>;

/// The hub's end of a link; cheap to clone.
#[derive(Clone)]
pub struct Link {
    streams: SendRequest<Empty<Bytes>>,
    cut: CancellationToken,
    ended: CancellationToken,
}

impl Link {
    /// Takes over a connection on which the agent answers from now on.
    ///
    /// # Errors
    /// The connection is broken.
    pub async fn start<C: Read + Write + Unpin + Send + 'static>(connection: C) -> io::Result<Self> {
        let (cut, ended) = (CancellationToken::new(), CancellationToken::new());
        let connection = Cuttable { inner: connection, cut: Box::pin(cut.clone().cancelled_owned()) };
        let (streams, running) = client::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW * STREAMS)
            .handshake(connection)
            .await
            .map_err(io::Error::other)?;
        let guard = ended.clone().drop_guard();
        // Ends with the connection.
        tokio::spawn(async move {
            let _guard = guard;
            if let Err(error) = running.await {
                tracing::debug!(%error, "a link broke off");
            }
        });
        Ok(Self { streams, cut, ended })
    }

    /// A new connection to the API server.
    ///
    /// # Errors
    /// The link is broken, or the agent cannot reach the API server.
    pub async fn open(&self) -> io::Result<Stream> {
        self.connect_to(API_SERVER).await
    }

    /// As [`Link::open`], to a destination that an agent refuses unless it is [`API_SERVER`].
    ///
    /// # Errors
    /// The link is broken, or the agent refuses.
    async fn connect_to(&self, destination: &str) -> io::Result<Stream> {
        let request = Request::connect(destination).body(Empty::new()).map_err(io::Error::other)?;
        let mut streams = self.streams.clone();
        let opened = async {
            streams.ready().await.map_err(io::Error::other)?;
            let answer = streams.send_request(request).await.map_err(io::Error::other)?;
            let status = answer.status();
            if status == StatusCode::OK {
                return Ok(TokioIo::new(hyper::upgrade::on(answer).await.map_err(io::Error::other)?));
            }
            let reason = Limited::new(answer.into_body(), REASON).collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            Err(io::Error::new(
                io::ErrorKind::ConnectionRefused,
                format!("the agent answers {status}: {}", String::from_utf8_lossy(&reason)),
            ))
        };
        // Longer than the agent waits, so that its own reason arrives.
        match tokio::time::timeout(OPEN + Duration::from_secs(1), opened).await {
            Ok(opened) => opened,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the agent does not answer in time")),
        }
    }

    /// Breaks the connection and all its streams.
    pub fn cut(&self) {
        self.cut.cancel();
    }

    /// Whether the connection has ended.
    pub fn is_over(&self) -> bool {
        self.ended.is_cancelled() || self.cut.is_cancelled() || self.streams.is_closed()
    }

    /// Waits until the connection has ended.
    pub async fn over(&self) {
        self.ended.cancelled().await;
    }
}

/// A connection that breaks when it is told to. Hyper itself would let streams run to their end.
struct Cuttable<C> {
    inner: C,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<C: Read + Unpin> Read for Cuttable<C> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        if self.cut.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<C: Write + Unpin> Write for Cuttable<C> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// The agent's end: answers until the connection ends. `api_server` is its own setting, `HOST:PORT`.
///
/// # Errors
/// The connection broke.
pub async fn serve<C: Read + Write + Unpin + Send + 'static>(connection: C, api_server: &str) -> hyper::Result<()> {
    let answered = service_fn(|request| answer(request, api_server.to_owned()));
    server::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PONG)
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW * STREAMS)
        .serve_connection(connection, answered)
        .await
}

async fn answer(mut request: Request<Incoming>, api_server: String) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
    let wanted = request.uri().authority().map(http::uri::Authority::as_str);
    if request.method() != Method::CONNECT || wanted != Some(API_SERVER) {
        return Ok(refused(StatusCode::FORBIDDEN, "this agent connects to its own API server and to nothing else".into()));
    }
    let connection = match tokio::time::timeout(OPEN, TcpStream::connect(&api_server)).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return Ok(refused(StatusCode::BAD_GATEWAY, format!("its API server cannot be reached: {error}"))),
        Err(_) => return Ok(refused(StatusCode::BAD_GATEWAY, "its API server does not accept connections".into())),
    };
    // Requests of one small packet must not wait for more.
    let _ = connection.set_nodelay(true);
    // Ends with either side: with the hub's when the link breaks.
    tokio::spawn(join(hyper::upgrade::on(&mut request), connection));
    Ok(Response::new(Full::default()))
}

async fn join(stream: OnUpgrade, mut connection: TcpStream) {
    if let Ok(stream) = stream.await {
        // There is nobody to whom an error could be reported.
        let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(stream), &mut connection).await;
    }
}

fn refused(status: StatusCode, reason: String) -> Response<Full<Bytes>> {
    let mut refused = Response::new(Full::from(reason));
    *refused.status_mut() = status;
    refused
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// An API server that returns what it gets, the number of its connections, and a link to it.
    async fn linked() -> (Link, Arc<AtomicUsize>, tokio::task::JoinHandle<hyper::Result<()>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, accepted) = (listener.local_addr().unwrap().to_string(), Arc::new(AtomicUsize::new(0)));
        let count = accepted.clone();
        tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let (mut read, mut write) = connection.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        let (near, far) = tokio::io::duplex(64 << 10);
        let agent = tokio::spawn(async move { serve(TokioIo::new(far), &address).await });
        (Link::start(TokioIo::new(near)).await.unwrap(), accepted, agent)
    }

    #[tokio::test]
    async fn streams_reach_the_api_server_and_end_with_either_side() {
        let (link, accepted, _agent) = linked().await;
        let (mut one, mut two) = (link.open().await.unwrap(), link.open().await.unwrap());
        for stream in [&mut one, &mut two] {
            stream.write_all(b"hello").await.unwrap();
            let mut echo = [0; 5];
            stream.read_exact(&mut echo).await.unwrap();
            assert_eq!(&echo, b"hello");
        }
        assert_eq!(accepted.load(Ordering::SeqCst), 2);
        one.shutdown().await.unwrap();
        assert_eq!(one.read(&mut [0; 1]).await.unwrap(), 0, "the end of one side reaches the other, and comes back");
        two.write_all(b"still").await.unwrap();
    }

    #[tokio::test]
    async fn hub_cannot_choose_where_the_agent_connects_to() {
        let (link, accepted, _agent) = linked().await;
        for other in ["169.254.169.254:80", "localhost:443", "api-server:22", "kubernetes.default.svc:443"] {
            let refused = link.connect_to(other).await.map(drop).unwrap_err();
            assert!(refused.to_string().contains("its own API server and to nothing else"), "{other}: {refused}");
        }
        assert_eq!(accepted.load(Ordering::SeqCst), 0, "not even the API server was connected to");
        link.open().await.unwrap();
    }

    #[tokio::test]
    async fn stream_that_nobody_reads_stops_no_other_one() {
        let (link, _, _agent) = linked().await;
        let blocked = stuck(link.open().await.unwrap());
        let mut other = link.open().await.unwrap();
        let (mut read, mut write) = tokio::io::split(&mut other);
        let sent = vec![7_u8; 1 << 20];
        let mut got = vec![0_u8; 1 << 20];
        let both = async { tokio::join!(write.write_all(&sent), read.read_exact(&mut got)) };
        let (sent, got) = tokio::time::timeout(Duration::from_secs(30), both).await.expect("the other stream goes on");
        sent.unwrap();
        got.unwrap();
        blocked.abort();
    }

    /// Sends as much as is accepted, and reads nothing of what comes back.
    fn stuck(mut stream: Stream) -> tokio::task::JoinHandle<()> {
        tokio::spawn(async move { while stream.write_all(&[1; 4096]).await.is_ok() {} })
    }

    #[tokio::test]
    async fn link_that_is_cut_ends_its_streams_at_both_ends() {
        let (link, _, agent) = linked().await;
        let mut stream = link.open().await.unwrap();
        link.cut();
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await.expect("the stream ends");
        assert!(ended.is_err() || rest.is_empty());
        tokio::time::timeout(Duration::from_secs(10), link.over()).await.expect("the link is over");
        assert!(link.is_over() && link.open().await.is_err());
        let _ = tokio::time::timeout(Duration::from_secs(10), agent).await.expect("the agent's end is over");
    }

    #[tokio::test]
    async fn agent_says_that_its_api_server_cannot_be_reached() {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
        let (near, far) = tokio::io::duplex(64 << 10);
        tokio::spawn(async move { serve(TokioIo::new(far), &closed).await });
        let link = Link::start(TokioIo::new(near)).await.unwrap();
        let error = link.open().await.map(drop).unwrap_err().to_string();
        assert!(error.contains("its API server cannot be reached"), "{error}");
    }
}
