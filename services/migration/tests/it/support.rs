//! A migration service on its own database, with a fake placement, orchestrator and Prometheus.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode as Status;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use drover_api::digs::{DigHold, DigHolds, DigTerms, DocumentRef};
use drover_api::ledger::{FleetClaim, FleetItem, LedgerHead};
use drover_api::operations::{Operation, OperationState};
use drover_api::plans::{PlanDocument, PlanOrder, PlanSearch};
use drover_migration::{Config, assemble};
use drover_scheduling::{
    Amounts, AppRequest, Capacity, Claim, ClaimState, Demand, DigRef, Element, FleetMember, Intent, MemberKey, MemberState, Node, Observed,
    PlacementTerms, PlanKind, PodGroup, PodsOnNode,
};
use drover_service::{Common, FeedHub, Peers};
use drover_testkit::{HttpServer, TestDb, eventually, openapi};
use reqwest::{Method, StatusCode};
use secrecy::ExposeSecret;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::DropGuard;
use utoipa_axum::router::OpenApiRouter;
use uuid::Uuid;

pub const TIMEOUT: Duration = Duration::from_secs(60);
const TOKEN: &str = "peer-token-of-the-tests";

/// Fakes of the other services.
pub struct FakePeers {
    fleet: FeedHub<FleetItem>,
    /// Held while something is told about the fleet.
    turn: Arc<Mutex<()>>,
    pub known: FakeDocuments,
    server: HttpServer,
}

#[derive(Clone, Default)]
pub struct FakeDocuments {
    pub documents: Arc<Mutex<HashMap<String, Uuid>>>,
    pub digs: Arc<Mutex<HashMap<String, DigTerms>>>,
    /// Groups held by operations.
    pub holds: Arc<Mutex<Vec<DigHold>>>,
    /// Operations; the others are still running.
    pub operations: Arc<Mutex<HashMap<Uuid, Operation>>>,
    /// Values of Prometheus queries.
    pub samples: Arc<Mutex<HashMap<String, f64>>>,
}

fn not_found() -> Response {
    (Status::NOT_FOUND, Json(json!({"code": "not_found", "status": 404, "detail": "there is none"}))).into_response()
}

async fn document(State(known): State<FakeDocuments>, Query(query): Query<HashMap<String, String>>) -> Response {
    let found = known.documents.lock().unwrap().get(&query["path"]).copied();
    found.map_or_else(not_found, |id| Json(DocumentRef { id, kind: "any".into(), path: query["path"].clone() }).into_response())
}

async fn dig_terms(State(known): State<FakeDocuments>, Query(query): Query<HashMap<String, String>>) -> Response {
    let found = known.digs.lock().unwrap().get(&query["dig"]).cloned();
    found.map_or_else(not_found, |terms| Json(terms).into_response())
}

async fn holds(State(known): State<FakeDocuments>) -> Json<DigHolds> {
    Json(DigHolds { items: known.holds.lock().unwrap().clone() })
}

async fn operation(State(known): State<FakeDocuments>, Path(id): Path<Uuid>) -> Json<Operation> {
    let ended = known.operations.lock().unwrap().get(&id).cloned();
    Json(ended.unwrap_or_else(|| operation_that_is(id, OperationState::Running, None)))
}

/// A relocation in this state.
pub fn operation_that_is(id: Uuid, state: OperationState, code: Option<&str>) -> Operation {
    let document = json!({"id": id, "kind": "relocate", "subject": "s", "state": state, "message": "as it is", "code": code,
        "steps": [], "createdAt": "2026-01-01T00:00:00Z"});
    serde_json::from_value(document).unwrap()
}

async fn sample(State(known): State<FakeDocuments>, Query(query): Query<HashMap<String, String>>) -> Response {
    let found = known.samples.lock().unwrap().get(&query["query"]).copied();
    let result: Vec<Value> = found.iter().map(|value| json!({"metric": {}, "value": [0.0, value.to_string()]})).collect();
    Json(json!({"status": "success", "data": {"resultType": "vector", "result": result}})).into_response()
}

/// Tells each capacity again and again, as placement does: what is older than [`Capacity::FRESH_MS`] counts as unknown.
async fn repeat(fleet: FeedHub<FleetItem>, turn: Arc<Mutex<()>>) {
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let _turn = turn.lock().unwrap();
        for (key, item) in fleet.snapshot().into_iter().filter(|(key, _)| key.starts_with("capacity/")) {
            fleet.publish_shared(key, Some(item));
        }
    }
}

