//! Clients that ask as fast as they are answered, on a thread of their own with as little work as can be.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// The thread's name, by which its CPU is told apart.
pub const THREAD: &str = "load";

/// What clients did together.
pub struct Done {
    /// How long each took.
    pub took: Vec<Duration>,
    /// How many a second.
    pub rate: f64,
}

/// Runs one future per client, all on one thread named [`THREAD`]; each does `one` over and over, for a while that is not
/// counted (a fifth of `time`) and then for `time`.
///
/// # Errors
/// The first of any client.
pub async fn run<C, Fut>(clients: usize, time: Duration, client: impl Fn(usize, Clock) -> Fut + Send + 'static) -> Result<Done>
where
    Fut: Future<Output = Result<C>> + 'static,
    C: IntoIterator<Item = Duration> + 'static,
{
    let (send, done) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name(THREAD.to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let _ = send.send(runtime.map_err(anyhow::Error::from).and_then(|runtime| {
            let local = tokio::task::LocalSet::new();
            let clock = Clock::new(time);
            let all: Vec<_> = (0..clients).map(|n| local.spawn_local(stop_others(client(n, clock.clone()), clock.clone()))).collect();
            let mut took = Vec::new();
            for one in local.block_on(&runtime, futures::future::join_all(all)) {
                took.extend(one??);
            }
            Ok(Done { rate: took.len() as f64 / time.as_secs_f64(), took })
        }));
    })?;
    done.await.context("the load was not made")?
}

async fn stop_others<T>(client: impl Future<Output = Result<T>>, clock: Clock) -> Result<T> {
    let done = client.await;
    if done.is_err() {
        clock.failed.store(true, Ordering::Relaxed);
    }
    done
}

/// When to count, and when to end.
#[derive(Clone)]
pub struct Clock {
    began: Instant,
    ends: Instant,
    failed: Arc<AtomicBool>,
}

impl Clock {
    /// Begins to count after a fifth of `time`, and then counts for `time`.
    pub fn new(time: Duration) -> Self {
        let began = Instant::now() + time / 5;
        Self { began, ends: began + time, failed: Arc::default() }
    }

    /// Whether to go on: the time is not over, and no other client failed.
    pub fn runs(&self) -> bool {
        Instant::now() < self.ends && !self.failed.load(Ordering::Relaxed)
    }

    /// How long something took that began then and ended now, if it counts. What ends after the end would make the rate look
    /// better than it was.
    pub fn counts(&self, began: Instant) -> Option<Duration> {
        let now = Instant::now();
        (began >= self.began && now < self.ends).then(|| now - began)
    }

    /// Does `one` until the time is over, or another client failed; what counts of it.
    ///
    /// # Errors
    /// That of `one`.
    pub async fn repeat(&self, mut one: impl AsyncFnMut() -> Result<()>) -> Result<Vec<Duration>> {
        let mut took = Vec::new();
        while self.runs() {
            let began = Instant::now();
            one().await?;
            took.extend(self.counts(began));
        }
        Ok(took)
    }
}

/// One connection.
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    /// Opens it.
    ///
    /// # Errors
    /// Nobody listens there.
    pub async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::task::spawn_local(async move {
            // Its end shows in the next request.
            let _ = connection.await;
        });
        Ok(Self { sender })
    }

    /// Sends a request and reads the answer to its end, which must be a success.
    ///
    /// # Errors
    /// Any other answer.
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<()> {
        self.sender.ready().await?;
        let answer = self.sender.send_request(request).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        ensure!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&body));
        Ok(())
    }
}
