//! Answers of every service, over TCP as clients see them: problems, common pages, access checks, calls of peers, feeds.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Extension;
use drover_service::peer::segment;
use drover_service::{
    BodyLimit, Common, FeedContact, FeedHub, FeedReader, Json, Path, Peer, PeerError, Peers, Problem, Query, bind, codes, router, serve,
};
use reqwest::{Client, Method, StatusCode};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
struct Thing {
    size: u32,
}

#[derive(Deserialize, utoipa::IntoParams)]
struct Which {
    // The handler only checks that the query can be read.
    #[allow(dead_code)]
    size: Option<u32>,
}

#[utoipa::path(post, path = "/v2/things/{id}", operation_id = "thing_post", params(("id" = u32, Path), Which), request_body = Thing,
    responses((status = 200, description = "It", body = Thing)))]
async fn post(_id: Path<u32>, _which: Query<Which>, thing: Json<Thing>) -> Json<Thing> {
    thing
}

#[utoipa::path(get, path = "/v2/broken/{how}", operation_id = "broken_get", params(("how" = String, Path)), responses((status = 200, description = "Never")))]
async fn broken(how: Path<String>) -> Result<(), Problem> {
    match how.0.as_str() {
        "panic" => panic!("secret words"),
        "internal" => Err(Problem::internal(std::io::Error::other("secret words"))),
        _ => Err(codes::BUSY.problem("x holds it").instance("/v2/operations/1").reason("r")),
    }
}

#[utoipa::path(get, path = "/internal/echo/{text}", operation_id = "echo_get", params(("text" = String, Path)), responses((status = 200, description = "It", body = String)))]
async fn echo(text: Path<String>) -> Json<String> {
    Json(text.0)
}

struct Server {
    running: drover_service::Running,
    common: Common,
}

impl Server {
    async fn start(hub: &FeedHub<Thing>, change: impl FnOnce(&mut Common)) -> Self {
        let mut common = Common::new("postgres://none", "token", Peers::default()).scoped("test");
        change(&mut common);
        let routes = OpenApiRouter::new()
            .routes(routes!(post))
            .routes(routes!(broken))
            .routes(routes!(echo))
            .routes(hub.route("/internal/feeds/things", "things_feed"));
        let listener = bind("127.0.0.1:0".parse().unwrap(), &common).await.unwrap();
        let app = router(routes, &common).layer(Extension(BodyLimit(1000)));
        Self { running: serve(listener, app, &common), common }
    }
    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.running.addr)
    }
    fn peer(&self) -> Peer {
        Peer::new("test", self.url("/").parse().unwrap(), SecretString::from("token"))
    }
    async fn problem(&self, method: Method, path: &str, body: Option<(&str, &str)>) -> (u16, String, Value) {
        let mut request = Client::new().request(method, self.url(path));
        if let Some((content_type, body)) = body {
            request = request.header("content-type", content_type).body(body.to_owned());
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "application/problem+json", "{path}");
        let (status, id) = (response.status().as_u16(), response.headers()["x-request-id"].to_str().unwrap().to_owned());
        let problem: Value = response.json().await.unwrap();
        assert_eq!(problem["status"], status);
        if problem["code"] != "busy" {
            assert_eq!(problem["instance"], id, "the problem names the request");
        }
        (status, problem["code"].as_str().unwrap().to_owned(), problem)
    }
}

