//! The agent's HTTP interface: `/metrics`, `/healthz`, pushed statistics, and the state of its targets.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use drover_listener::Limits;
use serde::Serialize;
use serde_json::json;
use tokio::net::TcpListener;

use super::Context;
use super::callers::CallerRefused;
use super::inbox::Key;
use crate::path::push::PushAnswer;
use crate::wire::Push;

/// Sidecars and activators push each second, over a connection that each of them keeps.
const LIMITS: Limits = Limits { total: 4096, per_address: 256, head: Duration::from_secs(30) };

/// Serves until the future is dropped.
///
/// # Errors
/// If the listener fails.
pub async fn serve(listener: TcpListener, context: Arc<Context>) -> Result<()> {
    let router = Router::new()
        .route("/healthz", get(healthz))
        .route("/metrics", get(metrics))
        .route("/v1/statistics", post(statistics))
        .route("/v1/standing/{namespace}/{policy}", get(standing))
        .route("/v1/decisions/{namespace}/{policy}", get(decision));
    let refused = context.metrics.refused.clone();
    drover_listener::serve(listener, router.with_state(context), LIMITS, refused).await.context("the listener failed")
}

/// Not healthy while a task fails again and again; the process is then restarted by its liveness probe.
async fn healthz(State(context): State<Arc<Context>>) -> (StatusCode, String) {
    let failing: Vec<String> = context.tasks.unready().into_iter().map(|(task, error)| format!("task {task} fails: {error}\n")).collect();
    if failing.is_empty() { (StatusCode::OK, "ok\n".to_owned()) } else { (StatusCode::SERVICE_UNAVAILABLE, failing.concat()) }
}

async fn metrics(State(context): State<Arc<Context>>) -> Response {
    context.metrics.leader.set(i64::from(context.leadership.remaining().is_some()));
    match context.metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// The agent that acts accepts statistics; the other agents pass them on to it unchanged and return its answer.
async fn statistics(State(context): State<Arc<Context>>, headers: HeaderMap, body: Bytes) -> Response {
    let push: Push = match serde_json::from_slice(&body) {
        Ok(push) => push,
        Err(error) => {
            let detail = format!("{error}; docs/how-to/autoscaling.md has an example");
            return problem(StatusCode::UNPROCESSABLE_ENTITY, "malformed_json", "The body is not valid statistics", &detail);
        }
    };
    if context.leadership.remaining().is_none() {
        return match context.pass_on(headers.get(header::AUTHORIZATION).cloned(), &push).await {
            Ok(PushAnswer { status, kind, body }) => {
                let mut response = (status, body).into_response();
                kind.map(|kind| response.headers_mut().insert(header::CONTENT_TYPE, kind));
                response
            }
            Err(why) => {
                let detail = format!("{why:#}; push again in a moment");
                problem(StatusCode::SERVICE_UNAVAILABLE, "peer_unavailable", "No agent acts at the moment", &detail)
            }
        };
    }
    if let Err(refused) = context.callers.admit(&headers, &push.namespace).await {
        return refuse(&refused);
    }
    let key = (push.namespace.clone(), push.policy.clone());
    if context.inbox.take(&push, context.clock.now()) {
        Json(context.standing(&key).unwrap_or_default()).into_response()
    } else {
        unknown(&key)
    }
}

async fn standing(State(context): State<Arc<Context>>, headers: HeaderMap, Path(key): Path<Key>) -> Response {
    answer(&context, &headers, &key, Context::standing).await
}

async fn decision(State(context): State<Arc<Context>>, headers: HeaderMap, Path(key): Path<Key>) -> Response {
    answer(&context, &headers, &key, Context::decision).await
}

async fn answer<T: Serialize>(context: &Context, headers: &HeaderMap, key: &Key, what: fn(&Context, &Key) -> Option<T>) -> Response {
    if let Err(refused) = context.callers.admit(headers, &key.0).await {
        return refuse(&refused);
    }
    what(context, key).map_or_else(|| unknown(key), |what| Json(what).into_response())
}

fn refuse(refused: &CallerRefused) -> Response {
    let (status, code, title) = match refused {
        CallerRefused::Unknown(_) => (StatusCode::UNAUTHORIZED, "unauthorized", "A valid bearer token is needed"),
        CallerRefused::WrongNamespace { .. } => (StatusCode::FORBIDDEN, "forbidden", "Not allowed"),
        CallerRefused::Unavailable(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "cluster_unreachable", "The API server does not answer the token review")
        }
    };
    problem(status, code, title, &refused.to_string())
}

fn unknown(key: &Key) -> Response {
    let detail = format!(
        "this agent has no ScalingPolicy {}/{}: check that it exists, that its mode is not off, and that this agent acts",
        key.0, key.1
    );
    problem(StatusCode::NOT_FOUND, "not_found", "No such policy", &detail)
}

/// An error in the format of all of Drover; the code has a page in docs/errors.
fn problem(status: StatusCode, code: &str, title: &str, detail: &str) -> Response {
    let kind = format!("/docs/errors/{code}");
    let body = json!({"type": kind, "title": title, "status": status.as_u16(), "detail": detail, "code": code});
    (status, [(header::CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response()
}
