//! A separate orchestrator for each test, and helpers for requests to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use drover_api::agents::AgentOrders;
use drover_api::bindings::{BoundsOrder, DesiredBindings, Preflight, PreflightAnswer, TestOrder, TestRun, VolumeAnswer, VolumeQuestion};
use drover_api::ledger::{ClaimHead, ExplainQuestion, Explanation, LedgerReceipt, LedgerTransaction};
use drover_api::members::{UserKubeconfig, UserOrder, UserState};
use drover_api::plans::{PlanAcceptance, PlanDocument, PlanOrder, ReliefList};
use drover_api::scheduling::{Claim, Decision, DecisionRequest, MemberKey};
use drover_orchestrator::app::App;
use drover_orchestrator::peers::{ClusterManager, Migration, PeerError, Placement, Services, Synchronizer};
use drover_orchestrator::render::{AppSource, Archive, Profile, RenderError, Renderer};
use drover_orchestrator::{Config, routes, work};
use drover_service::{Common, Peers, SealSettings};
use drover_testkit::{HttpServer, TestDb, seal_key};
use drover_workflow::Settings;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tokio_util::sync::DropGuard;
use utoipa_axum::router::OpenApiRouter;
use uuid::Uuid;

use crate::base::migrated_db;
use crate::fakes::Fakes;

/// A running orchestrator.
pub struct Stack {
    pub app: App,
    server: HttpServer,
    client: reqwest::Client,
    _shutdown: DropGuard,
    _feed: Option<HttpServer>,
    _db: TestDb,
}

/// Peers that always fail: for tests that must not call any.
pub struct NoPeers;

fn no_peer<T>() -> Result<T, PeerError> {
    Err(PeerError::Unavailable { peer: "none", detail: "this test has no peers".into() })
}

#[async_trait]
impl Placement for NoPeers {
    async fn decide(&self, _: Uuid, _: &DecisionRequest) -> Result<Decision, PeerError> {
        no_peer()
    }
    async fn decide_dry(&self, _: &DecisionRequest) -> Result<Decision, PeerError> {
        no_peer()
    }
    async fn transact(&self, _: Uuid, _: &LedgerTransaction) -> Result<LedgerReceipt, PeerError> {
        no_peer()
    }
    async fn transact_dry(&self, _: &LedgerTransaction) -> Result<LedgerReceipt, PeerError> {
        no_peer()
    }
    async fn explain(&self, _: &ExplainQuestion) -> Result<Explanation, PeerError> {
        no_peer()
    }
    async fn claims_of(&self, _: Uuid) -> Result<Vec<Claim>, PeerError> {
        no_peer()
    }
    async fn claims(&self) -> Result<Vec<ClaimHead>, PeerError> {
        no_peer()
    }
}

#[async_trait]
impl Migration for NoPeers {
    async fn plan(&self, _: Uuid, _: &PlanOrder) -> Result<PlanDocument, PeerError> {
        no_peer()
    }
    async fn plan_read(&self, _: Uuid) -> Result<Option<PlanDocument>, PeerError> {
        no_peer()
    }
    async fn plan_accept(&self, _: Uuid, _: &PlanAcceptance) -> Result<PlanDocument, PeerError> {
        no_peer()
    }
    async fn reliefs(&self) -> Result<ReliefList, PeerError> {
        no_peer()
    }
    async fn has_documents(&self, _: &str) -> Result<bool, PeerError> {
        no_peer()
    }
    async fn priority(&self, _: &str) -> Result<u8, PeerError> {
        no_peer()
    }
}

#[async_trait]
impl Synchronizer for NoPeers {
    async fn put_bindings(&self, _: &DesiredBindings) -> Result<(), PeerError> {
        no_peer()
    }
    async fn forget_binding(&self, _: Uuid) -> Result<(), PeerError> {
        no_peer()
    }
    async fn volumes(&self, _: &VolumeQuestion) -> Result<VolumeAnswer, PeerError> {
        no_peer()
    }
    async fn preflight(&self, _: &Preflight) -> Result<PreflightAnswer, PeerError> {
        no_peer()
    }
    async fn put_test(&self, _: Uuid, _: TestOrder) -> Result<(), PeerError> {
        no_peer()
    }
    async fn put_bounds(&self, _: Uuid, _: &BoundsOrder) -> Result<(), PeerError> {
        no_peer()
    }
    async fn test(&self, _: Uuid) -> Result<Option<TestRun>, PeerError> {
        no_peer()
    }
}

