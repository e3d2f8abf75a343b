//! Generated clients: token, retries, time limits, and the errors that callers get.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use drover_api::scheduling::{DecisionRequest, DigRef};
use drover_service::clients::orchestrator;
use drover_service::clients::placement::Client;
use drover_service::{Answer, Peer, PeerError, ProblemDocument, codes};
use http::StatusCode;
use secrecy::SecretString;
use serde_json::json;
use uuid::Uuid;

/// Scripted answers of a placement by `METHOD path?query`, one per call, the last one repeated; and the requests that it got.
#[derive(Clone, Default)]
struct Placement(Arc<Mutex<Script>>);

type Script = (BTreeMap<String, Vec<Answers>>, Vec<String>);

#[derive(Clone)]
enum Answers {
    With(u16, &'static str),
    Never,
}

impl Placement {
    fn answers(self, to: &str, answers: impl IntoIterator<Item = Answers>) -> Self {
        self.0.lock().unwrap().0.insert(to.to_owned(), answers.into_iter().collect());
        self
    }
    fn asked(&self, what: &str) -> usize {
        self.0.lock().unwrap().1.iter().filter(|asked| *asked == what).count()
    }
    async fn serve(&self) -> Peer {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(axum::serve(listener, Router::new().fallback(answer).with_state(self.clone())).into_future());
        Peer::new("placement", base.parse().unwrap(), SecretString::from("token"))
    }
}

async fn answer(State(placement): State<Placement>, request: Request) -> Response {
    if request.headers().get("authorization").is_none_or(|token| token != "Bearer token") {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let asked = format!("{} {}", request.method(), request.uri());
    let answer = {
        let mut inner = placement.0.lock().unwrap();
        inner.1.push(asked.clone());
        let answers = inner.0.get_mut(&asked).unwrap_or_else(|| panic!("{asked} was not expected"));
        if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() }
    };
    match answer {
        Answers::With(status, body) => (StatusCode::from_u16(status).unwrap(), body).into_response(),
        Answers::Never => std::future::pending::<Json<()>>().await.into_response(),
    }
}

use Answers::{Never, With};

const NOTHING: Answers = With(200, r#"{"items": []}"#);

fn request() -> DecisionRequest {
    DecisionRequest { dig: DigRef::default(), apps: Vec::new(), overflow: false, refused: Vec::new(), operation: Uuid::nil(), fence: 1 }
}

#[tokio::test]
async fn client_retries_reads_and_encodes_parameters() {
    let member = "GET /internal/claims?member=aws%2Bc+1";
    let placement = Placement::default().answers(member, [With(503, "later"), With(500, "{}"), NOTHING]);
    let client: Client = placement.serve().await.into();
    let claims = client.claim_list(None, Some("aws+c 1"), None).await.answer(&client).unwrap();
    assert!(claims.items.is_empty());
    assert_eq!(placement.asked(member), 3);
}

#[tokio::test]
async fn client_retries_put_but_not_post() {
    let (id, dry) = (Uuid::from_u128(7), "POST /internal/decisions/dry-run");
    let put = format!("PUT /internal/decisions/{id}");
    let placement = Placement::default().answers(dry, [With(503, "later")]).answers(&put, [With(503, "later")]);
    let client: Client = placement.serve().await.attempts(2).into();
    let refused = client.decision_dry_run(&request()).await.answer(&client).unwrap_err();
    assert!(refused.is_retryable());
    assert_eq!(refused.problem(), Some(&ProblemDocument { status: 503, detail: "later".to_owned(), ..ProblemDocument::default() }));
    client.decision_put(&id, &request()).await.answer(&client).unwrap_err();
    assert_eq!((placement.asked(dry), placement.asked(&put)), (1, 2));
}

#[tokio::test]
async fn client_returns_refusals_without_retry() {
    let (id, gone) = (Uuid::from_u128(7), "GET /v2/explain?app=a%2Fb");
    let put = format!("PUT /internal/transactions/{id}");
    let problem = r#"{"status": 409, "code": "stale_fence", "detail": "too late", "reasons": ["r"]}"#;
    let placement = Placement::default()
        .answers(&put, [With(409, problem)])
        .answers(gone, [With(404, "{}")])
        .answers("GET /internal/claims", [With(200, "[]")])
        .answers("GET /v2/clusters", [With(204, "")]);
    let client: Client = placement.serve().await.into();

    let transaction = serde_json::from_value(json!({"operation": id, "fence": 1, "changes": []})).unwrap();
    let refused = client.transaction_put(&id, &transaction).await.answer(&client).unwrap_err();
    assert_eq!(refused.to_string(), "placement answers 409 Conflict stale_fence: too late");
    assert_eq!((refused.code(), refused.is_retryable(), refused.problem().unwrap().reasons.len()), (Some("stale_fence"), false, 1));
    assert_eq!(placement.asked(&put), 1);

    let explaining: orchestrator::Client = placement.serve().await.into();
    assert!(explaining.explain("a/b", None).await.found(&explaining).unwrap().is_none());
    let other = client.claim_list(None, None, None).await.answer(&client).unwrap_err();
    assert!(matches!(other, PeerError::Undecodable { .. }) && !other.is_retryable(), "{other}");
    let undocumented = client.cluster_capacity_list(None).await.answer(&client).unwrap_err();
    assert!(matches!(undocumented, PeerError::Undecodable { .. }), "{undocumented}");
}

#[tokio::test]
async fn client_times_out_per_operation_with_a_retryable_error() {
    let mut limit = Duration::from_millis(100);
    let silent = loop {
        let placement = Placement::default().answers("GET /internal/claims", [Never]);
        let peer = placement.serve().await.attempts(2).timeout(Duration::from_secs(150)).timeout_of("claim_list", limit);
        let client: Client = peer.into();
        let silent = client.claim_list(None, None, None).await.answer(&client).unwrap_err();
        assert!(matches!(silent, PeerError::Unavailable { peer: "placement", .. }) && silent.is_retryable(), "{silent}");
        match placement.asked("GET /internal/claims") {
            2 => break silent,
            // On a slow machine the time is over before the request has arrived.
            asked => assert!(asked < 2 && limit < Duration::from_secs(60), "asked {asked} times, each for {limit:?}"),
        }
        limit *= 4;
    };
    assert_eq!(drover_service::Problem::from(silent).code(), codes::PEER_UNAVAILABLE);

    let nobody: Client = Peer::new("placement", "http://127.0.0.1:1/".parse().unwrap(), SecretString::from("t")).attempts(1).into();
    let away = nobody.claim_list(None, None, None).await.answer(&nobody).unwrap_err();
    assert!(matches!(away, PeerError::Unavailable { .. }) && !away.to_string().contains("127.0.0.1:1/"), "{away}");
}
