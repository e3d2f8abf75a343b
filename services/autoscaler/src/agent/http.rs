//! What the agent answers: `/metrics`, `/healthz`, pushed statistics, and how its targets stand.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::json;
use tokio::net::TcpListener;

use super::Context;
use super::inbox::Key;
use crate::wire::{Push, Standing};

/// Serves until dropped.
///
/// # Errors
/// The listener fails.
pub async fn serve(listener: TcpListener, context: Arc<Context>) -> Result<()> {
    let router = Router::new()
        .route("/healthz", get(|| async { StatusCode::OK }))
        .route("/metrics", get(metrics))
        .route("/v1/statistics", post(statistics))
        .route("/v1/standing/{namespace}/{policy}", get(standing))
        .route("/v1/decisions/{namespace}/{policy}", get(decision))
        .with_state(context);
    axum::serve(listener, router).await.context("the address failed")
}

async fn metrics(State(context): State<Arc<Context>>) -> Response {
    context.metrics.leader.set(i64::from(context.leadership.remaining().is_some()));
    match context.metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Kept by the agent that acts; the others pass it on.
async fn statistics(State(context): State<Arc<Context>>, Json(push): Json<Push>) -> Response {
    if context.leadership.remaining().is_none() {
        return match context.pass_on(&push).await {
            Ok(standing) => Json(standing).into_response(),
            Err(why) => problem(StatusCode::SERVICE_UNAVAILABLE, "no agent acts", &format!("{why:#}; push again in a moment")),
        };
    }
    let key = (push.namespace.clone(), push.policy.clone());
    if context.inbox.take(&push, context.clock.now()) {
        Json(context.standing(&key).unwrap_or_default()).into_response()
    } else {
        unknown(&key)
    }
}

async fn standing(State(context): State<Arc<Context>>, Path(key): Path<Key>) -> Response {
    context.standing(&key).map_or_else(|| unknown(&key), |standing: Standing| Json(standing).into_response())
}

async fn decision(State(context): State<Arc<Context>>, Path(key): Path<Key>) -> Response {
    context.decision(&key).map_or_else(|| unknown(&key), |record| Json(record).into_response())
}

fn unknown(key: &Key) -> Response {
    let detail = format!("this agent looks after no ScalingPolicy {}/{}; is it there, not off, and does this agent act?", key.0, key.1);
    problem(StatusCode::NOT_FOUND, "no such policy", &detail)
}

fn problem(status: StatusCode, title: &str, detail: &str) -> Response {
    let body = json!({"type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail});
    (status, [(header::CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response()
}
