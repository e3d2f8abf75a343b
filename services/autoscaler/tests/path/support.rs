//! Servers, clients and proxies for the tests.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{any, get};
use clap::Parser;
use drover_autoscaler::config::{Cli, Command};
use drover_autoscaler::path::queue_proxy::{Config, QueueProxy};
use drover_autoscaler::path::serve_admin;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Semaphore, watch};
use tokio_util::task::AbortOnDropHandle;

/// Long enough for a loaded machine; only a failing test waits this long.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// A server that answers when the test allows it.
#[derive(Clone)]
pub struct App {
    pub address: SocketAddr,
    /// Requests in progress, and the maximum so far.
    pub inside: Arc<AtomicUsize>,
    pub most: Arc<AtomicUsize>,
    /// Each permit allows one answer.
    pub answers: Arc<Semaphore>,
    /// Requests that have come in total.
    pub came: watch::Sender<usize>,
    _task: Arc<AbortOnDropHandle<()>>,
}

impl App {
    /// A server that answers only what the test allows.
    pub async fn held() -> Self {
        Self::with(0).await
    }

    /// A server that answers every request at once.
    pub async fn quick() -> Self {
        Self::with(Semaphore::MAX_PERMITS).await
    }

    async fn with(permits: usize) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (inside, most, answers, came) = (Arc::default(), Arc::default(), Arc::new(Semaphore::new(permits)), watch::Sender::new(0));
        let parts: Parts = (Arc::clone(&inside), Arc::clone(&most), answers.clone(), came.clone());
        let router = Router::new().route("/{*path}", any(answer)).route("/", any(answer)).with_state(parts);
        let task = AbortOnDropHandle::new(tokio::spawn(async move { axum::serve(listener, router).await.unwrap() }));
        Self { address, inside, most, answers, came, _task: Arc::new(task) }
    }

    /// Waits until `n` requests have come in total.
    pub async fn came(&self, n: usize) {
        let mut came = self.came.subscribe();
        tokio::time::timeout(PATIENCE, came.wait_for(|came| *came >= n)).await.expect("the requests did not come").unwrap();
    }
}

/// The fields `inside`, `most`, `answers` and `came` of an [`App`], which the server shares.
type Parts = (Arc<AtomicUsize>, Arc<AtomicUsize>, Arc<Semaphore>, watch::Sender<usize>);

/// Echoes the body once the test allows it; the header `seen` describes the request.
async fn answer(State((inside, most, answers, came)): State<Parts>, request: axum::extract::Request) -> axum::response::Response {
    struct Leaves(Arc<AtomicUsize>);
    impl Drop for Leaves {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    let _leaves = Leaves(inside);
    came.send_modify(|came| *came += 1);
    answers.acquire().await.unwrap().forget();
    let (parts, body) = request.into_parts();
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("-").to_owned();
    let host = parts.uri.authority().map_or_else(|| header("host"), ToString::to_string);
    let seen = format!(
        "{:?} {} host={host} for={} proxied={}",
        parts.version,
        parts.uri.path(),
        header("x-forwarded-for"),
        header("drover-proxied")
    );
    axum::response::Response::builder().header("seen", seen).body(body).unwrap()
}

/// A queue-proxy in front of an app.
pub struct Sidecar {
    pub address: SocketAddr,
    pub admin: SocketAddr,
    /// Ends when the queue-proxy is drained.
    pub serving: tokio::task::JoinHandle<()>,
    _admin: AbortOnDropHandle<()>,
    _report: AbortOnDropHandle<()>,
}

/// The settings of a command line.
pub fn settings(app: SocketAddr, more: &[&str]) -> Config {
    let port = app.port().to_string();
    let arguments = ["drover-autoscaler", "queue-proxy", "--app-port", &port, "--quiet", "0.1"];
    match Cli::try_parse_from(arguments.iter().chain(more)).unwrap().command {
        Command::QueueProxy(config) => config,
        _ => unreachable!("the command is named above"),
    }
}

impl Sidecar {
    pub async fn before(app: SocketAddr, more: &[&str]) -> Self {
        Self::at(IpAddr::V4(Ipv4Addr::LOCALHOST), app, more).await
    }

    pub async fn at(here: IpAddr, app: SocketAddr, more: &[&str]) -> Self {
        let proxy = QueueProxy::new(&settings(app, more));
        let (listener, admin) = (TcpListener::bind((here, 0)).await.unwrap(), TcpListener::bind((here, 0)).await.unwrap());
        let (address, admin_address) = (listener.local_addr().unwrap(), admin.local_addr().unwrap());
        let admin_routes = proxy.clone().admin_routes();
        Self {
            address,
            admin: admin_address,
            serving: tokio::spawn(proxy.clone().serve(listener)),
            _admin: AbortOnDropHandle::new(tokio::spawn(async move { serve_admin(admin, admin_routes).await.unwrap() })),
            _report: AbortOnDropHandle::new(tokio::spawn(proxy.report(None))),
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// An address that refuses connections. The socket keeps the port, so that no other test can listen on it.
pub fn refusing() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// The admin port of a pod: always answers `/ready` with the same status, and counts the probes.
pub struct Admin {
    pub address: SocketAddr,
    probes: watch::Sender<usize>,
    _task: AbortOnDropHandle<()>,
}

impl Admin {
    pub async fn answering(status: StatusCode) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let probes = watch::Sender::new(0);
        let counted = probes.clone();
        let ready = move || {
            counted.send_modify(|probes| *probes += 1);
            async move { status }
        };
        let task = tokio::spawn(async move { axum::serve(listener, Router::new().route("/ready", get(ready))).await.unwrap() });
        Self { address, probes, _task: AbortOnDropHandle::new(task) }
    }

    /// Waits until the pod was probed `n` times in total.
    pub async fn probed(&self, n: usize) {
        let mut probes = self.probes.subscribe();
        tokio::time::timeout(PATIENCE, probes.wait_for(|probes| *probes >= n)).await.expect("the pod was not probed").unwrap();
    }
}

/// An HTTP/1.1 client.
pub fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap()
}

/// The code of a problem+json answer.
pub async fn code(response: reqwest::Response) -> String {
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    let document: serde_json::Value = response.json().await.unwrap();
    let page = format!("{}/../../docs/errors/{}.md", env!("CARGO_MANIFEST_DIR"), document["code"].as_str().unwrap());
    assert!(std::path::Path::new(&page).exists(), "{page} explains it");
    document["code"].as_str().unwrap().to_owned()
}
