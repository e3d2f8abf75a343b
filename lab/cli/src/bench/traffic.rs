//! The data path beside HAProxy and beside no proxy at all: requests per second, latency, and CPU per request.
//!
//! Clients and the pod that answers are tasks of this process; each proxy is a process of its own, so its CPU is measured apart. Rounds of the
//! three alternate. The data path starts from a table on disk; no other service of Drover runs.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use drover_api::scheduling::MemberKey;
use drover_api::traffic::{CopyEndpoints, PortEndpoints, RouteBackend, RouteProtocol, RouteTable};
use drover_report::{Check, Report, Table};
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::machine::usage;
use super::process::beside;
use super::{Size, cell, spread};

/// A proxy must answer within this time after its start.
const PATIENCE: Duration = Duration::from_secs(30);
/// Length of an answer.
const ANSWER: usize = 1024;

/// How much is measured.
#[derive(Clone, Copy)]
struct Sizes {
    rounds: usize,
    /// Connections that ask without a pause, and requests of all of them together.
    connections: usize,
    requests: usize,
    /// Requests per second of the measurement of latency, and their number.
    rate: u32,
    timed: usize,
}

/// What the rounds with one way to the pod gave.
#[derive(Default)]
struct Measured {
    /// Requests per second of each round.
    rates: Vec<f64>,
    /// CPU of the proxy in microseconds per request, of each round.
    cpu: Vec<f64>,
    /// At a constant rate.
    latencies: Vec<Duration>,
}

/// Measures requests per second, CPU and latency on each way to the pod. With HAProxy, checks the CPU per request against it.
///
/// # Errors
/// A part cannot be started, or a request fails.
pub async fn run(size: Size, report: &mut Report) -> Result<()> {
    let full = Sizes { rounds: 5, connections: 32, requests: 20_000, rate: 500, timed: 2_500 };
    let sizes = size.of(full, Sizes { rounds: 1, connections: 2, requests: 50, rate: 200, timed: 20 });
    let (pod, address) = pod().await?;
    let folder = tempfile::Builder::new().prefix("drover-bench-traffic").tempdir()?;
    let mut ways = vec![("no proxy", address, None), data_path(folder.path(), address)?];
    match haproxy(folder.path(), address)? {
        Some(way) => ways.push(way),
        None => drop(report.finding("traffic: HAProxy is not installed (apt-get install haproxy), so there is nothing to compare with")),
    }
    for (name, address, _) in &ways {
        answers(*address).await.with_context(|| format!("{name} does not answer"))?;
    }
    let mut measured: Vec<Measured> = ways.iter().map(|_| Measured::default()).collect();
    for _ in 0..sizes.rounds {
        for ((_, address, proxy), measured) in ways.iter().zip(&mut measured) {
            round(*address, proxy.as_ref(), sizes, measured).await?;
        }
    }
    drop(pod);
    let mut table = Table::new(
        "traffic",
        ["way to the pod", "requests/s", "CPU of the proxy per request [µs]", "p50 [ms]", "p99 [ms]", "added p50 [ms]", "added p99 [ms]"],
    );
    let median = |values: &[f64]| drover_report::percentile(values, 0.5);
    let [direct_50, _, direct_99, _] = spread(&measured[0].latencies);
    for ((name, ..), of) in ways.iter().zip(&measured) {
        let [p50, _, p99, _] = spread(&of.latencies);
        let figures = [median(&of.rates), median(&of.cpu), p50, p99, p50 - direct_50, p99 - direct_99].map(cell);
        table.row(std::iter::once((*name).to_owned()).chain(figures));
    }
    report.tables.push(table);
    if let [_, data_path, haproxy] = measured.as_slice() {
        let ratio = median(&data_path.cpu) / median(&haproxy.cpu);
        report.checks.push(Check::at_most("CPU of the data path per request, beside HAProxy", 1.3, ratio, "times"));
    }
    Ok(())
}

/// A proxy; killed when dropped.
struct Proxy(Child);

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

