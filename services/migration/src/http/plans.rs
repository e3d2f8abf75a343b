//! Routes of plans.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use drover_api::plans::{PlanAcceptance, PlanDocument, PlanList, PlanOrder, PlanSearch, PlanWish, ReliefList};
use drover_service::{DryRun, Json, Path, Problem, Query, asks_dry_run, codes};
use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::app::{App, PlanInput};

/// Makes a plan. A repeated id gets the stored plan.
#[utoipa::path(put, path = "/internal/plans/{id}", operation_id = "plan_put", tag = "peer", params(("id" = Uuid, Path)), request_body = PlanOrder,
    responses((status = 200, description = "The plan, or why there is none", body = PlanDocument)))]
pub async fn put(State(app): State<App>, Path(id): Path<Uuid>, Json(order): Json<PlanOrder>) -> Result<Json<PlanDocument>, Problem> {
    Ok(Json(app.plan(id, order).await?))
}

/// Returns the whole input of a plan, so that the plan can be reproduced, for example in a bug report.
#[utoipa::path(get, path = "/internal/plans/{id}/input", operation_id = "plan_input", tag = "internal", params(("id" = Uuid, Path)),
    responses((status = 200, description = "Fleet and request", body = PlanInput)))]
pub async fn input(State(app): State<App>, Path(id): Path<Uuid>) -> Result<Json<PlanInput>, Problem> {
    Ok(Json(app.plan_input(id).await?))
}

/// Accepts a proposed plan for one operation. Repeating it for the same operation is allowed.
#[utoipa::path(put, path = "/internal/plans/{id}/state", operation_id = "plan_accept", tag = "peer", params(("id" = Uuid, Path)),
    request_body = PlanAcceptance, responses((status = 200, description = "The plan", body = PlanDocument)))]
pub async fn accept(
    State(app): State<App>,
    Path(id): Path<Uuid>,
    Json(acceptance): Json<PlanAcceptance>,
) -> Result<Json<PlanDocument>, Problem> {
    Ok(Json(app.plan_accept(id, acceptance.operation).await?))
}

/// The clusters from which an app should be moved now, as the active policies of projects say.
#[utoipa::path(get, path = "/internal/reliefs", operation_id = "relief_list", tag = "peer",
    responses((status = 200, description = "Where apps suffer", body = ReliefList)))]
pub async fn reliefs(State(app): State<App>) -> Json<ReliefList> {
    Json(app.reliefs.found())
}

/// Query: whether to store the plan, and how to search for it.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PlanQuery {
    /// `All`: make the plan without storing it.
    #[serde(rename = "dryRun")]
    dry_run: Option<String>,
    /// Time limit of the search in seconds, 0.001 to 20.
    #[serde(rename = "planSeconds")]
    plan_seconds: Option<f64>,
    /// Spend the time on a plan with fewer moves instead of using the first plan in the order of the policy.
    #[serde(rename = "fewestMoves")]
    fewest_moves: Option<bool>,
}

/// Makes a plan without applying it. A plan reserves no room.
#[utoipa::path(post, path = "/v2/plans", operation_id = "plan_create", tag = "plans", params(PlanQuery), request_body = PlanWish, responses(
    (status = 201, description = "The plan, or why there is none", body = PlanDocument, headers(("Location" = String, description = "Path of the plan"))),
    (status = 200, description = "The same, not stored (dry run)", body = PlanDocument)))]
pub async fn post(
    State(app): State<App>,
    Query(query): Query<PlanQuery>,
    headers: HeaderMap,
    Json(wish): Json<PlanWish>,
) -> Result<Response, Problem> {
    let dry_run = asks_dry_run(query.dry_run.as_deref())?;
    let mut order = app.order(wish).await?;
    order.dry_run = dry_run;
    order.search = PlanSearch { seconds: query.plan_seconds, fewest_moves: query.fewest_moves.unwrap_or_default() };
    order.movable_projects = movable_projects(&headers)?;
    let plan = app.plan(Uuid::now_v7(), order).await?;
    if dry_run {
        return Ok(Json(plan).into_response());
    }
    Ok((StatusCode::CREATED, [(header::LOCATION, format!("/v2/plans/{}", plan.id))], Json(plan)).into_response())
}

/// Whose apps may be moved, as the gateway says; none: everybody's.
fn movable_projects(headers: &HeaderMap) -> Result<Option<Vec<String>>, Problem> {
    let text = headers.get("drover-movable-projects").and_then(|text| text.to_str().ok());
    let read = text.map(serde_json::from_str).transpose();
    read.map_err(|error| codes::INVALID.problem(format!("drover-movable-projects: {error}")))
}

/// Query: a page of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Page {
    /// Largest number of plans, 1 to 1000; 100 if absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Only plans older than this one: the last id of the previous page.
    after: Option<Uuid>,
}

/// Lists plans, the newest first.
#[utoipa::path(get, path = "/v2/plans", operation_id = "plan_list", tags = ["plans", "peer"], params(Page),
    responses((status = 200, description = "The plans", body = PlanList)))]
pub async fn list(State(app): State<App>, Query(page): Query<Page>) -> Result<Json<PlanList>, Problem> {
    if page.limit == Some(0) {
        return Err(codes::INVALID.problem("limit is at least 1"));
    }
    Ok(Json(PlanList { items: app.plan_list(page.limit.unwrap_or(100).min(1000), page.after).await? }))
}

/// Returns a plan with victims, destinations, steps, all scores and the reasons against other apps.
#[utoipa::path(get, path = "/v2/plans/{id}", operation_id = "plan_get", tags = ["plans", "peer"], params(("id" = Uuid, Path)),
    responses((status = 200, description = "The plan", body = PlanDocument)))]
pub async fn get(State(app): State<App>, Path(id): Path<Uuid>) -> Result<Json<PlanDocument>, Problem> {
    Ok(Json(app.plan_read(id).await?))
}

/// Discards a plan. An accepted plan cannot be discarded.
#[utoipa::path(delete, path = "/v2/plans/{id}", operation_id = "plan_discard", tag = "plans", params(("id" = Uuid, Path), DryRun),
    responses((status = 204, description = "Discarded")))]
pub async fn delete(State(app): State<App>, Path(id): Path<Uuid>, Query(query): Query<DryRun>) -> Result<StatusCode, Problem> {
    app.plan_discard(id, query.asked()?).await?;
    Ok(StatusCode::NO_CONTENT)
}
