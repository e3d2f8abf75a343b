//! Lists of claims, for the sweeps of other services and for tests.

use axum::extract::State;
use drover_api::ledger::{ClaimHeads, Claims};
use drover_scheduling::MemberKey;
use drover_service::{Json, Problem, Query};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::app::App;

/// Filter of claims; an absent field matches any claim.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ClaimFilter {
    /// Deployment intent group (its uuid).
    dig: Option<Uuid>,
    /// Member, `<provider>+<cluster>`.
    member: Option<String>,
    /// Operation that wrote the claim last.
    operation: Option<Uuid>,
}

/// Lists committed claims.
#[utoipa::path(get, path = "/internal/claims", operation_id = "claim_list", tag = "peer", params(ClaimFilter),
    responses((status = 200, description = "The claims", body = Claims)))]
pub async fn list(State(app): State<App>, Query(filter): Query<ClaimFilter>) -> Result<Json<Claims>, Problem> {
    // A `+` that the client did not encode arrives as a blank.
    let member = filter.member.map(|key| MemberKey(key.replace(' ', "+")));
    let items = app.claims(filter.dig, member.as_ref(), filter.operation).await?;
    Ok(Json(Claims { items }))
}

/// Lists all committed claims without the requests of their apps.
#[utoipa::path(get, path = "/internal/claims/heads", operation_id = "claim_heads", tag = "peer",
    responses((status = 200, description = "The claims", body = ClaimHeads)))]
pub async fn heads(State(app): State<App>) -> Result<Json<ClaimHeads>, Problem> {
    Ok(Json(ClaimHeads { items: app.claim_heads().await? }))
}
