//! Three kinds against a real Postgres: a root, a child of it, and a child of another service's document with a file.
//! Each exchange is also checked against the document that the kinds describe themselves with.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use async_trait::async_trait;
use axum::extract::FromRef;
use drover_resources as resources;
use drover_service::{Common, Peers, Problem, codes};
use drover_store::{SealKey, Store, StoreConfig, Tx};
use drover_testkit::{HttpServer, TestDb, openapi, seal_key, test_db};
use reqwest::{Method, StatusCode, header, multipart};
use resources::{Change, DocumentKind, Documents, Echo, File, Foreign, Hooks, Invalid, Keep, Place, Put, Reference, Spec, Verb};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::Connection;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use uuid::Uuid;

#[derive(Debug, PartialEq, Serialize, Deserialize, ToSchema)]
struct FarmSpec {
    #[serde(default = "ten")]
    priority: u8,
}

fn ten() -> u8 {
    10
}

impl Spec for FarmSpec {
    fn validate(&self, _: &str) -> Result<(), Invalid> {
        if (1..=10).contains(&self.priority) { Ok(()) } else { Err(Invalid::rule("spec.priority: 1 to 10")) }
    }
}

static FARM: DocumentKind = DocumentKind::of::<FarmSpec>("farm", "Farm", "farms", &["farm"]).echo(Echo::IfSent);

#[derive(Debug, Serialize, Deserialize, ToSchema)]
struct CowSpec {
    breed: String,
    version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    friend: Option<String>,
}

impl Spec for CowSpec {
    fn references(&self, at: &Place<'_>) -> Vec<Reference> {
        self.friend.iter().map(|friend| Reference { field: "spec.friend", path: format!("{}/cows/{friend}", at.parent) }).collect()
    }
}

static COW: DocumentKind =
    DocumentKind::of::<CowSpec>("cow", "Cow", "cows", &["cow", "version"]).below(&FARM).put(Put::Upsert).filters(&[("breed", "breed")]);

static REPORT: DocumentKind = DocumentKind::of::<resources::NoSpec>("report", "Report", "reports", &["report"])
    .below_foreign("Office", "/v2/offices/{office}")
    .put(Put::Ok200)
    .echo(Echo::Never)
    .file(File {
        required: true,
        many: false,
        keep: Keep::Table,
        max_bytes: 1 << 20,
        content_type: "application/x-report",
        check: report_bytes,
    });

static PAGE: DocumentKind =
    DocumentKind::of::<resources::NoSpec>("page", "Page", "pages", &["page"]).below(&REPORT).echo(Echo::Never).put(Put::None);

/// Any number of files, and nothing is done with them.
static ALBUM: DocumentKind = DocumentKind::of::<resources::AnySpec>("album", "Album", "albums", &["album"])
    .below(&FARM)
    .filters(&[("called", "metadata.name")])
    .kept("nobody looks at \"albums\"")
    .file(File {
        required: false,
        many: true,
        keep: Keep::Table,
        max_bytes: 1 << 20,
        content_type: "application/octet-stream",
        check: |_| Ok(()),
    });

fn report_bytes(bytes: &[u8]) -> Result<(), Invalid> {
    if bytes.starts_with(b"REPORT") { Ok(()) } else { Err(Invalid::with(codes::MALFORMED_UPLOAD, "Error in file format")) }
}

/// Offices of the other service, and what the hooks saw.
#[derive(Clone, Default)]
struct TestHooks {
    offices: Arc<Mutex<HashMap<String, Uuid>>>,
    seen: Arc<Mutex<Vec<String>>>,
    /// What was asked before a transaction, and whether that was to be a delete.
    asked: Arc<Mutex<Vec<(String, bool)>>>,
    /// The store, which has one connection.
    store: Arc<OnceLock<Store>>,
}

