//! Bindings: desired state and status.

use axum::extract::State;
use drover_api::bindings::{
    BindingStatus, BoundsOrder, DesiredBindings, Preflight, PreflightAnswer, TestOrder, TestRun, VolumeAnswer, VolumeQuestion,
};
use drover_service::{Json, Path, Problem};
use serde_json::Value;
use uuid::Uuid;

use crate::app::App;
use crate::{preflight, volumes};

/// Stores the desired state of some bindings, and the bundle that comes with them. Storing the same again changes nothing. A binding with a
/// lower fence than the stored one is refused, and so is one that is to be present and whose bundle is not stored. The answer is the first
/// refusal; the other bindings are stored nevertheless.
#[utoipa::path(put, path = "/internal/bindings", operation_id = "bindings_put", tag = "peer",
    request_body = DesiredBindings, responses((status = 200, description = "Stored", body = Value)))]
pub async fn put(State(app): State<App>, Json(desired): Json<DesiredBindings>) -> Result<Json<Value>, Problem> {
    app.put_bindings(desired).await?;
    Ok(Json(Value::Null))
}

/// The status of a binding, as the feed has it.
#[utoipa::path(get, path = "/internal/bindings/{id}", operation_id = "binding_get", tag = "internal",
    params(("id" = Uuid, Path)), responses((status = 200, description = "Its status", body = BindingStatus)))]
pub async fn get(State(app): State<App>, Path(id): Path<Uuid>) -> Result<Json<BindingStatus>, Problem> {
    Ok(Json(app.status(id)?))
}

/// Asks a member whether it would accept objects. Nothing is written, in the member or here.
#[utoipa::path(post, path = "/internal/preflights", operation_id = "preflight_ask", tag = "peer", request_body = Preflight,
    responses((status = 200, description = "What speaks against it", body = PreflightAnswer)))]
pub async fn preflight(State(app): State<App>, Json(asked): Json<Preflight>) -> Result<Json<PreflightAnswer>, Problem> {
    Ok(Json(preflight::ask(&app, &asked).await?))
}

/// Asks a member which pods with volumes some StatefulSets have. Nothing is written.
#[utoipa::path(post, path = "/internal/volumes", operation_id = "volumes_ask", tag = "peer", request_body = VolumeQuestion,
    responses((status = 200, description = "Pods, and their volumes as they are to be made elsewhere", body = VolumeAnswer)))]
pub async fn volumes(State(app): State<App>, Json(asked): Json<VolumeQuestion>) -> Result<Json<VolumeAnswer>, Problem> {
    Ok(Json(volumes::read(&app, &asked).await?))
}

/// Asks for a run of the tests of the binding's chart. Asking for the same run again changes nothing; a lower fence is refused.
#[utoipa::path(put, path = "/internal/bindings/{id}/test", operation_id = "binding_test_put", tag = "peer",
    params(("id" = Uuid, Path)), request_body = TestOrder, responses((status = 200, description = "Stored", body = TestOrder)))]
pub async fn put_test(State(app): State<App>, Path(id): Path<Uuid>, Json(order): Json<TestOrder>) -> Result<Json<TestOrder>, Problem> {
    app.put_test(id, order).await?;
    Ok(Json(order))
}

/// Stores the share that the binding's autoscalers have of bounds over all members of its app. A lower version is refused.
#[utoipa::path(put, path = "/internal/bindings/{id}/bounds", operation_id = "binding_bounds_put", tag = "peer",
    params(("id" = Uuid, Path)), request_body = BoundsOrder, responses((status = 200, description = "Stored", body = BoundsOrder)))]
pub async fn put_bounds(
    State(app): State<App>,
    Path(id): Path<Uuid>,
    Json(order): Json<BoundsOrder>,
) -> Result<Json<BoundsOrder>, Problem> {
    app.put_bounds(id, &order).await?;
    Ok(Json(order))
}

/// The run of tests that was asked for last, with what the tests have printed.
#[utoipa::path(get, path = "/internal/bindings/{id}/test", operation_id = "binding_test_get", tag = "peer",
    params(("id" = Uuid, Path)), responses((status = 200, description = "The run", body = TestRun)))]
pub async fn test(State(app): State<App>, Path(id): Path<Uuid>) -> Result<Json<TestRun>, Problem> {
    Ok(Json(app.test_run(id).await?))
}

/// Deletes a binding that is gone.
#[utoipa::path(delete, path = "/internal/bindings/{id}", operation_id = "binding_delete", tag = "peer",
    params(("id" = Uuid, Path)), responses((status = 200, description = "Forgotten", body = Value)))]
pub async fn delete(State(app): State<App>, Path(id): Path<Uuid>) -> Result<Json<Value>, Problem> {
    app.forget_binding(id).await?;
    Ok(Json(Value::Null))
}