#[async_trait]
impl ClusterManager for NoPeers {
    async fn cordon(&self, _: &MemberKey, _: &str) -> Result<(), PeerError> {
        no_peer()
    }
    async fn labels(&self, _: &str) -> Result<BTreeMap<String, BTreeSet<String>>, PeerError> {
        no_peer()
    }
    async fn issue_user(&self, _: &MemberKey, _: Uuid, _: &UserOrder) -> Result<UserState, PeerError> {
        no_peer()
    }
    async fn user_kubeconfig(&self, _: &MemberKey, _: Uuid) -> Result<UserKubeconfig, PeerError> {
        no_peer()
    }
    async fn forget_user(&self, _: &MemberKey, _: Uuid) -> Result<(), PeerError> {
        no_peer()
    }
    async fn agents(&self) -> Result<AgentOrders, PeerError> {
        no_peer()
    }
}

/// A renderer for tests without helm: every chart fails with an error as helm reports it.
pub struct BrokenHelm;

#[async_trait]
impl Renderer for BrokenHelm {
    async fn chart(&self, source: &AppSource, _: &Archive, _: &Profile) -> Result<String, RenderError> {
        Err(RenderError::Helm { app: source.app.clone(), output: "parse error at (web/templates/x.yaml:1)".into() })
    }
}

pub fn no_peers() -> Services {
    Services {
        placement: Arc::new(NoPeers),
        migration: Arc::new(NoPeers),
        synchronizer: Arc::new(NoPeers),
        cluster_manager: Arc::new(NoPeers),
    }
}

/// A response with its body as JSON.
pub struct HttpAnswer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
}

/// Deadlines of an orchestrator in seconds. A test that waits until one has passed makes that one short, and no other: a machine may pause
/// for longer than a short one.
#[derive(Clone, Copy)]
pub struct WaitSeconds {
    pub ready: u64,
    pub room: u64,
    pub unschedulable: u64,
    pub unreachable: u64,
    pub gone: u64,
}

impl WaitSeconds {
    /// Deadlines that no test reaches: an operation that waits for one of them goes on until the test's own time-out.
    pub const PATIENT: Self = Self { ready: 3600, room: 3600, unschedulable: 3600, unreachable: 3600, gone: 3600 };
}

impl Stack {
    /// An orchestrator with these peers.
    pub async fn start(services: Services) -> Self {
        Self::of(services, Peers::default(), None, true, WaitSeconds::PATIENT, &[]).await
    }

    /// An orchestrator without peers, whose responses are not checked against the OpenAPI document.
    pub async fn undocumented() -> Self {
        Self::of(no_peers(), Peers::default(), None, false, WaitSeconds::PATIENT, &[]).await
    }

    /// An orchestrator with these peers and deadlines.
    pub async fn waiting(fakes: &Fakes, wait: WaitSeconds) -> Self {
        Self::calling(fakes, wait, &[]).await
    }

    /// An orchestrator with these peers and deadlines that may call controllers at these origins.
    pub async fn calling(fakes: &Fakes, wait: WaitSeconds, controllers: &[String]) -> Self {
        let feed = OpenApiRouter::<()>::new().routes(fakes.members.feed.route("/internal/feeds/bindings", "bindings_feed"));
        let server = HttpServer::start(feed.split_for_parts().0).await;
        let peers = Peers { resource_synchronizer: server.url("/").parse().unwrap(), ..Peers::default() };
        Self::of(fakes.services(), peers, Some(server), true, wait, controllers).await
    }

    async fn of(
        services: Services,
        peers: Peers,
        feed: Option<HttpServer>,
        documented: bool,
        wait: WaitSeconds,
        controllers: &[String],
    ) -> Self {
        let db = migrated_db().await;
        let config = Config {
            listen: ([127, 0, 0, 1], 0).into(),
            ready_seconds: wait.ready,
            room_seconds: wait.room,
            unschedulable_seconds: wait.unschedulable,
            unreachable_seconds: wait.unreachable,
            gone_seconds: wait.gone,
            bounds_seconds: 1,
            seal: SealSettings { seal_key: Some(seal_key()), ..SealSettings::default() },
            controller_origins: controllers.iter().map(|origin| origin.parse().unwrap()).collect(),
            ..Config::default()
        };
        let common = Common::new(db.url.expose_secret(), "peer", peers).scoped("orchestrator");
        let engine = Settings { poll: Duration::from_millis(100), backoff: Duration::from_millis(50), ..Settings::new("orchestrator-0") };
        let app = work(&config, &common, services, Arc::new(BrokenHelm), engine).await.unwrap();
        let router = drover_service::router(routes(app.environment.traffic.routes()).with_state(app.clone()), &common);
        let document = serde_json::to_value(drover_orchestrator::openapi()).unwrap();
        let router = if documented { drover_testkit::openapi::validated(router, document) } else { router };
        let server = HttpServer::start(router).await;
        Self { app, server, client: reqwest::Client::new(), _shutdown: common.shutdown.clone().drop_guard(), _feed: feed, _db: db }
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        self.server.url(path)
    }