#[tokio::test]
async fn errors_are_answered_with_a_problem_document() {
    let server = Server::start(&FeedHub::new(), |_| {}).await;
    let json = "application/json";
    let large = "x".repeat(200_000);
    for (method, path, body, expected) in [
        (Method::GET, "/nowhere", None, (404, "not_found")),
        (Method::DELETE, "/v2/things/1", None, (405, "method_not_allowed")),
        (Method::POST, "/v2/things/1", None, (400, "empty_body")),
        (Method::POST, "/v2/things/1", Some((json, "{")), (422, "malformed_json")),
        (Method::POST, "/v2/things/1", Some((json, r#"{"size":"a"}"#)), (422, "malformed_json")),
        (Method::POST, "/v2/things/1", Some(("text/plain", "{}")), (415, "unsupported_media_type")),
        (Method::POST, "/v2/things/1", Some(("application/x-www-form-urlencoded", r#"{"size":1}"#)), (415, "unsupported_media_type")),
        (Method::POST, "/v2/things/1", Some((json, large.as_str())), (413, "too_large")),
        (Method::POST, "/v2/things/1", Some((json, "{}")), (400, "invalid")),
        (Method::POST, "/v2/things/x", Some((json, r#"{"size":1}"#)), (404, "not_found")),
        (Method::POST, "/v2/things/1?size=x", Some((json, r#"{"size":1}"#)), (400, "invalid")),
        (Method::GET, "/v2/broken/panic", None, (500, "internal")),
        (Method::GET, "/v2/broken/internal", None, (500, "internal")),
        (Method::GET, "/v2/broken/busy", None, (409, "busy")),
        (Method::GET, "/internal/echo/x", None, (401, "unauthorized")),
        (Method::GET, "/internal/nowhere", None, (401, "unauthorized")),
    ] {
        let (status, code, problem) = server.problem(method, path, body).await;
        assert_eq!((status, code.as_str()), expected, "{path}: {problem}");
        assert!(!problem.to_string().contains("secret"), "{problem}");
    }
    let (_, _, busy) = server.problem(Method::GET, "/v2/broken/busy", None).await;
    assert_eq!(
        (&busy["instance"], &busy["reasons"], &busy["type"]),
        (&json!("/v2/operations/1"), &json!(["r"]), &json!("/docs/errors/busy"))
    );
    let page = Client::new().get(server.url("/docs/errors/busy")).send().await.unwrap().text().await.unwrap();
    assert!(page.starts_with("# Another operation"));
    server.running.stop().await;
}

#[tokio::test]
async fn router_serves_the_common_pages() {
    let server = Server::start(&FeedHub::new(), |_| {}).await;
    let get = async |path: &str| {
        let response = Client::new().get(server.url(path)).send().await.unwrap();
        (response.status(), response.text().await.unwrap())
    };
    assert_eq!(get("/healthz").await, (StatusCode::OK, "ok\n".to_owned()));
    assert_eq!(get("/readyz").await.0, StatusCode::OK);
    server.common.readiness.check("moon", || async { Err("too far".to_owned()) });
    server.common.readiness.heard("sun", FeedContact::default());
    let (status, ready) = get("/readyz").await;
    let checks = json!({"moon": "too far", "sun": "its feed has not answered yet"});
    assert_eq!(
        (status, serde_json::from_str::<Value>(&ready).unwrap()),
        (StatusCode::SERVICE_UNAVAILABLE, json!({"ready": false, "checks": checks}))
    );
    let document: Value = serde_json::from_str(&get("/openapi.json").await.1).unwrap();
    assert_eq!(document["info"]["title"], "drover test");
    let operation = &document["paths"]["/v2/things/{id}"]["post"];
    assert_eq!(operation["responses"]["default"]["content"]["application/problem+json"]["schema"]["$ref"], "#/components/schemas/Problem");
    let metrics = get("/metrics").await.1;
    assert!(metrics.contains(r#"drover_http_requests_total{route="/healthz",method="GET",status="200"} 1"#), "{metrics}");
    server.running.stop().await;
}

#[tokio::test]
async fn guard_asks_for_the_token_of_each_path() {
    let server = Server::start(&FeedHub::new(), |common| common.api_token = Some(SecretString::from("api"))).await;
    let status =
        async |path: &str, token: &str| Client::new().get(server.url(path)).bearer_auth(token).send().await.unwrap().status().as_u16();
    assert_eq!(status("/v2/broken/busy", "wrong").await, 401);
    assert_eq!(status("/v2/broken/busy", "api").await, 409);
    assert_eq!(status("/v2/broken/busy", "token").await, 409, "the gateway forwards with the peer token");
    assert_eq!(status("/internal/echo/x", "api").await, 401, "clients never reach /internal");
    assert_eq!(status("/internal/echo/x", "token").await, 200);
    assert_eq!(status("/healthz", "wrong").await, 200);
    let browser = async |method: Method, password: &str| {
        let request = Client::new().request(method, server.url("/v2/broken/busy")).basic_auth("", Some(password));
        let response = request.header("accept", "text/html").send().await.unwrap();
        let asks = response.headers().get("www-authenticate").map(|how| how.to_str().unwrap()[..5].to_owned());
        (response.status().as_u16(), asks)
    };
    assert_eq!(browser(Method::GET, "wrong").await, (401, Some("Basic".to_owned())), "a browser asks for the token");
    assert_eq!(browser(Method::GET, "api").await, (409, None));
    assert_eq!(browser(Method::GET, "token").await.0, 401, "the peer token is no password");
    assert_eq!(browser(Method::POST, "api").await.0, 401, "another site can make a browser write with its password");
    let mut open = server.common.clone();
    bind("0.0.0.0:0".parse().unwrap(), &open).await.unwrap();
    open.api_token = None;
    assert!(bind("0.0.0.0:0".parse().unwrap(), &open).await.unwrap_err().to_string().contains("--api-token-file"));
    server.running.stop().await;
}

#[tokio::test]
async fn guard_refuses_other_hosts_and_writes_of_other_sites() {
    for token in [None, Some("api")] {
        let server = Server::start(&FeedHub::new(), |common| {
            common.api_token = token.map(SecretString::from);
            common.allowed_hosts = vec!["Drover.example".to_owned()];
        })
        .await;
        let own = server.running.addr.to_string();
        let local = format!("localhost:{}", server.running.addr.port());
        let code = async |method: Method, headers: &[(&'static str, &str)]| {
            let request = Client::new().request(method, server.url("/v2/broken/busy")).bearer_auth("api");
            let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
            request.send().await.unwrap().json::<Value>().await.unwrap()["code"].as_str().unwrap().to_owned()
        };
        for (host, expected) in [
            (own.as_str(), "busy"),
            (local.as_str(), "busy"),
            ("[::1]:9", "busy"),
            ("drover.example", "busy"),
            ("DROVER.example:7070", "busy"),
            ("evil.example", "host_not_allowed"),
            ("evil.example:7070", "host_not_allowed"),
            ("localhost.evil.example", "host_not_allowed"),
            ("127.0.0.1.evil.example", "host_not_allowed"),
            ("user@evil.example", "host_not_allowed"),
            ("", "host_not_allowed"),
        ] {
            assert_eq!(code(Method::GET, &[("host", host)]).await, expected, "Host: {host} with the token {token:?}");
        }
        let own_page = format!("http://{own}");
        let other_port = "http://127.0.0.1:1".to_owned();
        for (headers, expected) in [
            (vec![], "method_not_allowed"),
            (vec![("origin", own_page.as_str())], "method_not_allowed"),
            (vec![("origin", "https://drover.example")], "method_not_allowed"),
            (vec![("sec-fetch-site", "same-origin")], "method_not_allowed"),
            (vec![("origin", "https://evil.example")], "origin_refused"),
            (vec![("origin", "https://evil.example"), ("sec-fetch-site", "same-origin")], "origin_refused"),
            (vec![("origin", other_port.as_str())], "origin_refused"),
            (vec![("origin", "null")], "origin_refused"),
            (vec![("sec-fetch-site", "cross-site")], "origin_refused"),
            (vec![("sec-fetch-site", "same-site")], "origin_refused"),
        ] {
            assert_eq!(code(Method::POST, &headers).await, expected, "{headers:?} with the token {token:?}");
        }
        assert_eq!(code(Method::GET, &[("origin", "https://evil.example")]).await, "busy", "reading is safe: no answer is shared");
        server.running.stop().await;
    }
}

#[tokio::test]
async fn session_of_a_link_reads_and_writes_from_its_own_page_only() {
    let server = Server::start(&FeedHub::new(), |common| common.api_token = Some(SecretString::from("api"))).await;
    let key = server.common.sessions.link(drover_service::Identity::ApiToken);
    let cookie = server.common.sessions.sign_in(&key).unwrap().to_str().unwrap().to_owned();
    for wanted in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(wanted), "{cookie}");
    }
    assert!(server.common.sessions.sign_in(&key).is_none(), "a link works once");
    assert!(server.common.sessions.sign_in("guess").is_none());
    let session = cookie.split(';').next().unwrap().to_owned();
    let status = async |method: Method, cookie: &str, origin: Option<String>| {
        let mut request = Client::new().request(method, server.url("/v2/broken/busy")).header("cookie", cookie);
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        request.send().await.unwrap().status().as_u16()
    };
    let own = Some(format!("http://{}", server.running.addr));
    assert_eq!(status(Method::GET, &session, None).await, 409);
    assert_eq!(status(Method::GET, &format!("a=b; {session}"), None).await, 409);
    assert_eq!(status(Method::GET, "drover_session=guess", None).await, 401);
    assert_eq!(status(Method::POST, &session, own).await, 405, "allowed, but there is no such operation");
    assert_eq!(status(Method::POST, &session, None).await, 401, "a browser says which page a write comes from");
    assert_eq!(status(Method::POST, &session, Some("https://evil.example".into())).await, 403);
    let internal = Client::new().get(server.url("/internal/echo/x")).header("cookie", &session).send().await.unwrap();
    assert_eq!(internal.status(), 401);
    server.running.stop().await;
}

#[tokio::test]
async fn answers_forbid_frames_guessed_types_and_foreign_content() {
    let server = Server::start(&FeedHub::new(), |_| {}).await;
    for path in ["/openapi.json", "/v2/broken/busy", "/v2/broken/panic", "/nowhere"] {
        let headers = Client::new().get(server.url(path)).send().await.unwrap().headers().clone();
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
        assert_eq!(
            (&headers["x-content-type-options"], &headers["x-frame-options"]),
            (&"nosniff".parse().unwrap(), &"DENY".parse().unwrap())
        );
    }
    server.running.stop().await;
}

#[tokio::test]
async fn peer_get_returns_values_and_typed_errors() {
    let server = Server::start(&FeedHub::new(), |_| {}).await;
    let text = "a+b/c ä%";
    assert_eq!(server.peer().get::<String>(&format!("/internal/echo/{}", segment(text))).await.unwrap(), text);
    let refused = server.peer().get::<Value>("/v2/broken/busy").await.unwrap_err();
    assert_eq!((refused.code(), refused.is_retryable(), refused.problem().unwrap().reasons.len()), (Some("busy"), false, 1));
    assert_eq!(server.peer().find::<Value>("/v2/nothing").await.unwrap(), None);
    assert!(matches!(server.peer().get::<u32>("/internal/echo/x").await, Err(PeerError::Undecodable { .. })));
    let nobody = Peer::new("nobody", "http://127.0.0.1:1".parse().unwrap(), SecretString::from("t")).attempts(2);
    let away = nobody.get::<Value>("/x").await.unwrap_err();
    assert!(away.is_retryable() && matches!(away, PeerError::Unavailable { .. }));
    assert_eq!(Problem::from(away).code(), codes::PEER_UNAVAILABLE);
    server.running.stop().await;
}

#[tokio::test]
async fn feed_reader_follows_changes_restarts_and_pages() {
    let hub = FeedHub::new();
    for size in 0..3 {
        hub.publish(format!("k{size}"), Some(Thing { size }));
    }
    hub.publish("k0", None);
    let server = Server::start(&hub, |_| {}).await;
    let mut reader = FeedReader::<Thing>::new(server.peer(), "/internal/feeds/things");
    let contact = reader.contact();
    assert!(contact.age().is_none());
    let first = reader.next().await;
    let items: BTreeMap<_, _> = first.items.into_iter().collect();
    assert!(first.reset && !items.contains_key("k0") && items.len() == 2);
    assert!(contact.age().unwrap() < Duration::from_secs(60));

    hub.publish("k1", Some(Thing { size: 9 }));
    hub.publish("k2", None);
    hub.publish("k1", Some(Thing { size: 10 }));
    let next = reader.next().await;
    assert!(!next.reset);
    assert_eq!(next.items, [("k2".to_owned(), None), ("k1".to_owned(), Some(Thing { size: 10 }))], "newest value per key, in order");
    hub.publish_if_changed("k1", Some(Thing { size: 10 }));
    let (waited, ()) = tokio::join!(reader.next(), async {
        // The reader waits in its long poll, or soon will; it gets this change in both cases.
        tokio::task::yield_now().await;
        hub.publish("k3", Some(Thing { size: 3 }));
    });
    assert_eq!(waited.items, [("k3".to_owned(), Some(Thing { size: 3 }))], "an equal value is not published");

    // Another instance of the service has other versions, so it sends everything.
    let other = FeedHub::new();
    other.publish("k9", Some(Thing { size: 9 }));
    let page = other.page(Some("gone:7"), Duration::ZERO, &Default::default()).await;
    assert!(page.reset && page.items.len() == 1);

    // Removed keys are forgotten in the end, and a reader with an older version gets a reset.
    let since = hub.page(None, Duration::ZERO, &Default::default()).await.version;
    for round in 0..3_000 {
        hub.publish(format!("x{round}"), Some(Thing { size: 0 }));
        hub.publish(format!("x{round}"), None);
    }
    let late = hub.page(Some(&since), Duration::ZERO, &Default::default()).await;
    assert!(late.reset && late.items.len() == 2, "{} items", late.items.len());

    // Several pages become one batch, also when the future that reads them is dropped again and again.
    for n in 0..2_500 {
        hub.publish(format!("much{n}"), Some(Thing { size: n }));
    }
    let page = hub.page(None, Duration::ZERO, &Default::default()).await;
    assert!(page.reset && page.more && page.items.len() == 1_000, "{} items", page.items.len());
    // Each time it gets longer, because on a slow machine no page comes within the first time.
    let mut patience = Duration::from_millis(5);
    let much = loop {
        if let Ok(batch) = tokio::time::timeout(patience, reader.next()).await {
            break batch;
        }
        patience *= 2;
    };
    assert!(much.reset, "its version is older than the forgotten keys");
    let sizes: Vec<_> = much.items.iter().filter_map(|(_, thing)| thing.as_ref()).map(|thing| thing.size).collect();
    assert!(sizes.ends_with(&(0..2_500).collect::<Vec<_>>()) && sizes.len() == 2_502, "{} values", sizes.len());

    // The end of the service ends its long polls.
    let long = tokio::spawn(async move { reader.next().await });
    tokio::time::timeout(Duration::from_secs(8), server.running.stop()).await.expect("a waiting reader does not delay the end");
    long.abort();
}