impl FakePeers {
    pub async fn start() -> Self {
        let (fleet, known) = (FeedHub::new(), FakeDocuments::default());
        let feed: OpenApiRouter = OpenApiRouter::new().routes(fleet.route("/internal/feeds/fleet", "fleet"));
        let others = axum::Router::new()
            .route("/internal/documents/lookup", get(document))
            .route("/internal/digs/lookup", get(dig_terms))
            .route("/internal/holds", get(holds))
            .route("/v2/operations/{id}", get(operation))
            .route("/prometheus/api/v1/query", get(sample))
            .with_state(known.clone());
        let server = HttpServer::start(feed.split_for_parts().0.merge(others)).await;
        let turn = Arc::<Mutex<()>>::default();
        tokio::spawn(repeat(fleet.clone(), Arc::clone(&turn)));
        let peers = Self { fleet, turn, known, server };
        peers.head(0);
        peers.known.documents.lock().unwrap().insert("/v2/projects/default".into(), Uuid::now_v7());
        peers
    }

    pub fn tell(&self, key: &str, item: Option<FleetItem>) {
        let _turn = self.turn.lock().unwrap();
        self.fleet.publish(key, item);
    }

    pub fn head(&self, seq: i64) {
        self.tell("head", Some(FleetItem::Head(LedgerHead { seq })));
    }

    pub fn member(&self, key: &str, priority: u8, capacity: Capacity) {
        let member = FleetMember { key: MemberKey(key.into()), priority, state: MemberState::Ready, ..FleetMember::default() };
        self.tell(&format!("member/{key}"), Some(FleetItem::Member(Box::new(member))));
        self.tell(&format!("capacity/{key}"), Some(FleetItem::Capacity(Arc::new(capacity))));
    }

    pub fn claim(&self, claim: &Claim) {
        let request = Uuid::now_v7();
        self.tell(&format!("request/{request}"), Some(FleetItem::Request(Arc::clone(&claim.request))));
        self.tell(&format!("claim/{}", claim.id), Some(FleetItem::Claim(FleetClaim::new(Arc::new(claim.clone()), request))));
    }
}

/// One node with `cpu` millicores and as many MiB, and the CPU usage of its bindings.
pub fn capacity(cpu: i64, used: &[(&Claim, i64)]) -> Capacity {
    let allocatable = Amounts { cpu, memory: cpu << 20, pods: 110, ..Amounts::default() };
    let observed = used.iter().map(|(claim, cpu)| {
        let requests = BTreeMap::from([("n0".to_owned(), claim.request.demand.groups[0].requests.clone())]).into();
        (claim.id, Observed { requests, used: Some(Amounts { cpu: *cpu, memory: 1 << 20, ..Amounts::default() }), ..Observed::default() })
    });
    Capacity {
        nodes: Arc::new(vec![Node { name: "n0".into(), allocatable, ..Node::default() }]),
        observed: observed.collect(),
        ..Capacity::default()
    }
}

pub fn dig(name: &str) -> DigRef {
    DigRef { id: Uuid::now_v7(), project: "default".into(), composite_app: name.into(), version: "v1".into(), name: name.into() }
}

pub fn dig_path(name: &str) -> String {
    format!("/v2/projects/default/composite-apps/{name}/v1/deployment-intent-groups/{name}")
}

/// An app with one pod of `cpu` millicores that may run on any of `members`.
pub fn app(name: &str, cpu: i64, members: &[&str]) -> AppRequest {
    let group =
        PodGroup { workload: format!("Deployment/{name}"), replicas: 1, requests: Amounts::pod(cpu, cpu << 20), ..PodGroup::default() };
    let keys: Vec<MemberKey> = members.iter().map(|key| MemberKey((*key).into())).collect();
    let element = |key: &MemberKey| Element {
        cluster_provider: Some(key.provider().into()),
        cluster: Some(key.cluster().into()),
        ..Element::default()
    };
    let intent = Intent { any_of: keys.iter().map(element).collect(), ..Intent::default() };
    let terms = PlacementTerms { intent, logical_cloud: keys.into(), allow_dependants: Some(true), ..PlacementTerms::default() };
    AppRequest { app: name.into(), demand: Demand { groups: vec![group], ..Demand::default() }, terms }
}

/// A held claim of a group and an app with this name.
pub fn claim(name: &str, cpu: i64, on: &str, members: &[&str]) -> Claim {
    Claim {
        id: Uuid::now_v7(),
        dig: Arc::new(dig(name)),
        request: Arc::new(app(name, cpu, members)),
        member: MemberKey(on.into()),
        state: ClaimState::Held,
        pods: vec![PodsOnNode { node: "n0".into(), group: 0, count: 1 }],
        surging: false,
        fence: 1,
        operation: Uuid::now_v7(),
    }
}

pub fn newcomer(name: &str, apps: Vec<AppRequest>) -> PlanOrder {
    PlanOrder {
        released: Vec::new(),
        kind: PlanKind::Newcomer { dig: dig(name), apps },
        excluded: BTreeMap::new(),
        refused: Vec::new(),
        dry_run: false,
        patient: false,
        operation: None,
        after_seq: None,
        search: PlanSearch::default(),
        movable_projects: None,
    }
}

