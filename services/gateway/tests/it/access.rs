//! Tokens, roles, what is shown, the audit log and limits, before services that say what reached them.

use std::path::PathBuf;
use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::routing::{get, post};
use axum::{Json, Router};
use drover_gateway::{AuditSettings, Config, ProgramSettings, RateSettings, start};
use drover_service::{Common, Peers, Running};
use drover_testkit::{HttpServer, TestDb, eventually, test_db};
use hyper_util::rt::TokioIo;
use reqwest::{Client, Method, Response};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::proxy::config;

pub const ADMIN: &str = "the api token of the configuration";
const GROUP: &str = "/v2/projects/shop/composite-apps/shop/v1/deployment-intent-groups/shop";
const OPERATION: &str = "019a6b1e-7c11-7d0e-b6a1-3f2f0e6f9c55";
const COPY: &str = "019a6b1e-7c11-7d0e-b6a1-000000000001";

/// All services in one. What it does not know it answers with what it was asked.
async fn services() -> HttpServer {
    let app = |project: &str, name: &str, binding: &str| {
        json!({"project": project, "compositeApp": name, "version": "v1", "dig": name, "app": "web", "state": "Instantiated",
            "bindings": [{"binding": binding, "member": "onprem+a", "phase": "Ready"}]})
    };
    let apps = json!({"items": [app("shop", "shop", COPY), app("blog", "weblog", "019a6b1e-7c11-7d0e-b6a1-000000000002")]});
    let operation = |subject: &str, message: &str| json!({"id": OPERATION, "kind": "instantiate", "subject": subject, "state": "running", "message": message, "steps": [], "createdAt": "now"});
    let of_blog = operation("blog/weblog/v1/weblog", "weblog/web");
    let list = json!({"items": [of_blog, operation("shop/shop/v1/shop", "waits for weblog/web")]});
    let echo = async |request: Request| {
        let text = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap_or_default().to_owned());
        Json(json!({"method": request.method().as_str(), "path": request.uri().path(), "user": text("drover-user"),
            "movable": text("drover-movable-projects"), "token": text("authorization")}))
    };
    let router = Router::new()
        .route("/v2/apps", get(|| async move { Json(apps) }))
        .route("/v2/operations", get(|| async move { Json(list) }))
        .route("/v2/operations/{id}", get(|| async move { Json(of_blog) }))
        .route("/v2/cluster-providers/{provider}/clusters/{cluster}/copies/{binding}/exec", post(program))
        .fallback(echo);
    HttpServer::start(router).await
}

/// A program that ends with its input.
async fn program(mut request: Request) -> (StatusCode, HeaderMap) {
    let client = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut client = TokioIo::new(client.await.unwrap());
        while client.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {}
    });
    let headers = [(header::CONNECTION, "Upgrade"), (header::UPGRADE, "websocket")];
    (StatusCode::SWITCHING_PROTOCOLS, headers.map(|(name, value)| (name, HeaderValue::from_static(value))).into_iter().collect())
}

pub struct Gateway {
    pub running: Running,
    database: TestDb,
    _services: HttpServer,
    pub http: Client,
}

impl Gateway {
    async fn start(change: impl FnOnce(&mut Config)) -> Self {
        Self::before(services().await, change).await
    }

    pub async fn before(services: HttpServer, change: impl FnOnce(&mut Config)) -> Self {
        Self::with_api_token(services, Some(ADMIN), change).await
    }

    async fn with_api_token(services: HttpServer, api_token: Option<&str>, change: impl FnOnce(&mut Config)) -> Self {
        let database = test_db().await;
        let url: url::Url = services.url("/").parse().unwrap();
        let peers = Peers {
            cluster_manager: url.clone(),
            orchestrator: url.clone(),
            placement: url.clone(),
            migration: url.clone(),
            resource_synchronizer: url,
        };
        let mut common = Common::new(database.url.expose_secret(), "peer token", peers);
        common.api_token = api_token.map(SecretString::from);
        let mut config = Config { max_connections_per_address: 1000, ..config() };
        change(&mut config);
        let running = start(config, common).await.unwrap();
        Self { running, database, _services: services, http: Client::new() }
    }

    async fn send(&self, method: Method, path: &str, token: &str, body: Option<Value>) -> Response {
        let mut request = self.http.request(method, format!("http://{}{path}", self.running.addr)).bearer_auth(token);
        if let Some(body) = body {
            request = request.json(&body);
        }
        request.send().await.unwrap()
    }

