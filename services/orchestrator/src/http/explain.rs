//! Explanation of where an app is placed.

use axum::extract::State;
use drover_api::ledger::Explanation;
use drover_service::{Json, Problem, Query, codes};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;

/// The app to explain.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ExplainQuery {
    /// `<composite app or deployment intent group>/<app>`.
    app: String,
    /// Project; `default` if absent.
    project: Option<String>,
}

/// Explains why an app is where it is: the decision that placed or refused it, and what would be decided now.
#[utoipa::path(get, path = "/v2/explain", operation_id = "explain", tags = ["decisions", "peer"], params(ExplainQuery),
    responses((status = 200, description = "The reasons", body = Explanation)))]
pub async fn get(State(app): State<App>, Query(query): Query<ExplainQuery>) -> Result<Json<Explanation>, Problem> {
    let (group, name) = query
        .app
        .split_once('/')
        .filter(|(group, name)| !group.is_empty() && !name.is_empty())
        .ok_or_else(|| codes::INVALID.problem("The parameter app must be <composite app or deployment intent group>/<app>"))?;
    Ok(Json(app.explain(query.project.as_deref().unwrap_or("default"), group, name).await?))
}
