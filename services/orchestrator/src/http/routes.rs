//! The list of routes.

use axum::extract::State;
use drover_api::traffic::RouteList;
use drover_service::{Json, Problem, Query};

use super::apps::AppsQuery;
use crate::app::App;

/// All routes with their copies and traffic.
#[utoipa::path(get, path = "/v2/routes", operation_id = "routes_list", tag = "routes", params(AppsQuery),
    responses((status = 200, description = "The routes", body = RouteList)))]
pub async fn list(State(app): State<App>, Query(query): Query<AppsQuery>) -> Result<Json<RouteList>, Problem> {
    Ok(Json(app.routes(query.project.as_deref().filter(|project| !project.is_empty())).await?))
}
