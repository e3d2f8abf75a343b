//! What every operation answers while something of Drover itself is broken: recorded from its processes, of which some are killed, stopped,
//! or lose their database.

use std::time::Duration;

use drover_e2e::processes::Processes;
use drover_testkit::eventually;
use nix::sys::signal::Signal;
use reqwest::{Client, RequestBuilder};
use serde_json::{Map, Value, json};
use sqlx::{Connection, PgConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// It only guards against hanging.
const TIMEOUT: Duration = Duration::from_secs(120);
const CONNECTIONS: usize = 32;

/// One exchange for each code, as tour.py records them.
pub async fn recorded() -> Map<String, Value> {
    let limit = CONNECTIONS.to_string();
    let limits = [
        ("DROVER_MAX_CONNECTIONS_PER_ADDRESS", &*limit),
        ("DROVER_HEAD_SECONDS", "600"),
        ("DROVER_REQUESTS_PER_SECOND", "2"),
        ("DROVER_REQUEST_BURST", "1"),
    ];
    let mut all = Processes::start(&limits).await;
    let host = all.url("gateway").authority().to_owned();
    let mut seen = Map::new();
    seen.insert("busy_server".to_owned(), too_many_connections(&host).await);
    let stalled = tokio::spawn(async move { stalled_body(&host).await });
    seen.insert("rate_limited".to_owned(), too_many_requests(&all).await);

    all.kill("orchestrator");
    let projects = all.url("gateway").join("v2/projects").expect("a path");
    let http = Client::new();
    let get = || http.get(projects.clone());
    seen.insert("peer_unavailable".to_owned(), answer(get(), "peer_unavailable").await);
    all.run("orchestrator");
    all.until_ready("gateway").await;

    all.signal("orchestrator", Signal::SIGSTOP);
    let named = |name: &str| http.post(projects.clone()).header("Idempotency-Key", "tour").json(&json!({"metadata": {"name": name}}));
    let first = tokio::spawn(named("shop").send());
    let mut database = PgConnection::connect(all.database_url()).await.expect("Postgres runs");
    let known = eventually(TIMEOUT, async || {
        let keys = sqlx::query("select from drover_gateway.idempotency").fetch_optional(&mut database).await.expect("the table exists");
        keys.map(drop)
    });
    known.await;
    seen.insert("idempotency_key_in_use".to_owned(), answer(named("shop"), "idempotency_key_in_use").await);
    all.signal("orchestrator", Signal::SIGCONT);
    let first = first.await.expect("it does not panic").expect("the gateway answers");
    let (first, said) = (first.status().as_u16(), first.text().await.expect("an answer"));
    let given_up = first == 503 && ["peer_unavailable", "store_unavailable"].iter().any(|code| said.contains(code));
    assert!(first == 201 || given_up, "the first request is carried out, or may be repeated: {first} {said}");
    let repeated = async || {
        let again = named("shop").send().await.expect("the gateway answers").status().as_u16();
        match again {
            201 => Some(()),
            // The first one was carried out although it was given up.
            409 if given_up => Some(()),
            503 if given_up => None,
            _ => panic!("{first} {said}, and when it is sent again: {again}"),
        }
    };
    eventually(TIMEOUT, repeated).await;

    // As somebody leaves it who works in the database by hand.
    let renamed = sqlx::query("alter table drover_orchestrator.resource rename to lost").execute(&mut database).await;
    renamed.expect("the table exists");
    seen.insert("internal".to_owned(), answer(get(), "internal").await);
    all.postgres.kill().await;
    seen.insert("store_unavailable".to_owned(), answer(get(), "store_unavailable").await);
    seen.insert("timeout".to_owned(), stalled.await.expect("it does not panic"));
    all.end().await;
    seen
}

/// The exchange once the answer has this code.
async fn answer(request: RequestBuilder, code: &str) -> Value {
    let built = request.try_clone().and_then(|request| request.build().ok()).expect("a request without a stream");
    let asked = format!("{} {}", built.method(), built.url().path());
    let mut last = String::new();
    let found = eventually(TIMEOUT, async || {
        let answered = request.try_clone()?.send().await.ok()?;
        let status = answered.status().as_u16();
        last = answered.text().await.ok()?;
        let problem: Value = serde_json::from_str(&last).ok()?;
        (problem["code"] == code).then(|| exchange(&asked, status, problem))
    });
    tokio::time::timeout(TIMEOUT / 2, found).await.unwrap_or_else(|_| panic!("{asked} should answer {code}: {last}"))
}

fn exchange(request: &str, status: u16, problem: Value) -> Value {
    json!({"request": request, "status": status, "type": "application/problem+json", "answer": problem})
}

/// A request to the gateway itself that never comes to its end.
async fn stalled_body(host: &str) -> Value {
    let head = format!(
        "POST /v2/tokens HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: 100\r\nConnection: close\r\n\r\n{{"
    );
    loop {
        // The connections of `too_many_connections` may not be forgotten yet.
        if let Some((status, problem)) = raw(host, &head).await.filter(|(status, _)| *status != 503) {
            assert_eq!((status, &problem["code"]), (504, &json!("timeout")), "{problem}");
            return exchange("POST /v2/tokens", status, problem);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn too_many_connections(host: &str) -> Value {
    let mut open = Vec::new();
    let refused = eventually(TIMEOUT, async || {
        let mut connection = TcpStream::connect(host).await.ok()?;
        connection.write_all(format!("GET /v2/projects HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await.ok()?;
        let mut first = vec![0; 4096];
        let read = connection.read(&mut first).await.ok()?;
        first.truncate(read);
        let text = String::from_utf8_lossy(&first).into_owned();
        if text.starts_with("HTTP/1.1 503") {
            return Some(text);
        }
        open.push(connection);
        None
    })
    .await;
    let body = refused.split_once("\r\n\r\n").expect("a head and a body").1;
    let problem: Value = serde_json::from_str(body).expect("a problem");
    assert_eq!(problem["code"], "busy_server");
    exchange("GET /v2/projects", 503, problem)
}

/// The refusal of one of several requests that a token sends at the same time. One after the other, a busy machine might answer no more
/// than the limit allows.
async fn too_many_requests(all: &Processes) -> Value {
    let url = |path: &str| all.url("gateway").join(path).expect("a path");
    let http = Client::new();
    let order = json!({"name": "hasty", "role": "viewer", "projects": ["nobody"]});
    let token = eventually(TIMEOUT, async || {
        // Refused while the connections of `too_many_connections` are not forgotten.
        let issued = http.post(url("v2/tokens")).json(&order).send().await.ok()?.error_for_status().ok()?;
        issued.json::<Value>().await.ok()?["token"].as_str().map(str::to_owned)
    });
    let token = token.await;
    let ask = |_| Box::pin(answer(http.get(url("v2/whoami")).bearer_auth(&token), "rate_limited"));
    futures::future::select_all((0..8).map(ask)).await.0
}

/// The status and the body of the answer to these bytes; `None` if the connection is closed or refused.
async fn raw(host: &str, bytes: &str) -> Option<(u16, Value)> {
    let mut connection = TcpStream::connect(host).await.ok()?;
    connection.write_all(bytes.as_bytes()).await.ok()?;
    let mut answered = Vec::new();
    tokio::time::timeout(TIMEOUT, connection.read_to_end(&mut answered)).await.expect("it answers in time").ok()?;
    let text = String::from_utf8_lossy(&answered).into_owned();
    let status = text.split(' ').nth(1)?.parse().ok()?;
    Some((status, serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()?))
}
