//! Why an app is where it is.

use axum::extract::State;
use drover_api::ledger::Explanation;
use drover_service::{Json, Problem, Query, codes};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;

/// Which app.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Which {
    /// `<composite app or deployment intent group>/<app>`.
    app: String,
    /// Project; absent: `default`.
    project: Option<String>,
}

/// Why here, why not elsewhere: the decision that placed or refused it, and what would be decided now.
#[utoipa::path(get, path = "/v2/explain", operation_id = "explain", tags = ["decisions", "peer"], params(Which),
    responses((status = 200, description = "The reasons", body = Explanation)))]
pub async fn get(State(app): State<App>, Query(which): Query<Which>) -> Result<Json<Explanation>, Problem> {
    let (group, name) = which
        .app
        .split_once('/')
        .filter(|(group, name)| !group.is_empty() && !name.is_empty())
        .ok_or_else(|| codes::INVALID.problem("Say app=<composite app or deployment intent group>/<app>"))?;
    Ok(Json(app.explain(which.project.as_deref().unwrap_or("default"), group, name).await?))
}