#[async_trait]
impl Hooks for TestHooks {
    async fn before(&self, _: &'static DocumentKind, path: &str, delete: bool) -> Result<(), Problem> {
        self.asked.lock().unwrap().push((path.to_owned(), delete));
        // With a transaction open, the only connection would be taken.
        self.store.get().unwrap().acquire().await?;
        Ok(())
    }
    async fn guard(&self, _: &mut Tx, change: &Change<'_>) -> Result<(), Problem> {
        match change.before {
            Some(before) if before.name == "sacred" => Err(codes::WRONG_STATE.problem("never touch it")),
            _ => Ok(()),
        }
    }
    async fn written(&self, _: &mut Tx, change: &Change<'_>) -> Result<(), Problem> {
        if change.verb == Verb::Create && change.path.contains("cursed") {
            return Err(codes::WRONG_STATE.problem("the side table refuses it"));
        }
        Ok(())
    }
    async fn committed(&self, change: &Change<'_>) {
        self.seen.lock().unwrap().push(format!("{:?} {}", change.verb, change.path));
    }
    async fn foreign_parent(&self, _: &Foreign, path: &str) -> Result<Option<Uuid>, Problem> {
        Ok(self.offices.lock().unwrap().get(path).copied())
    }
}

#[derive(Clone)]
struct App(Documents);

impl FromRef<App> for Documents {
    fn from_ref(app: &App) -> Self {
        app.0.clone()
    }
}

struct Stack {
    server: HttpServer,
    store: Store,
    hooks: TestHooks,
    _db: TestDb,
}

struct HttpAnswer {
    status: StatusCode,
    headers: header::HeaderMap,
    bytes: Vec<u8>,
}

impl HttpAnswer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&self.bytes).into_owned()))
    }
    #[track_caller]
    fn is(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.json());
        self.json()
    }
    #[track_caller]
    fn refused(&self, status: u16, code: &str) -> Value {
        let problem = self.is(status);
        assert_eq!((problem["code"].as_str(), problem["status"].as_u64()), (Some(code), Some(u64::from(status))), "{problem}");
        assert_eq!(self.headers[header::CONTENT_TYPE], "application/problem+json");
        problem
    }
}

impl Stack {
    async fn start() -> Self {
        let db = test_db().await;
        let config = StoreConfig { max_connections: 1, ..StoreConfig::new("resources-test", db.url.clone()) };
        let store = Store::connect(&config, &[resources::migrations()]).await.unwrap();
        let store = store.with_key(Arc::new(SealKey::parse(&seal_key()).unwrap()));
        let hooks = TestHooks::default();
        hooks.store.set(store.clone()).unwrap();
        let routes = || resources::mount_all(OpenApiRouter::<App>::new(), &[&FARM, &COW, &REPORT, &PAGE, &ALBUM]);
        let document = serde_json::to_value(drover_service::openapi::document("test", routes())).unwrap();
        let app = App(Documents::new(store.clone(), hooks.clone()));
        let common = Common::new("postgres://unused", "token", Peers::default());
        let router = openapi::validated(drover_service::router(routes().with_state(app), &common), document);
        Self { server: HttpServer::start(router).await, store, hooks, _db: db }
    }

    async fn call(&self, method: Method, path: &str, shape: impl FnOnce(reqwest::RequestBuilder) -> reqwest::RequestBuilder) -> HttpAnswer {
        let response = shape(reqwest::Client::new().request(method, self.server.url(path))).send().await.unwrap();
        HttpAnswer { status: response.status(), headers: response.headers().clone(), bytes: response.bytes().await.unwrap().to_vec() }
    }
    async fn post(&self, path: &str, body: Value) -> HttpAnswer {
        self.call(Method::POST, path, |request| request.json(&body)).await
    }
    async fn put(&self, path: &str, body: Value) -> HttpAnswer {
        self.call(Method::PUT, path, |request| request.json(&body)).await
    }
    async fn get(&self, path: &str) -> HttpAnswer {
        self.call(Method::GET, path, |request| request).await
    }
    async fn delete(&self, path: &str) -> HttpAnswer {
        self.call(Method::DELETE, path, |request| request).await
    }
    async fn count(&self, table: &str) -> i64 {
        sqlx::query_scalar(sqlx::AssertSqlSafe(format!("select count(*) from {table}")))
            .fetch_one(&mut *self.store.acquire().await.unwrap())
            .await
            .unwrap()
    }
}

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn cow(name: &str, breed: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"breed": breed, "version": "v1"}})
}

