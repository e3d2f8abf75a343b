//! A cluster-manager with its own database, two simulated clusters behind a real port, and a scripted placement.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::Query;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use drover_api::ledger::Claims;
use drover_api::members::Member;
use drover_cluster_manager::{Config, openapi, start};
use drover_kubesim::{ClusterSpec, Sim};
use drover_scheduling::{Capacity, Claim};
use drover_service::{Common, FeedReader, Peer, Peers, Running, SealSettings};
use drover_store::SealKey;
use drover_testkit::{HttpServer, TestDb, test_db};
use reqwest::{Method, multipart};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::net::TcpListener;
use uuid::Uuid;

const TOKEN: &str = "peer-token";
/// Longer than any of the service's own deadlines.
const TIMEOUT: Duration = Duration::from_secs(60);

pub struct Stack {
    pub sim: Sim,
    pub sim_url: String,
    pub pool: PgPool,
    pub placement: Placement,
    running: Option<Running>,
    proxy: HttpServer,
    pub common: Common,
    pub config: Config,
    _placement: HttpServer,
    _db: TestDb,
    _keys: tempdir::Dir,
}

/// A directory that is removed with the value.
mod tempdir {
    pub struct Dir(pub std::path::PathBuf);
    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

pub fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

pub fn document() -> Value {
    serde_json::to_value(openapi()).unwrap()
}

impl Stack {
    pub async fn start() -> Self {
        Self::with(|_, _| {}).await
    }

