//! Applies plans. The plans themselves belong to migration.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use drover_api::operations::Operation;
use drover_api::plans::PlanDocument;
use drover_service::{Json, Path, Problem, Query};
use http::HeaderMap;
use uuid::Uuid;

use super::lifecycle::requested_by;
use super::{VerbQuery, accepted};
use crate::app::App;

/// Carries out a plan if what it assumed is still true. If not, the operation fails with `world_changed` and lists the differences.
#[utoipa::path(post, path = "/v2/plans/{id}/apply", operation_id = "plan_apply", tag = "plans", params(("id" = Uuid, Path), VerbQuery),
    responses((status = 202, description = "Being done: the operation, also in Location", body = Operation),
        (status = 200, description = "The plan (dry run)", body = PlanDocument)))]
pub async fn apply(
    State(app): State<App>,
    Path(id): Path<Uuid>,
    Query(query): Query<VerbQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let wait = query.wait()?;
    if query.dry()? {
        return Ok(Json(app.open_plan(id).await?).into_response());
    }
    let operation = app.apply_plan(id, &requested_by(&headers)?).await?;
    accepted(&app, operation, wait).await
}
