//! Load on a route, as users make it: requests at a constant rate on kept and on new connections, slow answers, WebSocket sessions, gRPC
//! streams and uploads.
//!
//! The load is open: a request begins when it is due, however long others take, and its time counts from then. A request counts as failed if
//! it got no complete answer, or not the expected one. What the pods answer is described in libs/kubesim/src/standin.rs.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use futures::StreamExt;
use reqwest::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

const TIMEOUT: Duration = Duration::from_secs(30);
/// Size of an upload.
const UPLOAD: usize = 20 << 20;
/// Messages of a WebSocket session and of a gRPC stream, and the time between two of them.
const MESSAGES: usize = 5;
const BETWEEN: Duration = Duration::from_millis(200);
/// How many failures are kept in words.
const KEPT: usize = 10;

/// What is sent, and where.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the data path listens.
    pub address: SocketAddr,
    /// Host name of the route.
    pub host: String,
    /// Requests per second.
    pub rate: f64,
    /// Every so many requests one is answered after two seconds; 0: none.
    pub slow_every: u64,
    /// Also one WebSocket session, one gRPC stream and one upload after the other.
    pub streams: bool,
}

/// The load while it lasts.
pub struct Load {
    stop: CancellationToken,
    results: Arc<Mutex<Outcome>>,
    running: JoinSet<()>,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub served: u64,
    pub failed: u64,
    /// The first failures, in words.
    pub failures: Vec<String>,
    /// When a request was due (since the load began) and how long its answer took, without those that are slow on purpose.
    pub latencies: Vec<(Duration, Duration)>,
    /// When requests failed, since the load began.
    pub failed_at: Vec<Duration>,
}

impl Outcome {
    /// The latency that this share of the answers stayed below, of requests that were due in `from..to`.
    pub fn quantile(&self, share: f64, from: Duration, to: Duration) -> Option<Duration> {
        let mut within: Vec<Duration> = self.latencies.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, took)| *took).collect();
        within.sort();
        let at = (share * within.len() as f64).ceil() as usize;
        within.get(at.saturating_sub(1)).copied()
    }
}

impl Load {
    /// Begins to send.
    ///
    /// # Errors
    /// There can be no client.
    pub fn start(plan: Plan) -> Result<Self> {
        let client = || Client::builder().no_proxy().timeout(TIMEOUT).resolve(&plan.host, plan.address);
        let (kept, new) = (client().build()?, client().pool_max_idle_per_host(0).build()?);
        let second = client().http2_prior_knowledge().build()?;
        let (stop, results, began) = (CancellationToken::new(), Arc::<Mutex<Outcome>>::default(), Instant::now());
        let mut running = JoinSet::new();
        let url = format!("http://{}:{}", plan.host, plan.address.port());
        let recorder = Recorder { results: results.clone(), began };
        running.spawn(requests(plan.clone(), url.clone(), [kept.clone(), new], recorder.clone(), stop.clone()));
        if plan.streams {
            let (address, host) = (plan.address, plan.host.clone());
            running.spawn(one_after_the_other("websocket", recorder.clone(), stop.clone(), move || websocket(address, host.clone())));
            let (client, to) = (second, format!("{url}/shop.Cart/Watch"));
            running.spawn(one_after_the_other("grpc", recorder.clone(), stop.clone(), move || grpc(client.clone(), to.clone())));
            let (client, to) = (kept, format!("{url}/upload"));
            running.spawn(one_after_the_other("upload", recorder, stop.clone(), move || upload(client.clone(), to.clone())));
        }
        Ok(Self { stop, results, running })
    }

    /// What came of it so far.
    pub fn so_far(&self) -> Outcome {
        self.results.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begins nothing more, and waits for what is under way.
    pub async fn end(mut self) -> Outcome {
        self.stop.cancel();
        while self.running.join_next().await.is_some() {}
        self.so_far()
    }
}

#[derive(Clone)]
struct Recorder {
    results: Arc<Mutex<Outcome>>,
    began: Instant,
}

impl Recorder {
    fn record(&self, what: &str, due: Instant, slow: bool, result: Result<()>) {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(()) => {
                results.served += 1;
                if !slow {
                    results.latencies.push((due - self.began, due.elapsed()));
                }
            }
            Err(error) => {
                results.failed += 1;
                results.failed_at.push(due - self.began);
                if results.failures.len() < KEPT {
                    results.failures.push(format!("{what} at {:.1} s: {error:#}", (due - self.began).as_secs_f64()));
                }
            }
        }
    }
}