#[tokio::test]
async fn root_document_is_created_replaced_read_and_deleted() {
    let stack = Stack::start().await;
    let made = stack.post("/v2/farms", named("a")).await;
    assert_eq!(made.is(201), json!({"metadata": {"name": "a", "description": "", "userData1": "", "userData2": ""}}), "no spec was sent");
    assert_eq!(made.headers[header::LOCATION], "/v2/farms/a");
    stack.post("/v2/farms", named("a")).await.refused(409, "already_exists");

    let changed = stack.put("/v2/farms/a", json!({"metadata": {"name": "a", "userData1": "u"}, "spec": {}})).await;
    assert_eq!(changed.is(201)["spec"], json!({"priority": 10}), "an empty spec is a spec, with its defaults");
    stack.put("/v2/farms/b", named("a")).await.refused(400, "mismatched_name");
    stack.put("/v2/farms/b", named("b")).await.refused(404, "not_found");

    let read = stack.get("/v2/farms/a").await;
    assert_eq!(read.is(200)["metadata"]["userData1"], "u");
    assert_eq!(read.headers[header::ETAG], changed.headers[header::ETAG]);
    let stale = made.headers[header::ETAG].clone();
    stack.call(Method::DELETE, "/v2/farms/a", |request| request.header("if-match", stale)).await.refused(412, "precondition_failed");
    let no_text = header::HeaderValue::from_bytes(&[0xff]).unwrap();
    stack.call(Method::DELETE, "/v2/farms/a", |request| request.header("if-match", no_text)).await.refused(412, "precondition_failed");
    stack.delete("/v2/farms/a").await.is(204);
    stack.delete("/v2/farms/a").await.refused(404, "not_found");
    assert_eq!(*stack.hooks.seen.lock().unwrap(), ["Create /v2/farms/a", "Replace /v2/farms/a", "Delete /v2/farms/a"]);
    let asked = stack.hooks.asked.lock().unwrap().clone();
    assert!([false, true].into_iter().all(|delete| asked.contains(&("/v2/farms/a".to_owned(), delete))), "{asked:?}");

    let again = stack.post("/v2/farms", named("a")).await;
    assert_ne!(again.headers[header::ETAG], made.headers[header::ETAG], "a version is never given twice");
}

#[tokio::test]
async fn bad_input_has_its_code_and_writes_nothing() {
    let stack = Stack::start().await;
    stack.call(Method::POST, "/v2/farms", |request| request).await.refused(400, "empty_body");
    stack
        .call(Method::POST, "/v2/farms", |request| request.body("{").header("content-type", "application/json"))
        .await
        .refused(422, "malformed_json");
    stack
        .call(Method::POST, "/v2/farms", |request| request.body("<a/>").header("content-type", "text/xml"))
        .await
        .refused(415, "unsupported_media_type");
    stack.post("/v2/farms", json!({"metadata": {"name": 3}})).await.refused(422, "malformed_json");
    stack.post("/v2/farms", json!({"metadata": {}})).await.refused(400, "invalid");
    for name in ["", "-a", "a/b", "a b", "ä", &"x".repeat(129)] {
        stack.post("/v2/farms", named(name)).await.refused(400, "invalid");
    }
    stack.post("/v2/farms", json!({"metadata": {"name": "a", "description": "x".repeat(1025)}})).await.refused(400, "invalid");
    let broken = stack.post("/v2/farms", json!({"metadata": {"name": "a"}, "spec": {"priority": 11}})).await.refused(400, "invalid");
    assert_eq!(broken["detail"], "Invalid Input: spec.priority: 1 to 10");
    stack.post("/v2/farms", json!({"metadata": {"name": "a"}, "spec": {"priority": "1"}})).await.refused(422, "malformed_json");
    stack
        .call(Method::POST, "/v2/farms", |request| request.body(vec![b' '; 50 << 20]).header("content-type", "application/json"))
        .await
        .refused(413, "too_large");
    stack.post("/v2/farms", json!({"metadata": {"name": "a", "description": "\0"}})).await.refused(400, "invalid");
    stack.post("/v2/farms", json!({"metadata": {"name": "a"}, "spec": {"x\0": 1}})).await.refused(400, "invalid");
    stack.get("/v2/farms?after=%00").await.refused(400, "invalid");
    stack.get("/v2/farms/%00").await.refused(404, "not_found");
    stack.post("/v2/farms/a/cows", cow("c", "x")).await.refused(404, "parent_not_found");
    stack.get("/v2/farms/a/cows").await.refused(404, "parent_not_found");
    stack.get("/v2/barns").await.refused(404, "not_found");
    stack.call(Method::PATCH, "/v2/farms", |request| request).await.refused(405, "method_not_allowed");
    stack.get("/v2/farms?limit=x").await.refused(400, "invalid");
    assert_eq!(stack.count("resource").await, 0);
}