/// The names of the apps that a plan moves.
pub fn moved(plan: &PlanDocument) -> Vec<String> {
    plan.plan.iter().flat_map(|plan| plan.waves.iter().flatten()).map(|step| step.app.clone()).collect()
}

pub struct Migration {
    server: HttpServer,
    stop: DropGuard,
}

impl Migration {
    /// Starts the service and waits until it is ready. Every exchange is checked against the OpenAPI document.
    pub async fn start(db: &TestDb, peers: &FakePeers) -> Self {
        let migration = Self::start_cold(db, peers).await;
        eventually(TIMEOUT, async || (migration.send(Method::GET, "/readyz", None::<&()>).await.0 == StatusCode::OK).then_some(())).await;
        migration
    }

    pub async fn start_cold(db: &TestDb, peers: &FakePeers) -> Self {
        let url: url::Url = peers.server.url("/").parse().unwrap();
        let urls = Peers { placement: url.clone(), orchestrator: url, ..Peers::default() };
        let common = Common::new(db.url.expose_secret(), TOKEN, urls).scoped("migration");
        // With a path prefix, as behind a proxy.
        let prometheus = Some(peers.server.url("/prometheus").parse().unwrap());
        let config = Config { listen: "127.0.0.1:0".parse().unwrap(), prometheus, plan_seconds: 5.0, keep_plans_days: 30 };
        let router = assemble(&config, &common).await.unwrap();
        let router = openapi::validated(router, serde_json::to_value(drover_migration::openapi()).unwrap());
        Self { server: HttpServer::start(router).await, stop: common.shutdown.clone().drop_guard() }
    }

    pub fn kill(self) {
        drop(self.stop);
    }

    pub async fn send<B: Serialize + ?Sized>(&self, method: Method, path: &str, body: Option<&B>) -> (StatusCode, Value) {
        let mut request = reqwest::Client::new().request(method, self.server.url(path)).bearer_auth(TOKEN);
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub async fn ok<T: DeserializeOwned>(&self, method: Method, path: &str, body: &Value) -> T {
        let (status, answer) = self.send(method, path, (!body.is_null()).then_some(body)).await;
        assert!(status.is_success(), "{path}: {status}: {answer:#}");
        serde_json::from_value(answer).unwrap()
    }

    /// Sends a request and asserts that it is refused with this status and code.
    pub async fn refused(&self, method: Method, path: &str, body: &Value, status: u16, code: &str) -> Value {
        let (got, problem) = self.send(method, path, (!body.is_null()).then_some(body)).await;
        assert_eq!((got.as_u16(), problem["code"].as_str()), (status, Some(code)), "{path}: {problem:#}");
        problem
    }

    pub async fn plan(&self, order: &PlanOrder) -> PlanDocument {
        self.plan_at(&format!("/internal/plans/{}", Uuid::now_v7()), order).await
    }

    /// Asks for a plan, again if what it needs to know has not come in the time for which a request waits: a machine may pause for longer.
    pub async fn plan_at(&self, path: &str, order: &PlanOrder) -> PlanDocument {
        eventually(TIMEOUT, async || {
            let (status, answer) = self.send(Method::PUT, path, Some(order)).await;
            let not_yet = (status.as_u16(), answer["code"].as_str()) == (503, Some("capacity_unknown"));
            assert!(not_yet || status.is_success(), "{path}: {status}: {answer:#}");
            (!not_yet).then(|| serde_json::from_value(answer).unwrap())
        })
        .await
    }

    /// Makes the intent of an owner who agrees to moves.
    pub async fn movable(&self, peers: &FakePeers, claim: &Claim, priority: u8) {
        let path = dig_path(&claim.dig.name);
        peers.known.documents.lock().unwrap().insert(path.clone(), claim.dig.id);
        let named = |spec: Value| json!({"metadata": {"name": "m"}, "spec": spec});
        let _: Value = self.ok(Method::POST, &format!("{path}/migration-intents"), &json!({"metadata": {"name": "m"}})).await;
        let spec = named(json!({"app": claim.request.app, "migration": true, "priority": priority}));
        let _: Value = self.ok(Method::POST, &format!("{path}/migration-intents/m/app-intents"), &spec).await;
    }

    /// Changes the consent of an owner.
    pub async fn consent(&self, claim: &Claim, migration: bool) {
        let path = format!("{}/migration-intents/m/app-intents/m", dig_path(&claim.dig.name));
        let spec = json!({"app": claim.request.app, "migration": migration, "priority": 5});
        let _: Value = self.ok(Method::PUT, &path, &json!({"metadata": {"name": "m"}, "spec": spec})).await;
    }

    /// Makes or replaces the project's active policy.
    pub async fn policy(&self, spec: Value) {
        let body = json!({"metadata": {"name": "p"}, "spec": spec});
        let _: Value = self.ok(Method::PUT, "/v2/projects/default/migration-policies/p", &body).await;
    }
}