    /// The same with other settings.
    pub async fn with(change: impl FnOnce(&mut Config, &mut Common)) -> Self {
        let db = test_db().await;
        let sim = Sim::new();
        for name in ["a", "b"] {
            sim.add_cluster(name, ClusterSpec::with_nodes(2, "4", "8Gi"));
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let sim_url = format!("http://{}", listener.local_addr().unwrap());
        sim.serve(listener);
        let placement = Placement::default();
        let placement_server = HttpServer::start(placement.router()).await;
        let peers = Peers { placement: placement_server.url("/").parse().unwrap(), ..Peers::default() };
        let mut common = Common::new(db.url.expose_secret(), TOKEN, peers);
        common.local_clusters = true;
        let keys = tempdir::Dir(std::env::temp_dir().join(format!("drover-keys-{}", Uuid::new_v4())));
        std::fs::create_dir_all(&keys.0).unwrap();
        let key_file = keys.0.join("seal.key");
        SealKey::from_file_or_create(&key_file).unwrap();
        let mut config = Config { heartbeat_ms: 300, metrics_ms: 300, seal: SealSettings::in_file(key_file), ..Config::default() };
        change(&mut config, &mut common);
        let pool = PgPool::connect(db.url.expose_secret()).await.unwrap();
        let running = start(config.clone(), common.clone()).await.unwrap();
        let proxy = drover_testkit::openapi::proxy(running.addr, document()).await;
        Self {
            sim,
            sim_url,
            pool,
            placement,
            running: Some(running),
            proxy,
            common,
            config,
            _placement: placement_server,
            _db: db,
            _keys: keys,
        }
    }

    pub async fn restart(&mut self) {
        self.running.take().unwrap().stop().await;
        let running = start(self.config.clone(), self.common.clone()).await.unwrap();
        self.proxy = drover_testkit::openapi::proxy(running.addr, document()).await;
        self.running = Some(running);
    }

    pub fn peer(&self) -> Peer {
        Peer::new("cluster-manager", self.proxy.url("/").parse().unwrap(), SecretString::from(TOKEN))
    }

    /// The service itself, for what is no exchange of documents.
    pub fn direct(&self) -> Peer {
        let at = self.running.as_ref().unwrap().addr;
        Peer::new("cluster-manager", format!("http://{at}/").parse().unwrap(), SecretString::from(TOKEN))
    }

    /// Where the service itself answers.
    pub fn address(&self) -> String {
        format!("http://{}", self.running.as_ref().unwrap().addr)
    }

    pub async fn call(
        &self,
        method: Method,
        path: &str,
        shape: impl FnOnce(reqwest::RequestBuilder) -> reqwest::RequestBuilder,
    ) -> HttpAnswer {
        let response = shape(reqwest::Client::new().request(method, self.proxy.url(path))).send().await.unwrap();
        HttpAnswer { status: response.status().as_u16(), body: response.text().await.unwrap() }
    }
    pub async fn post(&self, path: &str, body: Value) -> HttpAnswer {
        self.call(Method::POST, path, |request| request.json(&body)).await
    }
    pub async fn put(&self, path: &str, body: Value) -> HttpAnswer {
        self.call(Method::PUT, path, |request| request.json(&body)).await
    }
    pub async fn get(&self, path: &str) -> HttpAnswer {
        self.call(Method::GET, path, |request| request).await
    }
    pub async fn delete(&self, path: &str) -> HttpAnswer {
        self.call(Method::DELETE, path, |request| request).await
    }

    /// Uploads a kubeconfig as a multipart form, as EMCO's clients do.
    pub async fn upload(&self, method: Method, path: &str, name: &str, kubeconfig: &str) -> HttpAnswer {
        let file = multipart::Part::text(kubeconfig.to_owned()).file_name("kubeconfig");
        let form = multipart::Form::new().text("metadata", named(name).to_string()).part("file", file);
        self.call(method, path, |request| request.multipart(form)).await
    }

    pub async fn register(&self, provider: &str, cluster: &str) -> Value {
        let kubeconfig = self.sim.kubeconfig(cluster, &self.sim_url);
        self.upload(Method::POST, &format!("/v2/cluster-providers/{provider}/clusters"), cluster, &kubeconfig).await.is(201)
    }

    pub async fn register_json(&self, provider: &str, cluster: &str) -> Value {
        use base64::Engine;
        let file = base64::engine::general_purpose::STANDARD.encode(self.sim.kubeconfig(cluster, &self.sim_url));
        self.post(&format!("/v2/cluster-providers/{provider}/clusters"), json!({"metadata": {"name": cluster}, "file": file})).await.is(201)
    }

    pub async fn count(&self, table: &str) -> i64 {
        let query = format!("select count(*) from drover_cluster_manager.{table}");
        sqlx::query_scalar(sqlx::AssertSqlSafe(query)).fetch_one(&self.pool).await.unwrap()
    }

    #[track_caller]
    pub fn member(&self, key: &str, wanted: impl Fn(&Member) -> bool) -> impl Future<Output = Member> {
        self.follow("members", key, wanted)
    }

    #[track_caller]
    pub fn capacity(&self, key: &str, wanted: impl Fn(&Capacity) -> bool) -> impl Future<Output = Capacity> {
        self.follow("capacity", key, wanted)
    }

    pub async fn gone(&self, key: &str) {
        let mut reader = FeedReader::<Member>::new(self.peer(), "/internal/feeds/members");
        let gone = async {
            loop {
                let batch = reader.next().await;
                let told = batch.items.iter().find(|(known, _)| known == key);
                if (batch.reset && told.is_none()) || told.is_some_and(|(_, value)| value.is_none()) {
                    return;
                }
            }
        };
        tokio::time::timeout(TIMEOUT, gone).await.expect("the member is removed from the feed");
    }

    #[track_caller]
    fn follow<T: DeserializeOwned + std::fmt::Debug>(&self, feed: &str, key: &str, wanted: impl Fn(&T) -> bool) -> impl Future<Output = T> {
        let caller = std::panic::Location::caller();
        let mut reader = FeedReader::<T>::new(self.peer(), format!("/internal/feeds/{feed}"));
        let (key, last) = (key.to_owned(), Arc::new(Mutex::new(None)));
        async move {
            let seen = last.clone();
            let found = async {
                loop {
                    for (known, value) in reader.next().await.items {
                        match value {
                            Some(value) if known == key && wanted(&value) => return value,
                            Some(value) if known == key => *seen.lock().unwrap() = Some(value),
                            _ => {}
                        }
                    }
                }
            };
            tokio::time::timeout(TIMEOUT, found).await.unwrap_or_else(|_| panic!("{caller}: the last value was {:?}", last.lock().unwrap()))
        }
    }
}

pub struct HttpAnswer {
    status: u16,
    body: String,
}

impl HttpAnswer {
    pub fn text(&self) -> &str {
        &self.body
    }
    #[track_caller]
    pub fn is(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }
    #[track_caller]
    pub fn refused(&self, status: u16, code: &str) -> Value {
        let problem = self.is(status);
        assert_eq!(problem["code"], code, "{problem}");
        problem
    }
}

/// A placement that returns the claims that the test sets.
#[derive(Clone, Default)]
pub struct Placement(Arc<Mutex<Scripted>>);

#[derive(Default)]
struct Scripted {
    claims: Vec<(String, Claim)>,
    failing: bool,
    watching: Option<Peer>,
    seen: Option<String>,
}

impl Placement {
    pub fn claim(&self, member: &str) {
        let dig = json!({"id": Uuid::new_v4(), "project": "demo", "compositeApp": "shop", "version": "v1", "name": "shop"});
        let claim = json!({"id": Uuid::new_v4(), "dig": dig, "request": request(), "member": member, "state": "held", "pods": [], "fence": 1, "operation": Uuid::new_v4()});
        self.0.lock().unwrap().claims.push((member.to_owned(), serde_json::from_value(claim).unwrap()));
    }
    pub fn clear(&self) {
        self.0.lock().unwrap().claims.clear();
    }
    pub fn fail(&self, failing: bool) {
        self.0.lock().unwrap().failing = failing;
    }
    /// From now on, each request for claims records the state that the feed has for the member.
    pub fn watch_state(&self, peer: Peer) {
        self.0.lock().unwrap().watching = Some(peer);
    }
    pub fn state_seen(&self) -> Option<String> {
        self.0.lock().unwrap().seen.clone()
    }

    fn router(&self) -> Router {
        let placement = self.clone();
        Router::new().route(
            "/internal/claims",
            get(move |query: Query<Vec<(String, String)>>| {
                let placement = placement.clone();
                async move {
                    let watching = placement.0.lock().unwrap().watching.clone();
                    if let Some(peer) = watching {
                        let page: Value = peer.get("/internal/feeds/members").await.unwrap();
                        placement.0.lock().unwrap().seen = page["items"][0]["value"]["state"].as_str().map(str::to_owned);
                    }
                    let scripted = placement.0.lock().unwrap();
                    if scripted.failing {
                        return StatusCode::SERVICE_UNAVAILABLE.into_response();
                    }
                    let member = query.0.iter().find(|(key, _)| key == "member").map(|(_, value)| value.clone());
                    let items =
                        scripted.claims.iter().filter(|(of, _)| Some(of) == member.as_ref()).map(|(_, claim)| claim.clone()).collect();
                    axum::Json(Claims { items }).into_response()
                }
            }),
        )
    }
}

fn request() -> Value {
    serde_json::to_value(drover_scheduling::AppRequest { app: "cart".to_owned(), ..Default::default() }).unwrap()
}