#[tokio::test]
async fn unknown_keys_are_named_refused_or_passed_over() {
    let stack = Stack::start().await;
    let body = |name: &str| json!({"metadata": {"name": name, "colour": "red"}, "spec": {"priority": 2, "size": 1}, "x": 1});
    let warned = stack.post("/v2/farms", body("a")).await;
    assert_eq!(warned.is(201)["spec"], json!({"priority": 2}));
    let warnings: Vec<_> = warned.headers.get_all(header::WARNING).iter().map(|value| value.to_str().unwrap()).collect();
    assert_eq!(
        warnings,
        ["299 drover \"unknown field metadata.colour\"", "299 drover \"unknown field x\"", "299 drover \"unknown field spec.size\""]
    );
    let refused = stack.post("/v2/farms?fieldValidation=Strict", body("b")).await.refused(400, "invalid");
    assert_eq!(refused["reasons"].as_array().unwrap().len(), 3);
    let silent = stack.post("/v2/farms?fieldValidation=Ignore", body("c")).await;
    silent.is(201);
    assert!(silent.headers.get(header::WARNING).is_none());
    stack.post("/v2/farms?dryRun=All", named("d")).await.is(201);
    stack.get("/v2/farms/d").await.refused(404, "not_found");
}

#[tokio::test]
async fn children_references_and_guards_hold() {
    let stack = Stack::start().await;
    stack.post("/v2/farms", named("a")).await.is(201);
    stack.post("/v2/farms/a/cows", cow("rosa", "red")).await.is(201);
    stack.put("/v2/farms/a/cows/berta/v1", cow("berta", "black")).await.is(201);
    stack.put("/v2/farms/a/cows/berta/v1", cow("berta", "white")).await.is(200);
    stack.put("/v2/farms/a/cows/berta/v2", cow("berta", "white")).await.refused(400, "mismatched_name");
    stack.post("/v2/farms/a/cows", named("nameless")).await.refused(400, "invalid");
    assert_eq!(stack.get("/v2/farms/a/cows?breed=red").await.is(200).as_array().unwrap().len(), 1);

    let friend = |name: &str| json!({"metadata": {"name": "friendly"}, "spec": {"breed": "x", "version": "v1", "friend": name}});
    stack.post("/v2/farms/a/cows", friend("nobody/v1")).await.refused(409, "reference_not_found");
    stack.post("/v2/farms/a/cows", friend("rosa/v1")).await.is(201);
    let refused = stack.delete("/v2/farms/a/cows/rosa/v1").await.refused(409, "has_references");
    assert_eq!(refused["reasons"], json!(["/v2/farms/a/cows/friendly/v1"]));
    stack.put("/v2/farms/a/cows/friendly/v1", friend("berta/v1")).await.is(200);
    stack.delete("/v2/farms/a/cows/rosa/v1").await.is(204);
    stack.delete("/v2/farms/a").await.refused(409, "has_children");

    stack.post("/v2/farms", named("sacred")).await.is(201);
    stack.put("/v2/farms/sacred", named("sacred")).await.refused(409, "wrong_state");
    stack.delete("/v2/farms/sacred").await.refused(409, "wrong_state");
    stack.post("/v2/farms", named("cursed")).await.refused(409, "wrong_state");
    stack.get("/v2/farms/cursed").await.refused(404, "not_found");

    let mut db = stack.store.acquire().await.unwrap();
    let farm = resources::get::<FarmSpec>(&mut db, &FARM, "/v2/farms/a").await.unwrap().unwrap();
    assert_eq!(farm.spec, FarmSpec { priority: 10 }, "what was not sent is the default");
    let cows = resources::children::<CowSpec>(&mut db, &COW, farm.id).await.unwrap();
    assert_eq!(cows.iter().map(|cow| cow.path.as_str()).collect::<Vec<_>>(), ["/v2/farms/a/cows/berta/v1", "/v2/farms/a/cows/friendly/v1"]);
    assert_eq!(FARM.within(&cows[0].path), Some("/v2/farms/a"));
}

