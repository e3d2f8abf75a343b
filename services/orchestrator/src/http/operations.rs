//! Operations: list, read, wait, cancel, watch.

use axum::Extension;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use drover_api::operations::{ForceFence, Operation, OperationList, OperationState};
use drover_service::{Json, Path, Problem, Query, codes};
use futures::{Stream, StreamExt};
use http::HeaderMap;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use utoipa::IntoParams;
use uuid::Uuid;

use super::lifecycle::requested_by;
use super::{VerbQuery, accepted};
use crate::app::App;
use crate::app::operations::OperationFilter;

/// Query of the list of operations.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct OperationsQuery {
    /// Maximum number of operations; default 100.
    #[param(minimum = 1, maximum = 500)]
    pub limit: Option<i64>,
    /// Only operations older than this one: the last id of the previous page.
    pub after: Option<Uuid>,
    /// Only operations in this state.
    pub state: Option<OperationState>,
    /// Only operations of this kind: `instantiate`, `terminate`, `update`, `relocate`.
    pub kind: Option<String>,
    /// Only operations of this deployment intent group: its uuid, or `project/app/version/group`.
    pub dig: Option<String>,
}

/// Query with a time to wait.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct WaitQuery {
    /// Wait this long for the end of the operation, such as `30s`; at most a minute.
    pub wait: Option<String>,
}

/// Operations, newest first, without their steps. Operations that were started by another one are listed too, with `parent`;
/// their moves are also shown with the parent.
#[utoipa::path(get, path = "/v2/operations", operation_id = "operations_list", tags = ["operations", "peer"], params(OperationsQuery),
    responses((status = 200, description = "A page of operations", body = OperationList)))]
pub async fn list(State(app): State<App>, Query(query): Query<OperationsQuery>) -> Result<Json<OperationList>, Problem> {
    let OperationsQuery { limit, after, state, kind, dig } = query;
    if limit.is_some_and(|limit| limit < 1) {
        return Err(codes::INVALID.problem("limit must be at least 1"));
    }
    Ok(Json(app.operations(&OperationFilter { limit, after, state, kind, dig }).await?))
}

/// One operation. Its moves include those of the operations that it started.
#[utoipa::path(get, path = "/v2/operations/{id}", operation_id = "operation_get", tags = ["operations", "peer"], params(("id" = Uuid, Path), WaitQuery),
    responses((status = 200, description = "The operation: as it is, or as it ended if that was within `wait`", body = Operation)))]
pub async fn get(State(app): State<App>, Path(id): Path<Uuid>, Query(query): Query<WaitQuery>) -> Result<Json<Operation>, Problem> {
    let wait = VerbQuery { wait: query.wait, dry_run: None }.wait()?;
    Ok(Json(app.operation(id, wait).await?))
}

/// Requests that an operation be undone; possible only before its pivot.
#[utoipa::path(post, path = "/v2/operations/{id}/cancel", operation_id = "operation_cancel", tag = "operations", params(("id" = Uuid, Path), VerbQuery),
    responses((status = 202, description = "Being undone", body = Operation),
        (status = 200, description = "The operation, which would be undone (dry run)", body = Operation)))]
pub async fn cancel(State(app): State<App>, Path(id): Path<Uuid>, Query(query): Query<VerbQuery>) -> Result<Response, Problem> {
    let wait = query.wait()?;
    if query.dry()? {
        return Ok(Json(app.preview_cancel(id).await?).into_response());
    }
    app.cancel(id).await?;
    accepted(&app, id, wait).await
}

/// An operator's word, which is recorded: in this cluster nothing runs any more of what the operation moves, although nobody can ask the
/// cluster. A move that waits for that goes on. If the word is wrong, a volume may get two writers.
#[utoipa::path(post, path = "/v2/operations/{id}/force-fence", operation_id = "operation_force_fence", tag = "operations",
    params(("id" = Uuid, Path), VerbQuery), request_body = ForceFence,
    responses((status = 200, description = "The operation; with `dryRun` nothing was recorded", body = Operation)))]
pub async fn force_fence(
    State(app): State<App>,
    Path(id): Path<Uuid>,
    Query(query): Query<VerbQuery>,
    headers: HeaderMap,
    Json(word): Json<ForceFence>,
) -> Result<Json<Operation>, Problem> {
    let wait = query.wait()?;
    app.force_fence(id, &word, &requested_by(&headers)?.name, query.dry()?).await?;
    Ok(Json(app.operation(id, wait).await?))
}

/// The operation as server-sent events: as it is now, after each change of it or of one that it started, and as it ended; then
/// the stream ends.
#[utoipa::path(get, path = "/v2/operations/{id}/events", operation_id = "operation_events", tag = "operations", params(("id" = Uuid, Path)),
    responses((status = 200, description = "Each event's data is the operation", body = Operation, content_type = "text/event-stream")))]
pub async fn events(
    State(app): State<App>,
    Path(id): Path<Uuid>,
    Extension(shutdown): Extension<CancellationToken>,
) -> Result<Sse<impl Stream<Item = Result<Event, axum::Error>>>, Problem> {
    let events = app.watch(id).await?.map(|operation| Event::default().json_data(&operation)).take_until(shutdown.cancelled_owned());
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}