    /// Status and body; null if it is none.
    async fn ask(&self, method: Method, path: &str, token: &str, body: Option<Value>) -> (u16, Value) {
        let answer = self.send(method, path, token, body).await;
        (answer.status().as_u16(), answer.json().await.unwrap_or_default())
    }

    /// The status line for a path that is sent as it is; HTTP clients resolve `..` before they send it.
    async fn status_line(&self, path: &str, token: &str) -> String {
        let mut connection = TcpStream::connect(self.running.addr).await.unwrap();
        let host = self.running.addr;
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.unwrap();
        answer.lines().next().unwrap_or_default().to_owned()
    }

    async fn status(&self, method: Method, path: &str, token: &str) -> u16 {
        self.send(method, path, token, None).await.status().as_u16()
    }

    pub async fn token(&self, name: &str, role: &str, projects: Value) -> String {
        let order = json!({"name": name, "role": role, "projects": projects});
        let (status, made) = self.ask(Method::POST, "/v2/tokens", ADMIN, Some(order)).await;
        assert_eq!(status, 201, "{made}");
        made["token"].as_str().unwrap().to_owned()
    }

    pub async fn audit(&self) -> Vec<Value> {
        let (status, list) = self.ask(Method::GET, "/v2/audit?limit=1000", ADMIN, None).await;
        assert_eq!(status, 200, "{list}");
        list["items"].as_array().unwrap().clone()
    }

    pub async fn database(&self) -> PgConnection {
        let mut connection = PgConnection::connect(self.database.url.expose_secret()).await.unwrap();
        sqlx::query("set search_path = drover_gateway").execute(&mut connection).await.unwrap();
        connection
    }
}

#[tokio::test]
async fn token_works_until_it_is_revoked_or_ends_and_its_secret_is_stored_nowhere() {
    let gateway = Gateway::start(|_| {}).await;
    let token = gateway.token("ci", "deployer", json!(["shop"])).await;
    assert_eq!(gateway.status(Method::GET, GROUP, &token).await, 200);
    let (_, me) = gateway.ask(Method::GET, "/v2/whoami", &token, None).await;
    assert_eq!(me, json!({"name": "ci", "roles": [{"role": "deployer", "projects": ["shop"]}]}));
    let (status, problem) = gateway.ask(Method::POST, "/v2/tokens", ADMIN, Some(json!({"name": "ci", "role": "viewer"}))).await;
    assert_eq!((status, &problem["code"]), (409, &json!("already_exists")));

    let link: Value = gateway.send(Method::POST, "/v2/login-links", &token, None).await.json().await.unwrap();
    let login = gateway.http.get(format!("http://{}{}", gateway.running.addr, link["path"].as_str().unwrap())).send().await.unwrap();
    let cookie = login.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let session = async |path: &str| {
        let url = format!("http://{}{path}", gateway.running.addr);
        gateway.http.get(url).header("cookie", &cookie).send().await.unwrap().status().as_u16()
    };
    assert_eq!((session(GROUP).await, session("/v2/tokens").await), (200, 403), "a session has the roles of its token");

    let mut database = gateway.database().await;
    let stored: String = sqlx::query_scalar("select string_agg(token::text, '') from token").fetch_one(&mut database).await.unwrap();
    assert!(stored.contains("ci") && !stored.contains(&token) && !stored.contains(&token[7..]), "{stored}");

    assert_eq!(gateway.status(Method::DELETE, "/v2/tokens/ci", ADMIN).await, 204);
    assert_eq!(gateway.status(Method::GET, GROUP, &token).await, 401);
    assert_eq!(session(GROUP).await, 401, "its sessions end with it");
    assert_eq!(gateway.status(Method::DELETE, "/v2/tokens/ci", ADMIN).await, 404);

    let short = gateway.token("ci", "viewer", Value::Null).await;
    assert_eq!(gateway.status(Method::GET, GROUP, &short).await, 200);
    sqlx::query("update token set expires_at = now() where revoked_at is null").execute(&mut database).await.unwrap();
    // The gateway does not know of an end that somebody else has brought forward until it looks the token up again.
    eventually(Duration::from_secs(30), async || (gateway.status(Method::GET, GROUP, &short).await == 401).then_some(())).await;
    gateway.token("ci", "viewer", Value::Null).await;
    gateway.running.stop().await;
}

