//! Explanation of where an app is placed.

use axum::extract::State;
use drover_api::ledger::{ExplainQuestion, Explanation};
use drover_service::{Json, Problem};

use crate::app::App;

/// Explains why an app is where it is: the decision that placed or refused it, and what would be decided now.
#[utoipa::path(post, path = "/internal/explanations", operation_id = "explanation", tag = "peer", request_body = ExplainQuestion,
    responses((status = 200, description = "The reasons", body = Explanation)))]
pub async fn post(State(app): State<App>, Json(question): Json<ExplainQuestion>) -> Result<Json<Explanation>, Problem> {
    Ok(Json(app.explain(&question).await?))
}
