//! Lifecycle verbs of a deployment intent group.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use drover_api::digs::DigTerms;
use drover_api::operations::Operation;
use drover_service::{Json, Path, Problem, Query};
use http::StatusCode;

use super::{VerbQuery, accepted};
use crate::app::preview::Preview;
use crate::app::{App, Error, GroupPath};

/// Renders and checks all apps of the group. Approval is complete with the response.
#[utoipa::path(post, operation_id = "approve", tag = "lifecycle",
    path = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}/approve",
    params(GroupPath, VerbQuery),
    responses((status = 202, description = "Approved"), (status = 200, description = "What would be approved (dry run)", body = DigTerms)))]
pub async fn approve(State(app): State<App>, Path(path): Path<GroupPath>, Query(query): Query<VerbQuery>) -> Result<Response, Problem> {
    let dry = query.dry()?;
    let prepared = app.approve(&path, dry).await?;
    if dry {
        let apps = prepared.requests();
        return Ok(Json(DigTerms { dig: prepared.group.dig, state: "Approved".into(), revision: 0, apps }).into_response());
    }
    Ok(StatusCode::ACCEPTED.into_response())
}

/// Places the apps of the group, moving others if that is needed for room, and runs them.
#[utoipa::path(post, operation_id = "instantiate", tag = "lifecycle",
    path = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}/instantiate",
    params(GroupPath, VerbQuery),
    responses((status = 202, description = "Being done: the operation, also in Location", body = Operation),
        (status = 200, description = "What would be decided (dry run)", body = Preview)))]
pub async fn instantiate(State(app): State<App>, Path(path): Path<GroupPath>, Query(query): Query<VerbQuery>) -> Result<Response, Problem> {
    let wait = query.wait()?;
    if query.dry()? {
        return Ok(Json(app.preview(&path).await?).into_response());
    }
    let id = app.instantiate(&path, None).await?;
    accepted(&app, id, wait).await
}

/// Removes all apps of the group from their clusters.
#[utoipa::path(post, operation_id = "terminate", tag = "lifecycle",
    path = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}/terminate",
    params(GroupPath, VerbQuery),
    responses((status = 202, description = "Being done: the operation, also in Location", body = Operation),
        (status = 200, description = "What would be removed (dry run)", body = crate::app::preview::Change)))]
pub async fn terminate(State(app): State<App>, Path(path): Path<GroupPath>, Query(query): Query<VerbQuery>) -> Result<Response, Problem> {
    let wait = query.wait()?;
    if query.dry()? {
        return Ok(Json(app.preview_terminate(&path).await?).into_response());
    }
    let id = app.terminate(&path).await?;
    accepted(&app, id, wait).await
}

/// Applies what the documents say now, on the clusters where the group runs. The body is EMCO's: only the new revision; the
/// operation is in Location.
#[utoipa::path(post, operation_id = "update", tag = "lifecycle",
    path = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}/update",
    params(GroupPath, VerbQuery),
    responses((status = 202, description = "Being done: the new revision; the operation is in Location", body = i64, content_type = "application/json"),
        (status = 200, description = "What would change (dry run)", body = crate::app::preview::Change)))]
pub async fn update(State(app): State<App>, Path(path): Path<GroupPath>, Query(query): Query<VerbQuery>) -> Result<Response, Problem> {
    let wait = query.wait()?;
    if query.dry()? {
        return Ok(Json(app.preview_update(&path).await?).into_response());
    }
    let (id, revision) = app.update(&path).await?;
    let mut response = accepted(&app, id, wait).await?;
    *response.body_mut() = format!("{revision}\n").into();
    response.headers_mut().remove(http::header::CONTENT_LENGTH);
    Ok(response)
}

/// Not implemented yet; answers 501.
#[utoipa::path(post, operation_id = "rollback", tag = "lifecycle",
    path = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}/rollback",
    params(GroupPath), responses((status = 202, description = "Comes with a later version")))]
pub async fn rollback() -> Result<StatusCode, Problem> {
    Err(Error::NotYet("rollback").into())
}

/// Not implemented yet; answers 501.
#[utoipa::path(post, operation_id = "stop", tag = "lifecycle",
    path = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}/stop",
    params(GroupPath), responses((status = 202, description = "Comes with a later version")))]
pub async fn stop() -> Result<StatusCode, Problem> {
    Err(Error::NotYet("stop").into())
}

/// Not implemented yet, answers 501: EMCO's move to another version or group of the same composite app.
#[utoipa::path(post, operation_id = "migrate", tag = "lifecycle",
    path = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}/migrate",
    params(GroupPath), responses((status = 202, description = "Comes with a later version")))]
pub async fn migrate() -> Result<StatusCode, Problem> {
    Err(Error::NotYet("migrate").into())
}
