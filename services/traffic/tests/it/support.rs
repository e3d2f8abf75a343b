//! A process of the data path with the feeds that it follows.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use drover_api::scheduling::MemberKey;
use drover_api::traffic::{CopyEndpoints, PortEndpoints, RouteBackend, RouteProtocol, RouteReport, RouteTable};
use drover_kubesim::StandIn;
use drover_service::feed::FeedPage;
use drover_service::{Common, FeedHub, Peers, Running};
pub use drover_testkit::free_port;
use drover_testkit::{HttpServer, eventually};
use drover_traffic::Config;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use url::Url;
use utoipa_axum::router::OpenApiRouter;
use uuid::Uuid;

pub const PATIENCE: Duration = Duration::from_secs(120);
pub const POD_PORT: u16 = 8080;

/// The feeds of orchestrator and resource-synchronizer.
pub struct Feeds {
    pub routes: FeedHub<RouteTable>,
    pub endpoints: FeedHub<CopyEndpoints>,
    server: HttpServer,
}

impl Feeds {
    pub async fn start() -> Self {
        let (routes, endpoints) = (FeedHub::new(), FeedHub::new());
        let router = OpenApiRouter::<()>::new()
            .routes(routes.route("/internal/feeds/routes", "routes_feed"))
            .routes(endpoints.route("/internal/feeds/endpoints", "endpoints_feed"));
        let server = HttpServer::start(router.split_for_parts().0).await;
        Self { routes, endpoints, server }
    }

    /// Publishes where the pods of a copy are.
    pub fn pods(&self, copy: Uuid, pods: &[SocketAddr], app_protocol: Option<&str>) {
        let port = PortEndpoints {
            namespace: "default".into(),
            service: "web".into(),
            port: "http".into(),
            app_protocol: app_protocol.map(str::to_owned),
            addresses: pods.to_vec(),
            pods: Vec::new(),
        };
        let value = CopyEndpoints { binding: copy, member: MemberKey::new("p", "m"), ports: vec![port] };
        self.endpoints.publish(copy.to_string(), Some(value));
    }

    /// The addresses of the feeds.
    pub fn peers(&self) -> Peers {
        let at = Url::parse(&self.server.url("/")).expect("a URL");
        Peers { orchestrator: at.clone(), resource_synchronizer: at, ..Peers::default() }
    }

    pub fn route(&self, route: &RouteTable) {
        self.routes.publish(route.id.to_string(), Some(route.clone()));
    }
}

/// A route to the copies with these weights.
pub fn route(protocol: RouteProtocol, host: Option<&str>, port: u16, copies: &[(Uuid, u16)]) -> RouteTable {
    RouteTable {
        id: Uuid::new_v4(),
        name: format!("p/shop/{}", host.unwrap_or("any")),
        protocol,
        host: host.map(str::to_owned),
        port,
        service: "web".into(),
        service_port: "http".into(),
        probe: Some("/healthz".into()).filter(|_| protocol != RouteProtocol::Tcp),
        hold_seconds: 60,
        gateway: None,
        backends: copies
            .iter()
            .map(|(binding, weight)| RouteBackend { binding: *binding, member: MemberKey::new("p", "m"), weight: *weight })
            .collect(),
    }
}

/// A pod that answers with its name, and its address.
pub fn pod(name: &str) -> (StandIn, SocketAddr) {
    let pod = serde_json::json!({"metadata": {"name": name}, "spec": {"containers": [{"ports": [{"containerPort": POD_PORT}]}]}});
    let stand_in = StandIn::start(&pod).expect("an address is free");
    let address = SocketAddr::new(IpAddr::V4(stand_in.address), POD_PORT);
    (stand_in, address)
}

/// A process of the data path.
pub struct Process {
    pub running: Running,
}

impl Process {
    pub async fn start(feeds: &Feeds, dir: &Path, tls: Option<&Path>) -> Self {
        Self::with_peers(feeds.peers(), dir, tls).await
    }

    pub async fn with_peers(peers: Peers, dir: &Path, tls: Option<&Path>) -> Self {
        Self::with(peers, dir, tls, |_| {}).await
    }