async fn requests(plan: Plan, url: String, clients: [Client; 2], recorder: Recorder, stop: CancellationToken) {
    let mut ticks = interval(Duration::from_secs_f64(1.0 / plan.rate));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let run = uuid::Uuid::new_v4();
    let mut under_way = JoinSet::new();
    for number in 0.. {
        let due = tokio::select! {
            due = ticks.tick() => due,
            () = stop.cancelled() => break,
        };
        while under_way.try_join_next().is_some() {}
        let slow = plan.slow_every > 0 && number % plan.slow_every == 0;
        let client = clients[usize::from(number % 2 == 0)].clone();
        let url = format!("{url}/{number}{}", if slow { "?ms=2000" } else { "" });
        let (recorder, id, post) = (recorder.clone(), format!("{run}-{number}"), number % 3 == 0);
        under_way.spawn(async move { recorder.record("request", due, slow, request(&client, &url, &id, post).await) });
    }
    while under_way.join_next().await.is_some() {}
}

async fn request(client: &Client, url: &str, id: &str, post: bool) -> Result<()> {
    let request = if post { client.post(url).body(id.to_owned()) } else { client.get(url) };
    let answer = request.header("x-id", id).send().await?;
    let (status, times) = (answer.status(), answer.headers().get("x-times").cloned());
    let text = answer.text().await?;
    ensure!(status.is_success(), "{status} {text}");
    ensure!(!post || times.is_none_or(|times| times == "1"), "a POST reached the pods more than once");
    Ok(())
}

async fn one_after_the_other<F: Future<Output = Result<()>>>(
    what: &str,
    recorder: Recorder,
    stop: CancellationToken,
    session: impl Fn() -> F,
) {
    while !stop.is_cancelled() {
        let due = Instant::now();
        let result = match tokio::time::timeout(TIMEOUT, session()).await {
            Ok(result) => result,
            Err(_) => Err(anyhow::anyhow!("did not end within {} s", TIMEOUT.as_secs())),
        };
        recorder.record(what, due, true, result);
        sleep(BETWEEN).await;
    }
}

/// A session: messages, each of which comes back.
async fn websocket(address: SocketAddr, host: String) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let head = format!("GET /chat HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.context("the answer to the upgrade")?);
    }
    ensure!(answer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
    for _ in 0..MESSAGES {
        stream.write_all(b"hello").await?;
        let mut back = [0; 5];
        stream.read_exact(&mut back).await.context("a message back")?;
        ensure!(&back == b"hello", "another message came back");
        sleep(BETWEEN).await;
    }
    Ok(())
}

/// A stream: messages, all of which come back.
async fn grpc(client: Client, url: String) -> Result<()> {
    let messages = futures::stream::iter(0..MESSAGES).then(|_| async {
        sleep(BETWEEN).await;
        Ok::<_, std::io::Error>(Bytes::from_static(b"hello"))
    });
    let request = client.post(url).header("content-type", "application/grpc").body(reqwest::Body::wrap_stream(messages));
    let answer = request.send().await?;
    ensure!(answer.status().is_success(), "{}", answer.status());
    let back = answer.bytes().await?;
    ensure!(back.len() == 5 * MESSAGES, "{} of {} bytes came back", back.len(), 5 * MESSAGES);
    Ok(())
}

async fn upload(client: Client, url: String) -> Result<()> {
    let answer = client.put(url).body(vec![7; UPLOAD]).send().await?;
    let (status, text) = (answer.status(), answer.text().await?);
    if !status.is_success() || !text.trim_end().ends_with(&format!(" {UPLOAD}")) {
        bail!("{status} {text}");
    }
    sleep(Duration::from_secs(2)).await;
    Ok(())
}
