//! Requests that are sent again with their Idempotency-Key, before a service that counts what reaches it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use drover_testkit::{HttpServer, eventually};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::access::{ADMIN, Gateway};

/// A service that makes plans: with `"hold": true` when it is let go, with `"fail": true` it answers 503.
struct Planner {
    made: AtomicUsize,
    go: Semaphore,
}

struct Hub {
    gateway: Gateway,
    planner: Arc<Planner>,
}

impl Hub {
    async fn start() -> Self {
        let planner = Arc::new(Planner { made: AtomicUsize::new(0), go: Semaphore::new(0) });
        let here = Arc::clone(&planner);
        let make = async move |Json(wish): Json<Value>| {
            let made = here.made.fetch_add(1, Ordering::SeqCst) + 1;
            if wish["hold"] == true {
                here.go.acquire().await.unwrap().forget();
            }
            let status = if wish["fail"] == true { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::CREATED };
            (status, [("location", "/v2/plans/one")], Json(json!({"made": made})))
        };
        let services = HttpServer::start(Router::new().route("/v2/plans", post(make))).await;
        Self { gateway: Gateway::before(services, |_| {}).await, planner }
    }

    fn request(&self, token: &str, key: Option<&str>, body: &Value) -> reqwest::RequestBuilder {
        let request = self.gateway.http.request(Method::POST, format!("http://{}/v2/plans", self.gateway.running.addr));
        let request = request.bearer_auth(token).json(body);
        match key {
            Some(key) => request.header("idempotency-key", key),
            None => request,
        }
    }

    async fn send(&self, token: &str, key: Option<&str>, body: &Value) -> Response {
        self.request(token, key, body).send().await.unwrap()
    }

    /// The number of the plan that the answer has.
    async fn plan(&self, token: &str, key: Option<&str>, body: &Value) -> Value {
        let answer = self.send(token, key, body).await;
        assert_eq!(answer.status(), 201);
        answer.json::<Value>().await.unwrap()["made"].clone()
    }

    fn made(&self) -> usize {
        self.planner.made.load(Ordering::SeqCst)
    }
}

async fn code(answer: Response) -> (u16, Value) {
    let status = answer.status().as_u16();
    (status, answer.json::<Value>().await.unwrap()["code"].clone())
}

#[tokio::test]
async fn repeated_post_is_carried_out_once_and_answered_as_the_first_time() {
    let hub = Hub::start().await;
    let wish = json!({"kind": "drain"});
    let first = hub.send(ADMIN, Some("a"), &wish).await;
    assert_eq!((first.status().as_u16(), first.headers().contains_key("idempotency-replayed")), (201, false));
    let second = hub.send(ADMIN, Some("a"), &wish).await;
    assert_eq!((second.status().as_u16(), &second.headers()["idempotency-replayed"]), (201, &"true".parse().unwrap()));
    assert_eq!(
        (&first.headers()["location"], &first.headers()["content-type"]),
        (&second.headers()["location"], &second.headers()["content-type"])
    );
    assert_eq!(first.json::<Value>().await.unwrap(), second.json::<Value>().await.unwrap());
    assert_eq!(hub.made(), 1);

    assert_eq!(code(hub.send(ADMIN, Some("a"), &json!({"kind": "newcomer"})).await).await, (422, json!("idempotency_key_reused")));
    assert_eq!(code(hub.send(ADMIN, Some(&"a".repeat(201)), &wish).await).await, (400, json!("invalid")));
    let operator = hub.gateway.token("operator", "operator", Value::Null).await;
    assert_eq!(hub.plan(&operator, Some("a"), &wish).await, 2, "another sender's key");
    assert_eq!(hub.plan(ADMIN, Some("b"), &wish).await, 3);
    assert_eq!(hub.plan(ADMIN, None, &wish).await, 4);

    // It expires, and what has expired is removed when another is kept.
    let mut database = hub.gateway.database().await;
    sqlx::query("update idempotency set until = now()").execute(&mut database).await.unwrap();
    assert_eq!(hub.plan(ADMIN, Some("a"), &wish).await, 5);
    let left: i64 = sqlx::query_scalar("select count(*) from idempotency").fetch_one(&mut database).await.unwrap();
    assert_eq!(left, 1);
    assert!(hub.gateway.audit().await.iter().filter(|entry| entry["path"] == "/v2/plans" && entry["status"] == 201).count() == 6);
    hub.gateway.running.stop().await;
}

