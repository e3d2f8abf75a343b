//! A placement on its own database, with a scripted cluster-manager.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drover_api::ledger::{Claims, ClusterCapacity, ExplainQuestion, Explanation, FleetItem};
use drover_api::members::Member;
use drover_placement::assemble;
use drover_scheduling::{
    Amounts, AppRequest, Capacity, Decision, DecisionRequest, Demand, DigRef, Element, Intent, LedgerChange, LedgerReceipt,
    LedgerTransaction, MemberKey, MemberState, Node, PlacementTerms, PodGroup, RefusedDestination,
};
use drover_service::feed::FeedPage;
use drover_service::{Common, FeedHub, Peers};
use drover_store::failpoint::Failpoints;
use drover_testkit::{HttpServer, TestDb, eventually, openapi};
use reqwest::{Method, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::DropGuard;
use url::Url;
use utoipa_axum::router::OpenApiRouter;
use uuid::Uuid;

/// It only guards against hanging.
pub const TIMEOUT: Duration = Duration::from_secs(120);
const TOKEN: &str = "peer-token-of-the-tests";

pub struct ClusterManager {
    pub members: FeedHub<Member>,
    capacity: FeedHub<Capacity>,
    /// Held while a capacity is reported.
    turn: Arc<Mutex<()>>,
    server: HttpServer,
}

/// Reports what was new again and again, as a cluster-manager does: what is older than [`Capacity::FRESH_MS`] counts as unknown.
async fn repeat(capacity: FeedHub<Capacity>, turn: Arc<Mutex<()>>) {
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let _turn = turn.lock().unwrap();
        for (key, value) in capacity.snapshot().into_iter().filter(|(_, value)| value.age_ms == 0) {
            capacity.publish_shared(key, Some(value));
        }
    }
}

impl ClusterManager {
    pub async fn start() -> Self {
        let (members, capacity) = (FeedHub::new(), FeedHub::new());
        let routes: OpenApiRouter = OpenApiRouter::new()
            .routes(members.route("/internal/feeds/members", "members"))
            .routes(capacity.route("/internal/feeds/capacity", "capacity"));
        let server = HttpServer::start(routes.split_for_parts().0).await;
        let turn = Arc::<Mutex<()>>::default();
        tokio::spawn(repeat(capacity.clone(), Arc::clone(&turn)));
        Self { members, capacity, turn, server }
    }

    pub fn member(&self, key: &str, priority: u8, nodes: Vec<Node>) {
        self.members.publish(key, Some(member(key, priority, MemberState::Ready)));
        self.report(key, Some(Capacity { nodes: Arc::new(nodes), ..Capacity::default() }));
    }

    pub fn report(&self, key: &str, capacity: Option<Capacity>) {
        let _turn = self.turn.lock().unwrap();
        self.capacity.publish(key, capacity);
    }

    pub fn url(&self) -> Url {
        self.server.url("/").parse().unwrap()
    }
}

pub fn member(key: &str, priority: u8, state: MemberState) -> Member {
    let labels = vec!["all".to_owned()];
    Member {
        id: Uuid::now_v7(),
        key: MemberKey(key.into()),
        priority,
        labels,
        state,
        since: None,
        reason: None,
        cordoned: None,
        link: None,
        credential_version: 1,
    }
}

/// `count` nodes of `cpu` millicores and as many MiB each.
pub fn nodes(count: usize, cpu: i64) -> Vec<Node> {
    let allocatable = Amounts { cpu, memory: cpu << 20, pods: 110, ..Amounts::default() };
    (0..count).map(|n| Node { name: format!("n{n}"), allocatable: allocatable.clone(), ..Node::default() }).collect()
}

pub fn dig(name: &str) -> DigRef {
    DigRef { id: Uuid::now_v7(), project: "default".into(), composite_app: name.into(), version: "v1".into(), name: name.into() }
}

/// An app of `replicas` pods of `cpu` millicores that may run on any of `members`.
pub fn app(name: &str, replicas: u32, cpu: i64, members: &[&str]) -> AppRequest {
    let requests = Amounts::pod(cpu, cpu << 20);
    let group = PodGroup { workload: format!("Deployment/{name}"), replicas, requests, ..PodGroup::default() };
    let keys: Vec<MemberKey> = members.iter().map(|key| MemberKey((*key).into())).collect();
    let element = |key: &MemberKey| Element {
        cluster_provider: Some(key.provider().into()),
        cluster: Some(key.cluster().into()),
        ..Element::default()
    };
    let intent = Intent { any_of: keys.iter().map(element).collect(), ..Intent::default() };
    AppRequest {
        app: name.into(),
        demand: Demand { groups: vec![group], ..Demand::default() },
        terms: PlacementTerms { intent, logical_cloud: keys.into(), ..PlacementTerms::default() },
    }
}

pub fn request(dig: &DigRef, apps: Vec<AppRequest>) -> DecisionRequest {
    DecisionRequest { dig: dig.clone(), apps, overflow: false, refused: Vec::new(), operation: Uuid::now_v7(), fence: 1 }
}

