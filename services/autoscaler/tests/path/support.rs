//! Servers, clients and proxies of the tests.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::any;
use clap::Parser;
use drover_autoscaler::config::{Cli, Command};
use drover_autoscaler::path::queue_proxy::{Config, QueueProxy};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_util::task::AbortOnDropHandle;

/// Long enough for a loaded machine; only a test that fails waits for so long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A server whose answers the test lets go.
#[derive(Clone)]
pub struct App {
    pub address: SocketAddr,
    /// Requests that are in it now, and the most there were.
    pub inside: Arc<AtomicUsize>,
    pub most: Arc<AtomicUsize>,
    /// A permit lets one answer go.
    pub answers: Arc<Semaphore>,
    pub came: watch::Sender<usize>,
    _task: Arc<AbortOnDropHandle<()>>,
}

impl App {
    /// Answers only what the test lets go.
    pub async fn held() -> Self {
        Self::with(0).await
    }

    /// Answers all at once.
    pub async fn quick() -> Self {
        Self::with(Semaphore::MAX_PERMITS).await
    }

    async fn with(permits: usize) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (inside, most, answers, came) = (Arc::default(), Arc::default(), Arc::new(Semaphore::new(permits)), watch::Sender::new(0));
        let parts: (Arc<AtomicUsize>, Arc<AtomicUsize>, Arc<Semaphore>, watch::Sender<usize>) =
            (Arc::clone(&inside), Arc::clone(&most), answers.clone(), came.clone());
        let router = Router::new().route("/{*path}", any(answer)).route("/", any(answer)).with_state(parts);
        let task = AbortOnDropHandle::new(tokio::spawn(async move { axum::serve(listener, router).await.unwrap() }));
        Self { address, inside, most, answers, came, _task: Arc::new(task) }
    }

    /// Waits until so many requests came in all.
    pub async fn came(&self, n: usize) {
        let mut came = self.came.subscribe();
        tokio::time::timeout(PATIENCE, came.wait_for(|came| *came >= n)).await.expect("the requests did not come").unwrap();
    }
}

type Parts = (Arc<AtomicUsize>, Arc<AtomicUsize>, Arc<Semaphore>, watch::Sender<usize>);

/// Echoes the body, after it was let go; says how it was asked.
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

/// A queue-proxy before an app.
pub struct Sidecar {
    pub address: SocketAddr,
    pub admin: SocketAddr,
    /// Ends when it is drained.
    pub serving: tokio::task::JoinHandle<()>,
    _admin: AbortOnDropHandle<()>,
    _report: AbortOnDropHandle<()>,
}

/// Settings as the command line makes them.
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
        let questions = proxy.clone().questions();
        Self {
            address,
            admin: admin_address,
            serving: tokio::spawn(proxy.clone().serve(listener)),
            _admin: AbortOnDropHandle::new(tokio::spawn(async move { axum::serve(admin, questions).await.unwrap() })),
            _report: AbortOnDropHandle::new(tokio::spawn(proxy.report(None))),
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// A client of HTTP/1.1.
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