#[tokio::test]
async fn request_with_a_key_that_cannot_be_recorded_is_not_carried_out_and_leaves_its_key_free() {
    let hub = Hub::start().await;
    let wish = json!({"kind": "drain"});
    let mut database = hub.gateway.database().await;
    sqlx::query("alter table audit rename to audit_away").execute(&mut database).await.unwrap();
    assert_eq!(code(hub.send(ADMIN, Some("a"), &wish).await).await, (500, json!("internal")));
    assert_eq!(hub.made(), 0);
    sqlx::query("alter table audit_away rename to audit").execute(&mut database).await.unwrap();
    assert_eq!(hub.plan(ADMIN, Some("a"), &wish).await, 1);
    hub.gateway.running.stop().await;
}

#[tokio::test]
async fn request_of_a_sender_that_hangs_up_is_carried_out_and_its_repetition_answered() {
    let hub = Hub::start().await;
    let wish = json!({"hold": true});
    let sent = tokio::spawn(hub.request(ADMIN, Some("a"), &wish).send());
    eventually(Duration::from_secs(60), async || (hub.made() == 1).then_some(())).await;
    sent.abort();
    assert!(sent.await.unwrap_err().is_cancelled());
    // The repetition waits for the answer of the first.
    let again = tokio::spawn(hub.request(ADMIN, Some("a"), &wish).send());
    hub.planner.go.add_permits(1);
    let again = again.await.unwrap().unwrap();
    assert_eq!((again.status().as_u16(), &again.headers()["idempotency-replayed"]), (201, &"true".parse().unwrap()));
    assert_eq!((again.json::<Value>().await.unwrap(), hub.made()), (json!({"made": 1}), 1));
    hub.gateway.running.stop().await;
}

#[tokio::test]
async fn concurrent_requests_with_one_key_are_carried_out_once() {
    let hub = Hub::start().await;
    let wish = json!({"kind": "drain"});
    let answers = futures::future::join_all((0..8).map(|_| hub.plan(ADMIN, Some("a"), &wish))).await;
    assert_eq!(answers, vec![json!(1); 8]);
    assert_eq!(hub.made(), 1);
    hub.gateway.running.stop().await;
}

#[tokio::test]
async fn request_that_failed_is_tried_again_and_an_answer_with_a_secret_is_kept_nowhere() {
    let hub = Hub::start().await;
    let wish = json!({"fail": true});
    for _ in 0..2 {
        assert_eq!(hub.send(ADMIN, Some("a"), &wish).await.status(), 503);
    }
    assert_eq!(hub.made(), 2);

    let token = |path: &str, body: Value| {
        let request = hub.gateway.http.request(Method::POST, format!("http://{}{path}", hub.gateway.running.addr)).bearer_auth(ADMIN);
        request.header("idempotency-key", path).json(&body).send()
    };
    for (path, body) in [("/v2/tokens", json!({"name": "ci", "role": "viewer"})), ("/v2/login-links", json!({}))] {
        assert_eq!(token(path, body.clone()).await.unwrap().status(), 201);
        assert_eq!(code(token(path, body).await.unwrap()).await, (409, json!("answer_not_kept")));
    }
    let mut database = hub.gateway.database().await;
    let stored: String =
        sqlx::query_scalar("select string_agg(idempotency::text, '') from idempotency").fetch_one(&mut database).await.unwrap();
    assert!(stored.contains("tokens") && !stored.contains("drover_"), "{stored}");
    hub.gateway.running.stop().await;
}

#[tokio::test]
async fn key_of_a_gateway_that_died_is_in_use_until_it_is_given_up() {
    let hub = Hub::start().await;
    let wish = json!({"kind": "drain"});
    assert_eq!(hub.plan(ADMIN, Some("a"), &wish).await, 1);
    let mut database = hub.gateway.database().await;
    let died = "update idempotency set status = null, headers = null, sealed = null, until = now() + interval '10 minutes'";
    sqlx::query(died).execute(&mut database).await.unwrap();
    let waiting = hub.send(ADMIN, Some("a"), &wish).await;
    assert!(waiting.headers().contains_key("retry-after"));
    assert_eq!(code(waiting).await, (409, json!("idempotency_key_in_use")));
    sqlx::query("update idempotency set until = now()").execute(&mut database).await.unwrap();
    assert_eq!(hub.plan(ADMIN, Some("a"), &wish).await, 2);
    hub.gateway.running.stop().await;
}