#[tokio::test]
async fn documents_below_several_others_are_read_together() {
    let stack = Stack::start().await;
    for farm in ["a", "a.b", "a0", "b"] {
        stack.post("/v2/farms", named(farm)).await.is(201);
        stack.post(&format!("/v2/farms/{farm}/cows"), cow("rosa", "x")).await.is(201);
        stack.post(&format!("/v2/farms/{farm}/albums"), named("rosa")).await.is(201);
    }
    let mut db = stack.store.acquire().await.unwrap();
    let below = resources::Below::read(&mut db, &[(&COW, "/v2/farms/a"), (&COW, "/v2/farms/b"), (&ALBUM, "/v2/farms/b")]).await.unwrap();
    for (farm, cows, albums) in [("a", 1, 0), ("a.b", 0, 0), ("a0", 0, 0), ("b", 1, 1)] {
        let farm = resources::get::<FarmSpec>(&mut db, &FARM, &format!("/v2/farms/{farm}")).await.unwrap().unwrap();
        let found = below.children::<CowSpec>(&COW, farm.id).unwrap();
        assert!(found.iter().all(|cow| cow.path == format!("{}/cows/rosa/v1", farm.path)), "{found:?}");
        let pictures = below.children::<resources::AnySpec>(&ALBUM, farm.id).unwrap();
        assert_eq!((found.len(), pictures.len()), (cows, albums), "{}", farm.path);
    }
    let farms = resources::Below::read(&mut db, &[(&FARM, "/v2/farms/a")]).await.unwrap();
    let names =
        ["a", "a.b", "a0"].map(|farm| farms.at::<FarmSpec>(&FARM, &format!("/v2/farms/{farm}")).unwrap().map(|farm| farm.name.clone()));
    assert_eq!(names, [Some("a".into()), None, None]);
}

#[tokio::test]
async fn documents_below_others_are_read_without_the_rest_of_the_table() {
    let stack = Stack::start().await;
    let mut db = stack.store.acquire().await.unwrap();
    let fill = "insert into resource (id, kind, path, name, metadata, spec)
        select gen_random_uuid(), 'farm', '/v2/farms/' || name, name, jsonb_build_object('name', name), '{}'
        from generate_series(1, 5000) farm, concat('f', farm) name";
    sqlx::query(fill).execute(&mut *db).await.unwrap();
    sqlx::query("analyze resource").execute(&mut *db).await.unwrap();
    // The view counts what the connection that asks has read, and so far this one had nothing to read. It plans as Postgres plans a prepared
    // statement that is used often.
    let mut fresh = stack.store.connection([("plan_cache_mode", "force_generic_plan")]).await.unwrap();
    let mut tx = fresh.begin().await.unwrap();
    let found = resources::Below::read(&mut tx, &[(&FARM, "/v2/farms/f17"), (&COW, "/v2/farms/f17")]).await.unwrap();
    let read = "select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables where relid = 'resource'::regclass";
    let read: i64 = sqlx::query_scalar(read).fetch_one(&mut *tx).await.unwrap();
    assert!(found.at::<FarmSpec>(&FARM, "/v2/farms/f17").unwrap().is_some());
    assert!(read < 10, "{read} documents were read to find one");
}

