//! The list of apps.

use axum::extract::State;
use drover_api::apps::AppList;
use drover_service::{Json, Problem, Query};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;

/// Query of the list of apps.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AppsQuery {
    /// Only apps of this project.
    pub project: Option<String>,
}

/// Apps of every deployment intent group that was approved at least once, with their copies.
#[utoipa::path(get, path = "/v2/apps", operation_id = "apps_list", tag = "apps", params(AppsQuery),
    responses((status = 200, description = "The apps", body = AppList)))]
pub async fn list(State(app): State<App>, Query(query): Query<AppsQuery>) -> Result<Json<AppList>, Problem> {
    Ok(Json(app.apps(query.project.as_deref().filter(|project| !project.is_empty())).await?))
}