    /// The same with other settings.
    pub async fn with(peers: Peers, dir: &Path, tls: Option<&Path>, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config {
            listen: ([127, 0, 0, 1], 0).into(),
            address: [127, 0, 0, 1].into(),
            dir: dir.to_owned(),
            tls_dir: tls.map(Path::to_owned),
            reuse_port: false,
            max_route_connections: 16_384,
            max_route_connections_per_address: None,
            drain_seconds: 600,
        };
        change(&mut config);
        let running = drover_traffic::start(config, Common::new("postgres://nowhere/", "token", peers)).await.expect("it starts");
        Self { running }
    }

    /// What it reports of a route.
    pub async fn report(&self, route: Uuid) -> Option<RouteReport> {
        Self::report_of(self.running.addr, route).await
    }

    /// What the process with this address for other services reports.
    pub async fn report_of(at: SocketAddr, route: Uuid) -> Option<RouteReport> {
        let url = format!("http://{at}/internal/feeds/traffic");
        let page = reqwest::Client::new().get(url).bearer_auth("token").send().await.ok()?.json::<FeedPage<RouteReport>>().await.ok()?;
        page.items.into_iter().find(|item| item.key == route.to_string())?.value
    }

    /// Waits until a report of the route is as wanted.
    pub async fn reports(&self, route: Uuid, wanted: impl Fn(&RouteReport) -> bool) -> RouteReport {
        eventually(PATIENCE, async || self.report(route).await.filter(&wanted)).await
    }

    /// Waits until so many endpoints answer in all.
    pub async fn answering(&self, route: Uuid, count: usize) {
        self.reports(route, |report| report.problem.is_none() && report.backends.iter().map(|b| b.answering).sum::<usize>() == count).await;
    }
}

/// A process with one copy of two pods behind `http://shop.example`.
pub struct Shop {
    pub feeds: Feeds,
    pub route: RouteTable,
    pub pods: Vec<(StandIn, SocketAddr)>,
    pub process: Process,
    pub dir: TempDir,
    /// Resolves every name to this machine, and sends no request to a proxy.
    pub client: reqwest::Client,
}

pub fn client() -> reqwest::ClientBuilder {
    reqwest::Client::builder().no_proxy().timeout(PATIENCE)
}

impl Shop {
    pub async fn start() -> Self {
        let (feeds, dir) = (Feeds::start().await, tempfile::tempdir().expect("a directory"));
        let (copy, pods) = (Uuid::new_v4(), vec![pod("web-1"), pod("web-2")]);
        let route = route(RouteProtocol::Http, Some("shop.example"), free_port(), &[(copy, 100)]);
        feeds.pods(copy, &pods.iter().map(|(_, address)| *address).collect::<Vec<_>>(), None);
        feeds.route(&route);
        let process = Process::start(&feeds, dir.path(), None).await;
        process.answering(route.id, 2).await;
        let address = SocketAddr::from(([127, 0, 0, 1], route.port));
        let client = client().resolve("shop.example", address).build().expect("a client");
        Self { feeds, route, pods, process, dir, client }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://shop.example:{}{path}", self.route.port)
    }

    pub fn copy(&self) -> Uuid {
        self.route.backends[0].binding
    }

    /// Waits until its route and its pods are on disk; the route may be stored some time before them.
    pub async fn is_stored(&self) {
        let table = self.dir.path().join("table.json");
        let needed: Vec<_> = self.pods.iter().map(|(_, address)| address.to_string()).chain(["shop.example".to_owned()]).collect();
        let stored = |text: &String| needed.iter().all(|part| text.contains(part));
        eventually(PATIENCE, async || std::fs::read_to_string(&table).ok().filter(stored)).await;
    }

    /// A connection to a pod that stays until one of both ends it. What is written to it comes back.
    pub async fn chat(&self) -> TcpStream {
        let mut chat = TcpStream::connect(("127.0.0.1", self.route.port)).await.expect("the port is open");
        let head = "GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        chat.write_all(head.as_bytes()).await.expect("it is open");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(chat.read_u8().await.expect("an answer"));
        }
        chat
    }

    /// The pod that answers a request.
    pub async fn pod(&self) -> String {
        let answer = self.client.get(self.url("/")).send().await.expect("an answer");
        assert_eq!(answer.status(), 200);
        answer.headers()["x-pod"].to_str().expect("a name").to_owned()
    }
}