type Way = (&'static str, SocketAddr, Option<Proxy>);

/// The data path of this build with one route.
fn data_path(folder: &Path, pod: SocketAddr) -> Result<Way> {
    let (binding, member, port) = (Uuid::new_v4(), MemberKey::new("bench", "bench"), free()?.port());
    let route = RouteTable {
        id: Uuid::new_v4(),
        name: "bench/bench/bench".into(),
        protocol: RouteProtocol::Http,
        host: None,
        port,
        service: "web".into(),
        service_port: String::new(),
        probe: None,
        hold_seconds: 5,
        gateway: None,
        backends: vec![RouteBackend { binding, member: member.clone(), weight: 100 }],
    };
    let endpoints = PortEndpoints {
        namespace: "default".into(),
        service: "web".into(),
        port: String::new(),
        addresses: vec![pod],
        ..PortEndpoints::default()
    };
    let copy = CopyEndpoints { binding, member, ports: vec![endpoints] };
    let table = json!({"routes": {route.id.to_string(): route}, "endpoints": {binding.to_string(): copy}});
    std::fs::write(folder.join("table.json"), table.to_string())?;
    let mut command = Command::new(beside("drover-traffic")?);
    command.arg("--dir").arg(folder).args(["--listen", &free()?.to_string(), "--insecure-no-auth"]);
    command.env("DROVER_PEER_TOKEN", "bench").env("RUST_LOG", "error");
    Ok(("drover-traffic", SocketAddr::from(([127, 0, 0, 1], port)), Some(start(command)?)))
}

/// HAProxy with one server, kept connections and as many threads as the data path has; none if it is not installed.
fn haproxy(folder: &Path, pod: SocketAddr) -> Result<Option<Way>> {
    let at = free()?;
    let threads = std::thread::available_parallelism()?;
    let text = format!(
        "global\n  nbthread {threads}\ndefaults\n  mode http\n  timeout connect 2s\n  timeout client 60s\n  timeout server 60s\n  http-reuse always\n\
         listen bench\n  bind {at}\n  option forwardfor\n  server pod {pod}\n"
    );
    let config = folder.join("haproxy.cfg");
    std::fs::write(&config, text)?;
    let path = std::env::var("PATH").unwrap_or_default();
    let Some(program) = path.split(':').chain(["/usr/sbin"]).map(|dir| Path::new(dir).join("haproxy")).find(|file| file.exists()) else {
        return Ok(None);
    };
    let mut command = Command::new(program);
    command.arg("-db").arg("-f").arg(&config);
    Ok(Some(("HAProxy", at, Some(start(command)?))))
}

fn start(mut command: Command) -> Result<Proxy> {
    let name = command.get_program().to_string_lossy().into_owned();
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn();
    Ok(Proxy(child.with_context(|| format!("cannot start {name}"))?))
}

/// An address that nobody listens on.
fn free() -> Result<SocketAddr> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}

/// A server that gives every request the same answer.
async fn pod() -> Result<(AbortOnDropHandle<()>, SocketAddr)> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let answer = Bytes::from(vec![b'x'; ANSWER]);
    let serve = async move {
        while let Ok((stream, _)) = listener.accept().await {
            // Otherwise an answer may wait for the acknowledgement of the one before (Nagle). If it fails, answers are only late.
            let _ = stream.set_nodelay(true);
            let answer = answer.clone();
            let service = service_fn(move |_| {
                let answer = answer.clone();
                async move { anyhow::Ok(Response::new(Full::new(answer))) }
            });
            tokio::spawn(http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service));
        }
    };
    Ok((AbortOnDropHandle::new(tokio::spawn(serve)), address))
}

async fn connect(address: SocketAddr) -> Result<SendRequest<Empty<Bytes>>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    // Its end is seen by the next request.
    tokio::spawn(connection);
    Ok(sender)
}

async fn ask(sender: &mut SendRequest<Empty<Bytes>>) -> Result<()> {
    sender.ready().await?;
    let response = sender.send_request(Request::get("/").header("host", "bench.example").body(Empty::new())?).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    ensure!(status.is_success() && body.len() == ANSWER, "answered with {status} and {} bytes", body.len());
    Ok(())
}

async fn answers(address: SocketAddr) -> Result<()> {
    let began = Instant::now();
    loop {
        let asked = async { ask(&mut connect(address).await?).await };
        match asked.await {
            Ok(()) => return Ok(()),
            Err(error) if began.elapsed() > PATIENCE => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// One round: as many requests as it can carry, then a constant rate.
async fn round(address: SocketAddr, proxy: Option<&Proxy>, sizes: Sizes, measured: &mut Measured) -> Result<()> {
    let cpu = || proxy.map_or(Ok(0.0), |proxy| usage(proxy.0.id()).map(|usage| usage.cpu));
    let (before, began) = (cpu()?, Instant::now());
    let mut clients = JoinSet::new();
    let each = sizes.requests / sizes.connections;
    for _ in 0..sizes.connections {
        clients.spawn(async move {
            let mut sender = connect(address).await?;
            for _ in 0..each {
                ask(&mut sender).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(client) = clients.join_next().await {
        client??;
    }
    let count = (each * sizes.connections) as f64;
    measured.rates.push(count / began.elapsed().as_secs_f64());
    measured.cpu.push((cpu()? - before) * 1e6 / count);

    let mut ticks = tokio::time::interval(Duration::from_secs(1) / sizes.rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut sender = connect(address).await?;
    for _ in 0..sizes.timed {
        ticks.tick().await;
        let began = Instant::now();
        ask(&mut sender).await?;
        measured.latencies.push(began.elapsed());
    }
    Ok(())
}