    /// Stops the service. Its connections close when the result is dropped.
    pub fn end(self) -> impl Sized {
        let Self { server, _shutdown: shutdown, _db: db, .. } = self;
        drop(shutdown);
        (server, db)
    }

    /// Waits for the end of the operation at this path.
    pub async fn ended(&self, operation: &str) -> Value {
        for _ in 0..10 {
            let body = self.get(&format!("{operation}?wait=30s")).await;
            if !matches!(body["state"].as_str(), Some("running" | "undoing")) {
                return body;
            }
        }
        panic!("{operation} does not end: {:#}", self.get(operation).await);
    }

    pub async fn call(&self, method: &str, path: &str, body: Option<Value>) -> HttpAnswer {
        let url = self.server.url(path);
        let mut request = self.client.request(method.parse().unwrap(), url);
        if path.starts_with("/internal") {
            request = request.bearer_auth("peer");
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = response.bytes().await.unwrap();
        let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        HttpAnswer { status, headers, body }
    }

    pub async fn get(&self, path: &str) -> Value {
        let answer = self.call("GET", path, None).await;
        assert_eq!(answer.status, 200, "GET {path}: {}", answer.body);
        answer.body
    }

    /// POST that must be answered with this status. Returns the body.
    pub async fn post(&self, path: &str, body: Value, status: u16) -> Value {
        let answer = self.call("POST", path, Some(body)).await;
        assert_eq!(answer.status, status, "POST {path}: {}", answer.body);
        answer.body
    }

    /// A composite app `shop` with these apps (name, YAML), profile, logical cloud of `members`, group `dig`.
    pub async fn group(&self, dig: &str, apps: &[(&str, &str)], members: &[(&str, &str)]) -> String {
        use base64::Engine as _;
        let exists = self.call("GET", "/v2/projects/p", None).await.status == 200;
        if !exists {
            self.post("/v2/projects", doc("p", None), 201).await;
            self.post("/v2/projects/p/logical-clouds", doc("lc", Some(json!({"namespace": "shop", "level": "0"}))), 201).await;
            for (provider, cluster) in members {
                let spec = json!({"clusterProvider": provider, "cluster": cluster});
                self.post("/v2/projects/p/logical-clouds/lc/cluster-references", doc(&format!("{provider}-{cluster}"), Some(spec)), 201)
                    .await;
            }
        }
        let ca = format!("/v2/projects/p/composite-apps/{dig}/v1");
        self.post("/v2/projects/p/composite-apps", doc(dig, Some(json!({"compositeAppVersion": "v1"}))), 201).await;
        for (app, yaml) in apps {
            let mut body = doc(app, None);
            body["file"] = base64::engine::general_purpose::STANDARD.encode(yaml).into();
            self.post(&format!("{ca}/apps"), body, 201).await;
        }
        self.post(&format!("{ca}/composite-profiles"), doc("cp", None), 201).await;
        let spec = json!({"compositeProfile": "cp", "version": "r1", "logicalCloud": "lc", "overrideValues": []});
        self.post(&format!("{ca}/deployment-intent-groups"), doc(dig, Some(spec)), 201).await;
        format!("{ca}/deployment-intent-groups/{dig}")
    }
}

/// A document.
pub fn doc(name: &str, spec: Option<Value>) -> Value {
    let mut document = json!({"metadata": {"name": name}});
    if let Some(spec) = spec {
        document["spec"] = spec;
    }
    document
}

/// A Deployment as YAML.
pub fn deployment(name: &str, cpu: &str, replicas: u32) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec:\n  replicas: {replicas}\n  selector: {{matchLabels: {{app: {name}}}}}\n  \
        template:\n    metadata: {{labels: {{app: {name}}}}}\n    spec:\n      containers:\n      - name: c\n        image: registry/{name}:1\n        \
        resources: {{requests: {{cpu: {cpu}, memory: 64Mi}}}}\n"
    )
}
