//! The two ways to reach a cluster: a service in the process, and one TCP port with the cluster's name in the path.

use std::sync::{Arc, Weak};

use axum::body::{Body, Bytes};
use http::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpListener;

use crate::cluster::Cluster;
use crate::clusters::Clusters;
use crate::error::ApiError;
use crate::faults::Unreachable;
use crate::request;

/// Largest body in bytes: more than the largest object that a real server accepts.
const BODY_LIMIT: usize = 4 << 20;

/// Answers a request from inside the process.
///
/// # Errors
/// When a fault breaks the connection, or the body cannot be read.
pub async fn in_process(cluster: Arc<Cluster>, incoming: Request<kube::client::Body>) -> Result<Response<Body>, Unreachable> {
    let (head, body) = incoming.into_parts();
    let body = body.collect_bytes().await.map_err(|_| Unreachable)?;
    let path = head.uri.path().to_string();
    request::handle(cluster, read(head, path, body, true)).await
}

fn read(head: http::request::Parts, path: String, body: Bytes, trusted: bool) -> request::ApiRequest {
    request::ApiRequest { query: head.uri.query().unwrap_or("").into(), method: head.method, path, headers: head.headers, body, trusted }
}

/// Serves until the simulator is dropped, which it notices at the next connection.
pub async fn serve(clusters: Weak<Clusters>, listener: TcpListener) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(e) => {
                tracing::warn!(error = %e, "the simulator cannot accept connections; trying again");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        if clusters.strong_count() == 0 {
            return;
        }
        let clusters = clusters.clone();
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |incoming| answer(clusters.clone(), incoming));
            // An error means that the client closed the connection, or that a fault broke it.
            let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(clusters: Weak<Clusters>, incoming: Request<hyper::body::Incoming>) -> Result<Response<Body>, Unreachable> {
    let (head, body) = incoming.into_parts();
    let path = head.uri.path().to_string();
    let Some((name, rest)) = path.strip_prefix("/clusters/").map(|rest| rest.split_at(rest.find('/').unwrap_or(rest.len()))) else {
        return Ok(nowhere());
    };
    let Some(cluster) = clusters.upgrade().and_then(|clusters| clusters.get(name)) else { return Ok(nowhere()) };
    match axum::body::to_bytes(Body::new(body), BODY_LIMIT).await {
        Ok(body) => request::handle(cluster, read(head, rest.into(), body, false)).await,
        Err(_) => {
            let mut refusal = Response::new(Body::from("{}"));
            *refusal.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
            Ok(refusal)
        }
    }
}

fn nowhere() -> Response<Body> {
    let mut response = Response::new(Body::from(ApiError::no_such_resource().status().to_string()));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}
