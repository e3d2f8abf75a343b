//! The election beside an API server that is slow for everything else. Needs no cluster.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use drover_autoscaler::agent::AgentClients;
use drover_autoscaler::agent::lease::Election;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::PATIENCE;

type StoredLease = Arc<Mutex<Option<Value>>>;

async fn read(State(lease): State<StoredLease>) -> Response {
    match lease.lock().unwrap().clone() {
        Some(lease) => Json(lease).into_response(),
        None => {
            let status =
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "message": "", "code": 404});
            (StatusCode::NOT_FOUND, Json(status)).into_response()
        }
    }
}

async fn write(State(stored): State<StoredLease>, Json(mut lease): Json<Value>) -> Json<Value> {
    let mut stored = stored.lock().unwrap();
    let version = stored.as_ref().map_or(0, |before| before["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap());
    lease["metadata"]["resourceVersion"] = (version + 1).to_string().into();
    *stored = Some(lease.clone());
    Json(lease)
}

#[tokio::test]
async fn lease_is_renewed_while_requests_of_policies_hang() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (hung, stored) = (Arc::new(tokio::sync::Semaphore::new(0)), StoredLease::default());
    let hangs = hung.clone();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let hang = move || {
        hangs.add_permits(1);
        std::future::pending::<()>()
    };
    let router = Router::new()
        .route(leases, axum::routing::post(write))
        .route(&format!("{leases}/{{name}}"), get(read).put(write))
        .with_state(stored.clone())
        .route("/api/v1/pods", get(hang));
    let server = tokio::spawn(async move { axum::serve(listener, router).await });

    let clients = AgentClients::new(&kube::Config::new(format!("http://{address}").parse().unwrap())).unwrap();
    let pods: Api<Pod> = Api::all(clients.policies);
    let policies: Vec<_> = (0..200)
        .map(|_| {
            let pods = pods.clone();
            tokio::spawn(async move { pods.list(&ListParams::default()).await })
        })
        .collect();
    // As many as the agent sends at once have arrived, and the others wait for them.
    tokio::time::timeout(PATIENCE, hung.acquire_many(16)).await.expect("the requests arrive").unwrap().forget();

    let leases = Api::namespaced(clients.election, "kube-system");
    let (election, mut leadership, _acting) = Election::new(leases, "drover".into(), "a".into(), Duration::from_secs(60));
    let stop = CancellationToken::new();
    let election = tokio::spawn(election.run(stop.clone()));
    tokio::time::timeout(PATIENCE, leadership.gained()).await.expect("the Lease is taken although all other requests hang");
    stop.cancel();
    election.await.unwrap();
    assert_eq!(stored.lock().unwrap().as_ref().unwrap()["spec"]["holderIdentity"], "", "the Lease is released");
    policies.iter().for_each(|policy| policy.abort());
    server.abort();
}
