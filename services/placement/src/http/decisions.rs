//! Decisions: made, tried without writing, and read.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use drover_api::ledger::DecisionRecord;
use drover_scheduling::{Decision, DecisionRequest};
use drover_service::{Json, Path, Problem};
use uuid::Uuid;

use crate::app::App;

/// Decides and claims room for all apps or none. A repeated id gets the stored answer.
#[utoipa::path(put, path = "/internal/decisions/{id}", operation_id = "decision_put", tag = "peer", params(("id" = Uuid, Path)),
    request_body = DecisionRequest, responses((status = 200, description = "The decision", body = Decision)))]
pub async fn put(State(app): State<App>, Path(id): Path<Uuid>, Json(request): Json<DecisionRequest>) -> Result<impl IntoResponse, Problem> {
    let json = Bytes::from_owner(app.decide(id, request).await?);
    Ok(([(header::CONTENT_TYPE, "application/json")], json))
}

/// Decides without writing.
#[utoipa::path(post, path = "/internal/decisions/dry-run", operation_id = "decision_dry_run", tag = "peer",
    request_body = DecisionRequest, responses((status = 200, description = "What would be decided now", body = Decision)))]
pub async fn dry_run(State(app): State<App>, Json(request): Json<DecisionRequest>) -> Result<Json<Decision>, Problem> {
    Ok(Json(app.try_out(&request)?))
}

/// Returns a decision with its request and reasons.
#[utoipa::path(get, path = "/v2/decisions/{id}", operation_id = "decision_get", tag = "decisions", params(("id" = Uuid, Path)),
    responses((status = 200, description = "The decision", body = DecisionRecord)))]
pub async fn get(State(app): State<App>, Path(id): Path<Uuid>) -> Result<Json<DecisionRecord>, Problem> {
    Ok(Json(app.decision(id).await?))
}
