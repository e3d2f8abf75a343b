//! Claims, for sweeps and tests.

use axum::extract::State;
use drover_api::ledger::{ClaimHeads, Claims};
use drover_scheduling::MemberKey;
use drover_service::{Json, Problem, Query};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::app::App;

/// Which claims; absent: any.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Which {
    /// Deployment intent group (its uuid).
    dig: Option<Uuid>,
    /// Member, `<provider>+<cluster>`.
    member: Option<String>,
    /// Operation that wrote the claim last.
    operation: Option<Uuid>,
}

/// Claims as they are committed.
#[utoipa::path(get, path = "/internal/claims", operation_id = "claim_list", tag = "peer", params(Which),
    responses((status = 200, description = "The claims", body = Claims)))]
pub async fn list(State(app): State<App>, Query(which): Query<Which>) -> Result<Json<Claims>, Problem> {
    // A `+` that a client did not encode arrives as a blank.
    let member = which.member.map(|key| MemberKey(key.replace(' ', "+")));
    let items = app.claims(which.dig, member.as_ref(), which.operation).await?;
    Ok(Json(Claims { items }))
}

/// All claims as they are committed, without what their apps ask for.
#[utoipa::path(get, path = "/internal/claims/heads", operation_id = "claim_heads", tag = "peer",
    responses((status = 200, description = "The claims", body = ClaimHeads)))]
pub async fn heads(State(app): State<App>) -> Result<Json<ClaimHeads>, Problem> {
    Ok(Json(ClaimHeads { items: app.claim_heads().await? }))
}
