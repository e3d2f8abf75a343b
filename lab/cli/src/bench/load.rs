//! Clients that send the next request as soon as the last one is answered, all on one thread and with little work of their own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// Name of the thread, by which its CPU time is found.
pub const THREAD: &str = "load";

/// Result of all clients together.
pub struct Done {
    /// Duration of each request that counts.
    pub took: Vec<Duration>,
    /// Requests per second.
    pub rate: f64,
}

impl Done {
    /// The rate is the number of requests over the time for which the clock counted.
    pub fn new(took: Vec<Duration>, clock: &Clock) -> Self {
        Self { rate: took.len() as f64 / clock.counted_for().as_secs_f64(), took }
    }
}

/// Runs one future per client, all on one thread named [`THREAD`]. Requests count for `time`, after a fifth of `time` that does not count.
///
/// # Errors
/// The first error of any client.
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
            Ok(Done::new(took, &clock))
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

/// Decides which requests count and when to end.
#[derive(Clone)]
pub struct Clock {
    began: Instant,
    ends: Instant,
    failed: Arc<AtomicBool>,
    /// End of the last request that counts, in nanoseconds since `began`; 0 before the first one.
    last: Arc<AtomicU64>,
}

impl Clock {
    /// Begins to count after a fifth of `time` and counts for `time`; if no request ends in that time, until one has.
    pub fn new(time: Duration) -> Self {
        let began = Instant::now() + time / 5;
        Self { began, ends: began + time, failed: Arc::default(), last: Arc::default() }
    }

    /// Whether to send another request: the time is not over or no request counts yet, and no other client failed.
    pub fn runs(&self) -> bool {
        (Instant::now() < self.ends || self.nothing_yet()) && !self.failed.load(Ordering::Relaxed)
    }

    /// Duration of a request that began at `began` and ended now, if it counts. One that ends after the time is over does not count,
    /// because it would raise the rate.
    pub fn counts(&self, began: Instant) -> Option<Duration> {
        let now = Instant::now();
        let counts = began >= self.began && (now < self.ends || self.nothing_yet());
        counts.then(|| {
            let since = u64::try_from((now - self.began).as_nanos()).unwrap_or(u64::MAX);
            self.last.store(since, Ordering::Relaxed);
            now - began
        })
    }

    fn nothing_yet(&self) -> bool {
        self.last.load(Ordering::Relaxed) == 0
    }

    fn counted_for(&self) -> Duration {
        (self.ends - self.began).max(Duration::from_nanos(self.last.load(Ordering::Relaxed)))
    }

    /// Repeats `one` until the time is over or another client failed; returns the durations that count.
    ///
    /// # Errors
    /// The first error of `one`.
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

/// How to speak TLS with a service.
#[derive(Clone)]
pub struct Secured {
    /// With the certificate that this side shows.
    pub config: Arc<ClientConfig>,
    /// Name of the service.
    pub service: &'static str,
}

/// One HTTP connection.
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    /// Connects to a server.
    ///
    /// # Errors
    /// No server listens at the address, or the two do not agree on TLS.
    pub async fn open(address: SocketAddr, secured: Option<Secured>) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        match secured {
            None => Self::over(stream).await,
            Some(Secured { config, service }) => {
                let name = ServerName::try_from(service)?;
                Self::over(TlsConnector::from(config).connect(name, stream).await?).await
            }
        }
    }

    async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + 'static) -> Result<Self> {
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::task::spawn_local(async move {
            // If the connection breaks, the next request fails.
            let _ = connection.await;
        });
        Ok(Self { sender })
    }

    /// Sends a request and reads the whole response.
    ///
    /// # Errors
    /// The connection breaks, or the response is not a success.
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<()> {
        self.sender.ready().await?;
        let answer = self.sender.send_request(request).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        ensure!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&body));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn clock(began: Instant, ends: Instant) -> Clock {
        Clock { began, ends, ..Clock::new(SECOND) }
    }

    #[test]
    fn clock_counts_the_first_request_even_after_the_time_is_over() {
        let now = Instant::now();
        let clock = clock(now - 2 * SECOND, now - SECOND);
        assert!(clock.runs(), "nothing counts yet");
        let took: Vec<_> = clock.counts(now - 2 * SECOND).into_iter().collect();
        assert_eq!((took.len(), clock.runs()), (1, false));
        assert!(clock.counts(now).is_none(), "the time is over");
        let rate = Done::new(took, &clock).rate;
        assert!(rate > 0.0 && rate <= 0.5, "{rate}");
    }

    #[test]
    fn clock_does_not_count_requests_that_began_early_or_end_late() {
        let now = Instant::now();
        let running = clock(now - SECOND, now + 3600 * SECOND);
        assert!(running.counts(now - 2 * SECOND).is_none() && running.counts(now).is_some() && running.runs());
        let over = Clock { ends: now, ..running };
        assert!(over.counts(now).is_none() && !over.runs());
    }
}
