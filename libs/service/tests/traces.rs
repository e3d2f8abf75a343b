//! One trace through two services, seen by a collector in this process. A binary of its own: telemetry is per process.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use drover_service::{Common, Json, Peer, Peers, Problem, bind, router, serve, telemetry};
use secrecy::SecretString;
use tokio::net::TcpListener;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

#[utoipa::path(get, path = "/v2/front", operation_id = "front_get", responses((status = 200, description = "What is behind says", body = String)))]
async fn front(back: State<Peer>) -> Result<Json<String>, Problem> {
    Ok(Json(back.get::<String>("/internal/back").await?))
}

#[utoipa::path(get, path = "/internal/back", operation_id = "back_get", responses((status = 200, description = "The trace it is part of", body = String)))]
async fn back() -> Json<String> {
    Json(telemetry::traceparent().unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn trace_spans_two_services_and_reaches_the_collector() {
    let received = Arc::new(Mutex::new(Vec::<u8>::new()));
    let collector = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    let app = Router::new().route(
        "/v1/traces",
        post({
            let received = received.clone();
            move |body: Bytes| {
                received.lock().unwrap().extend_from_slice(&body);
                async {}
            }
        }),
    );
    tokio::spawn(axum::serve(collector, app).into_future());
    let options = telemetry::Options { otlp_endpoint: Some(endpoint), ..Default::default() };
    let handle = telemetry::init("drover", &options).unwrap();
    telemetry::init("again", &options).unwrap();

    let common = Common::new("postgres://none", "token", Peers::default());
    let behind = common.scoped("behind");
    let listener = bind("127.0.0.1:0".parse().unwrap(), &behind).await.unwrap();
    let behind = serve(listener, router(OpenApiRouter::new().routes(routes!(back)), &behind), &behind);
    let peer = Peer::new("behind", format!("http://{}", behind.addr).parse().unwrap(), SecretString::from("token"));
    let before = common.scoped("before");
    let listener = bind("127.0.0.1:0".parse().unwrap(), &before).await.unwrap();
    let before = serve(listener, router(OpenApiRouter::new().routes(routes!(front)).with_state(peer), &before), &before);

    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let answer = reqwest::Client::new()
        .get(format!("http://{}/v2/front", before.addr))
        .header("traceparent", format!("00-{trace}-00f067aa0ba902b7-01"));
    let seen: String = answer.send().await.unwrap().json().await.unwrap();
    assert!(seen.contains(trace), "the service behind is part of the caller's trace: {seen}");

    before.stop().await;
    behind.stop().await;
    handle.flush().await;
    let received = received.lock().unwrap();
    let id: Vec<u8> = (0..16).map(|at| u8::from_str_radix(&trace[at * 2..at * 2 + 2], 16).unwrap()).collect();
    let spans = received.windows(16).filter(|window| *window == id).count();
    assert!(spans >= 2, "{spans} spans of the trace");
    for name in ["GET /v2/front", "GET /internal/back"] {
        assert!(received.windows(name.len()).any(|window| window == name.as_bytes()), "no span {name}");
    }
}