#[tokio::test]
async fn revoked_token_is_refused_where_everybody_may_do_everything() {
    let gateway = Gateway::with_api_token(services().await, None, |_| {}).await;
    let token = gateway.token("ci", "viewer", json!(["shop"])).await;
    assert_eq!(gateway.status(Method::POST, "/v2/projects", &token).await, 403);
    assert_eq!(gateway.status(Method::DELETE, "/v2/tokens/ci", ADMIN).await, 204, "a token of another form says nothing here");
    let (status, problem) = gateway.ask(Method::POST, "/v2/projects", &token, None).await;
    assert_eq!((status, &problem["code"]), (401, &json!("unauthorized")));
    gateway.running.stop().await;
}

#[tokio::test]
async fn role_decides_what_a_token_may_do_and_where() {
    let gateway = Gateway::start(|_| {}).await;
    let viewer = gateway.token("viewer", "viewer", json!(["shop"])).await;
    let deployer = gateway.token("deployer", "deployer", json!(["shop"])).await;
    let operator = gateway.token("operator", "operator", Value::Null).await;
    let instantiate = format!("{GROUP}/instantiate");
    let blog = "/v2/projects/blog/composite-apps";
    for (method, path, of_viewer, of_deployer, of_operator) in [
        (Method::GET, GROUP, 200, 200, 200),
        (Method::POST, instantiate.as_str(), 403, 200, 200),
        (Method::PUT, "/v2/projects/shop/logical-clouds/default", 403, 403, 200),
        (Method::GET, blog, 404, 404, 200),
        (Method::POST, blog, 404, 404, 200),
        (Method::POST, "/v2/projects", 403, 403, 200),
        (Method::GET, "/v2/cluster-providers/aws/clusters", 200, 200, 200),
        (Method::GET, "/v2/cluster-providers/aws/clusters/a/kv-pairs/secret", 403, 403, 200),
        (Method::PUT, "/v2/cluster-providers/aws/clusters/a/cordon", 403, 403, 200),
        (Method::POST, "/v2/cluster-checks", 403, 403, 200),
        (Method::GET, "/v2/tokens", 403, 403, 403),
        (Method::GET, "/v2/audit", 403, 403, 403),
        (Method::GET, "/v2/nothing", 404, 404, 404),
        (Method::GET, "/internal/claims", 401, 401, 401),
    ] {
        for (token, expected) in [(&viewer, of_viewer), (&deployer, of_deployer), (&operator, of_operator)] {
            let status = gateway.status(method.clone(), path, token).await;
            assert_eq!(status, expected, "{method} {path}");
        }
    }
    assert_eq!(gateway.status_line("/v2/tokens", ADMIN).await, "HTTP/1.1 200 OK");
    for path in ["/v2/projects/shop/../../tokens", "/v2/projects/%2e%2e/tokens", "/v2/projects/shop/..%2f..%2ftokens", "/v2//tokens"] {
        for token in [&viewer, &operator] {
            let line = gateway.status_line(path, token).await;
            assert!(line.contains(" 403 ") || line.contains(" 404 "), "{path}: {line}");
        }
    }
    let file = gateway.http.get(format!("http://{}/v2/projects/shop/composite-apps/shop/v1/apps/web", gateway.running.addr));
    let file = file.header("accept", "application/octet-stream");
    let status = async |token: &str| file.try_clone().unwrap().bearer_auth(token).send().await.unwrap().status().as_u16();
    assert_eq!((status(&viewer).await, status(&deployer).await), (403, 200), "files may hold Secrets");

    let (_, told) = gateway.ask(Method::POST, &instantiate, &deployer, None).await;
    assert_eq!((&told["user"], &told["movable"]), (&json!("deployer"), &json!(r#"["shop"]"#)), "apps of others stay where they are");
    assert_eq!(told["token"], "Bearer peer token", "the sender's own token stays here");
    let drain = json!({"kind": "drain", "clusterProvider": "onprem", "cluster": "a"});
    let newcomer = |project: &str| json!({"kind": "newcomer", "project": project, "compositeApp": "shop", "compositeAppVersion": "v1", "deploymentIntentGroup": "shop"});
    let plan = async |wish: Value| gateway.ask(Method::POST, "/v2/plans", &deployer, Some(wish)).await.0;
    assert_eq!((plan(newcomer("shop")).await, plan(newcomer("blog")).await, plan(drain).await), (200, 404, 403));
    gateway.running.stop().await;
}

#[tokio::test]
async fn project_user_sees_nothing_of_others() {
    let gateway = Gateway::start(|_| {}).await;
    let viewer = gateway.token("viewer", "viewer", json!(["shop"])).await;
    let all = gateway.token("auditor", "viewer", Value::Null).await;
    for (path, of_all) in [("/v2/apps", 2), ("/v2/operations", 2)] {
        let (_, whole) = gateway.ask(Method::GET, path, &all, None).await;
        assert_eq!(whole["items"].as_array().unwrap().len(), of_all, "{path}");
        let (_, seen) = gateway.ask(Method::GET, path, &viewer, None).await;
        assert_eq!(seen["items"].as_array().unwrap().len(), 1, "{path}: {seen}");
        assert!(!seen.to_string().contains("blog"), "{path}: {seen}");
    }
    let operation = format!("/v2/operations/{OPERATION}");
    assert_eq!(gateway.status(Method::GET, &operation, &viewer).await, 404);
    assert_eq!(gateway.status(Method::GET, &format!("{operation}/events"), &viewer).await, 404);
    assert_eq!(gateway.status(Method::GET, &operation, &all).await, 200);
    let log = |copy: &str| format!("/v2/cluster-providers/onprem/clusters/a/copies/{copy}/log");
    assert_eq!(gateway.status(Method::GET, &log(COPY), &viewer).await, 200);
    assert_eq!(gateway.status(Method::GET, &log("019a6b1e-7c11-7d0e-b6a1-000000000002"), &viewer).await, 404);
    assert_eq!(gateway.status(Method::GET, &log(COPY).replace("/a/", "/b/"), &viewer).await, 404);
    gateway.running.stop().await;
}

#[tokio::test]
async fn audit_log_has_every_write_and_refusal_and_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let file: PathBuf = folder.path().join("audit.jsonl");
    let gateway = Gateway::start(|config| config.audit = AuditSettings { file: Some(file.clone()) }).await;
    let token = gateway.token("ci", "deployer", json!(["shop"])).await;
    gateway.status(Method::POST, &format!("{GROUP}/instantiate?key=in-a-query"), &token).await;
    gateway.status(Method::GET, GROUP, &token).await;
    gateway.status(Method::DELETE, "/v2/projects/shop/logical-clouds/default", &token).await;
    gateway.status(Method::GET, "/v2/tokens", &token).await;
    gateway.status(Method::DELETE, "/v2/tokens/ci", ADMIN).await;
    let entries = gateway.audit().await;
    let short: Vec<String> = entries
        .iter()
        .rev()
        .map(|entry| {
            let text = |field: &str| entry[field].as_str().unwrap_or("-").to_owned();
            format!("{} {} {} {} {} {}", text("who"), text("method"), text("path"), text("project"), entry["status"], text("code"))
        })
        .collect();
    assert_eq!(
        short,
        [
            "api-token POST /v2/tokens - 201 -".to_owned(),
            format!("ci POST {GROUP}/instantiate shop 200 -"),
            "ci DELETE /v2/projects/shop/logical-clouds/default shop 403 forbidden".to_owned(),
            "ci GET /v2/tokens - 403 forbidden".to_owned(),
            "api-token DELETE /v2/tokens/ci - 204 -".to_owned(),
        ]
    );
    assert!(entries.iter().all(|entry| entry["from"] == "127.0.0.1" && entry["request"].is_string()), "{entries:?}");
    let lines = std::fs::read_to_string(&file).unwrap();
    assert_eq!(lines.lines().count(), 5, "{lines}");
    for text in [lines, json!(entries).to_string()] {
        for secret in [token.as_str(), &token[7..], ADMIN, "peer token", "in-a-query"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
    let mut database = gateway.database().await;
    for change in ["update audit set who = 'nobody'", "delete from audit_outcome", "truncate audit cascade"] {
        let error = sqlx::query(change).execute(&mut database).await.unwrap_err().to_string();
        assert!(error.contains("append-only"), "{change}: {error}");
    }
    gateway.running.stop().await;
}

#[tokio::test]
async fn request_that_cannot_be_recorded_is_not_carried_out() {
    let gateway = Gateway::start(|_| {}).await;
    let mut database = gateway.database().await;
    sqlx::query("alter table audit rename to audit_away").execute(&mut database).await.unwrap();
    let (status, problem) = gateway.ask(Method::POST, &format!("{GROUP}/instantiate"), ADMIN, None).await;
    assert_eq!((status, &problem["code"]), (500, &json!("internal")), "{problem}");
    assert_eq!(gateway.status(Method::GET, GROUP, ADMIN).await, 200);
    gateway.running.stop().await;
}

#[tokio::test]
async fn token_that_sends_too_much_is_told_when_to_come_back() {
    let gateway = Gateway::start(|config| config.rate = RateSettings { per_second: 1, burst: 2 }).await;
    let token = gateway.token("ci", "viewer", Value::Null).await;
    let answers = futures::future::join_all((0..60).map(|_| gateway.send(Method::GET, GROUP, &token, None))).await;
    let refused: Vec<&Response> = answers.iter().filter(|answer| answer.status() == 429).collect();
    assert!(!refused.is_empty(), "{:?}", answers.iter().map(Response::status).collect::<Vec<_>>());
    for answer in refused {
        assert!(answer.headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);
    }
    assert_eq!(gateway.status(Method::GET, GROUP, ADMIN).await, 200, "others are not concerned");
    gateway.running.stop().await;
}

#[tokio::test]
async fn programs_in_containers_are_limited_for_each_token_and_in_all() {
    let gateway = Gateway::start(|config| config.programs = ProgramSettings { max_programs: 3, max_programs_per_user: 2 }).await;
    let (ci, dev) = (gateway.token("ci", "deployer", Value::Null).await, gateway.token("dev", "deployer", Value::Null).await);
    let path = format!("/v2/cluster-providers/onprem/clusters/a/copies/{COPY}/exec?pod=web-1&command=sh");
    let exec = async |token: &str| {
        let request = gateway.http.post(format!("http://{}{path}", gateway.running.addr)).bearer_auth(token);
        let request = request.header(header::CONNECTION, "Upgrade").header(header::UPGRADE, "websocket");
        request.send().await.unwrap()
    };
    let mut open = Vec::new();
    for token in [&ci, &ci, &dev] {
        open.push(exec(token).await.upgrade().await.expect("the program runs"));
    }
    for (token, why) in [(ci.as_str(), "ci runs 2 programs"), (&dev, "3 programs run"), (ADMIN, "3 programs run")] {
        let refused = exec(token).await;
        assert_eq!(refused.status(), 429, "{why}");
        let problem: Value = refused.json().await.unwrap();
        assert!(problem["code"] == "too_many_programs" && problem["detail"].as_str().unwrap().starts_with(why), "{problem}");
    }
    drop(open.remove(0));
    let again = eventually(Duration::from_secs(30), async || {
        let answer = exec(&ci).await;
        (answer.status() == 101).then_some(answer)
    });
    again.await;
    drop(open);
    gateway.running.stop().await;
}

#[tokio::test]
async fn role_binding_and_token_are_checked_before_they_are_stored() {
    let gateway = Gateway::start(|_| {}).await;
    for order in [
        json!({"name": "CI", "role": "viewer"}),
        json!({"name": "peer", "role": "viewer"}),
        json!({"name": "ci", "role": "root"}),
        json!({"name": "ci", "role": "admin", "projects": ["shop"]}),
        json!({"name": "ci", "role": "viewer", "projects": []}),
        json!({"name": "ci", "role": "viewer", "expiresInSeconds": 0}),
        json!({"name": "ci", "role": "viewer", "project": "shop"}),
    ] {
        let (status, problem) = gateway.ask(Method::POST, "/v2/tokens", ADMIN, Some(order.clone())).await;
        assert_eq!((status, &problem["code"]), (400, &json!("invalid")), "{order}");
    }
    let put = async |body: Value| gateway.ask(Method::PUT, "/v2/role-bindings/team", ADMIN, Some(body)).await.0;
    assert_eq!(put(json!({"name": "team", "subject": "group:shop", "role": "deployer", "projects": ["shop"]})).await, 200);
    assert_eq!(put(json!({"name": "other", "subject": "group:shop", "role": "deployer"})).await, 400);
    assert_eq!(put(json!({"name": "team", "subject": "shop", "role": "deployer"})).await, 400);
    let (_, list) = gateway.ask(Method::GET, "/v2/role-bindings", ADMIN, None).await;
    assert_eq!(list["items"], json!([{"name": "team", "subject": "group:shop", "role": "deployer", "projects": ["shop"]}]));
    assert_eq!(gateway.status(Method::DELETE, "/v2/role-bindings/team", ADMIN).await, 204);
    gateway.running.stop().await;
}