pub fn transaction(fence: i64, changes: Vec<LedgerChange>) -> LedgerTransaction {
    LedgerTransaction { operation: Uuid::now_v7(), fence, changes }
}

/// The bindings that a decision chose, by app.
pub fn bindings(decision: &Decision) -> BTreeMap<String, (Uuid, String)> {
    decision
        .apps
        .iter()
        .flat_map(|app| {
            app.groups.iter().filter_map(|group| {
                let placement = group.placement.as_ref()?;
                Some((app.app.clone(), (placement.binding, placement.member.0.clone())))
            })
        })
        .collect()
}

pub struct Placement {
    pub failpoints: Failpoints,
    server: HttpServer,
    stop: DropGuard,
}

impl Placement {
    /// Starts placement and waits until it is ready. Every exchange is checked against the OpenAPI document.
    pub async fn start(db: &TestDb, manager: &ClusterManager) -> Self {
        let placement = Self::start_cold(db, manager).await;
        placement.ready().await;
        placement
    }

    pub async fn start_cold(db: &TestDb, manager: &ClusterManager) -> Self {
        Self::assemble(db, manager.url(), true).await
    }

    /// As [`Placement::start`], on the database at this URL.
    pub async fn start_on(database: SecretString, manager: &ClusterManager) -> Self {
        let placement = Self::assemble_on(&database, manager.url(), true).await;
        placement.ready().await;
        placement
    }

    pub async fn assemble(db: &TestDb, cluster_manager: Url, checked: bool) -> Self {
        Self::assemble_on(&db.url, cluster_manager, checked).await
    }

    async fn assemble_on(database: &SecretString, cluster_manager: Url, checked: bool) -> Self {
        let peers = Peers { cluster_manager, ..Peers::default() };
        let common = Common::new(database.expose_secret(), TOKEN, peers).scoped("placement");
        let failpoints = Failpoints::default();
        let router = assemble(&common, failpoints.clone()).await.unwrap();
        let router = match checked {
            true => openapi::validated(router, serde_json::to_value(drover_placement::openapi()).unwrap()),
            false => router,
        };
        Self { failpoints, server: HttpServer::start(router).await, stop: common.shutdown.clone().drop_guard() }
    }

    /// Waits until the members and all their capacity are known.
    pub async fn ready(&self) {
        eventually(TIMEOUT, async || {
            let clusters = self.clusters().await;
            (!clusters.is_empty() && clusters.iter().all(|cluster| cluster.age_ms.is_some())).then_some(())
        })
        .await;
    }

    /// Stops it like SIGKILL: nothing is finished or answered.
    pub fn kill(self) {
        drop(self.stop);
    }

    pub async fn send<B: Serialize>(&self, method: Method, path: &str, body: Option<&B>) -> (StatusCode, Value) {
        let mut request = reqwest::Client::new().request(method, self.server.url(path)).bearer_auth(TOKEN);
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    #[track_caller]
    fn expect<T: DeserializeOwned>((status, body): (StatusCode, Value)) -> T {
        assert!(status.is_success(), "{status}: {body:#}");
        serde_json::from_value(body).unwrap()
    }

    /// Repeated while the database does not answer: connections that a test has cut are noticed when they are used next.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> T {
        let answer = eventually(TIMEOUT, async || {
            let answer = self.send(Method::GET, path, None::<&()>).await;
            (answer.0 != StatusCode::SERVICE_UNAVAILABLE).then_some(answer)
        });
        Self::expect(answer.await)
    }

    /// Explains an app of the composite app `shop`, which these members refused.
    pub async fn explain(&self, app: &str, refused: &[RefusedDestination]) -> Explanation {
        let question = ExplainQuestion { project: "default".into(), group: "shop".into(), app: app.into(), refused: refused.to_vec() };
        Self::expect(self.send(Method::POST, "/internal/explanations", Some(&question)).await)
    }

    pub async fn decide(&self, id: Uuid, request: &DecisionRequest) -> Decision {
        Self::expect(self.send(Method::PUT, &format!("/internal/decisions/{id}"), Some(request)).await)
    }

    pub async fn try_transact(&self, id: Uuid, transaction: &LedgerTransaction) -> (StatusCode, Value) {
        self.send(Method::PUT, &format!("/internal/transactions/{id}"), Some(transaction)).await
    }

    pub async fn transact(&self, transaction: &LedgerTransaction) -> LedgerReceipt {
        Self::expect(self.try_transact(Uuid::now_v7(), transaction).await)
    }

    pub async fn clusters(&self) -> Vec<ClusterCapacity> {
        self.get("/v2/clusters?view=capacity").await
    }

    pub async fn claims(&self, query: &str) -> Claims {
        self.get(&format!("/internal/claims?{query}")).await
    }

    pub async fn fleet(&self) -> BTreeMap<String, FleetItem> {
        let page: FeedPage<FleetItem> = self.get("/internal/feeds/fleet").await;
        page.items.into_iter().filter_map(|item| Some((item.key, item.value?))).collect()
    }
}