#[tokio::test]
async fn lists_are_in_order_of_creation_and_pages_survive_a_deletion() {
    let stack = Stack::start().await;
    stack.post("/v2/farms", named("a")).await.is(201);
    stack.post("/v2/farms", named("a.b")).await.is(201);
    stack.post("/v2/farms/a.b/cows", cow("other", "x")).await.is(201);
    for name in ["c3", "c1", "c2"] {
        stack.post("/v2/farms/a/cows", cow(name, "x")).await.is(201);
    }
    let names = |answer: &HttpAnswer| {
        answer.is(200).as_array().unwrap().iter().map(|cow| cow["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let first = stack.get("/v2/farms/a/cows?limit=2").await;
    assert_eq!(names(&first), ["c3", "c1"]);
    stack.delete("/v2/farms/a/cows/c1/v1").await.is(204);
    let link = first.headers[header::LINK].to_str().unwrap();
    let next = link.strip_prefix('<').unwrap().split_once('>').unwrap().0;
    let rest = stack.get(next).await;
    assert_eq!(names(&rest), ["c2"]);
    assert!(rest.headers.get(header::LINK).is_none());
    assert_eq!(names(&stack.get("/v2/farms/a/cows?after=c3/v1").await), ["c2"], "a name is accepted too");
    stack.get("/v2/farms/a/cows?after=c1/v1").await.refused(400, "invalid");
}

#[tokio::test]
async fn files_come_both_ways_and_are_stored_once() {
    let stack = Stack::start().await;
    stack.hooks.offices.lock().unwrap().insert("/v2/offices/o".to_owned(), Uuid::new_v4());
    let form = |name: &str, bytes: &'static [u8]| {
        multipart::Form::new().text("metadata", named(name).to_string()).part("file", multipart::Part::bytes(bytes).file_name("r"))
    };
    stack.call(Method::POST, "/v2/offices/o/reports", |request| request.multipart(form("r1", b"REPORT 1"))).await.is(201);
    stack.post("/v2/offices/o/reports", json!({"metadata": {"name": "r2"}, "file": "UkVQT1JUIDE="})).await.is(201);
    assert_eq!(stack.count("file").await, 1, "the same bytes are stored once");
    stack.post("/v2/offices/o/reports", named("r3")).await.refused(422, "malformed_upload");
    stack.post("/v2/offices/o/reports", json!({"metadata": {"name": "r3"}, "file": "%%"})).await.refused(422, "malformed_upload");
    stack
        .call(Method::POST, "/v2/offices/o/reports", |request| request.multipart(form("r3", b"no")))
        .await
        .refused(422, "malformed_upload");
    stack
        .call(Method::POST, "/v2/offices/o/reports", |request| request.multipart(multipart::Form::new().text("file", "x")))
        .await
        .refused(400, "empty_body");

    let bytes = |answer: HttpAnswer| {
        assert_eq!(answer.status, 200);
        answer.bytes
    };
    let raw = stack.call(Method::GET, "/v2/offices/o/reports/r2", |request| request.header("accept", "application/octet-stream")).await;
    assert_eq!(raw.headers[header::CONTENT_TYPE], "application/x-report");
    assert_eq!(bytes(raw), b"REPORT 1");
    let both = stack.call(Method::GET, "/v2/offices/o/reports/r2", |request| request.header("accept", "multipart/form-data")).await;
    assert!(String::from_utf8_lossy(&bytes(both)).contains("REPORT 1"));
    stack.put("/v2/offices/o/reports/r1", named("r1")).await.is(200);
    stack.call(Method::PUT, "/v2/offices/o/reports/r1", |request| request.multipart(form("r1", b"REPORT 2"))).await.is(200);
    assert_eq!(stack.count("file").await, 2);
    stack.delete("/v2/offices/o/reports/r1").await.is(204);
    stack.delete("/v2/offices/o/reports/r2").await.is(204);
    assert_eq!(stack.count("file").await, 0, "nobody needs them any more");
}

#[tokio::test]
async fn a_foreign_parent_made_again_inherits_nothing() {
    let stack = Stack::start().await;
    let report = json!({"metadata": {"name": "r"}, "file": "UkVQT1JUIDE="});
    stack.post("/v2/offices/o/reports", report.clone()).await.refused(404, "parent_not_found");
    let first = Uuid::new_v4();
    stack.hooks.offices.lock().unwrap().insert("/v2/offices/o".to_owned(), first);
    stack.post("/v2/offices/o/reports", report.clone()).await.is(201);
    stack.post("/v2/offices/o/reports/r/pages", named("p")).await.is(201);
    stack.hooks.offices.lock().unwrap().insert("/v2/offices/o".to_owned(), Uuid::new_v4());
    assert_eq!(stack.get("/v2/offices/o/reports").await.is(200), json!([]));
    stack.get("/v2/offices/o/reports/r").await.refused(404, "not_found");
    stack.put("/v2/offices/o/reports/r", report.clone()).await.refused(404, "not_found");
    stack.delete("/v2/offices/o/reports/r").await.refused(404, "not_found");
    stack.post("/v2/offices/o/reports/r/pages", named("q")).await.refused(404, "parent_not_found");
    stack.post("/v2/offices/o/reports", report).await.is(201);
    let mut db = stack.store.acquire().await.unwrap();
    assert_eq!(
        resources::below_foreign::<resources::NoSpec>(&mut db, &PAGE, first).await.unwrap().len(),
        0,
        "the old page went with its report"
    );
}

#[tokio::test]
async fn several_files_are_one_and_kept_documents_say_so() {
    let stack = Stack::start().await;
    stack.post("/v2/farms", named("a")).await.is(201);
    let part = |bytes: &'static [u8], name: &'static str| multipart::Part::bytes(bytes).file_name(name);
    let form = multipart::Form::new()
        .text("metadata", json!({"metadata": {"name": "one"}, "spec": {"any": ["thing"]}}).to_string())
        .part("files", part(b"1", "a.txt"))
        .part("files", part(b"2", "b.txt"));
    let made = stack.call(Method::POST, "/v2/farms/a/albums", |request| request.multipart(form)).await;
    assert_eq!(made.headers[header::WARNING], "299 drover \"kept, not carried out: nobody looks at 'albums'\"");
    assert_eq!(made.is(201)["spec"], json!({"any": ["thing"]}));
    let files = json!([{"name": "a.txt", "content": "MQ=="}, {"name": "b.txt", "content": "Mg=="}]);
    stack.post("/v2/farms/a/albums", json!({"metadata": {"name": "two"}, "files": files})).await.is(201);
    for album in ["one", "two"] {
        let path = format!("/v2/farms/a/albums/{album}");
        let stored = stack.call(Method::GET, &path, |request| request.header("accept", "application/octet-stream")).await;
        assert_eq!(serde_json::from_slice::<Value>(&stored.bytes).unwrap(), files, "{album}");
    }
    let broken = json!({"metadata": {"name": "three"}, "files": [{"name": "a", "content": "%"}]});
    stack.post("/v2/farms/a/albums", broken).await.refused(422, "malformed_upload");
    assert_eq!(stack.get("/v2/farms/a/albums?called=two").await.is(200)[0]["metadata"]["name"], "two");
    stack.get("/v2/farms/a/albums?called=three").await.refused(404, "not_found");
}
