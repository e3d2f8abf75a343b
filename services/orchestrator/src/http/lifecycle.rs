//! Lifecycle verbs of a deployment intent group.

use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use drover_api::digs::DigTerms;
use drover_api::operations::Operation;
use drover_service::{Json, Path, Problem, Query, codes};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{VerbQuery, accepted};
use crate::app::basis::{Basis, VerbBody};
use crate::app::callers::CallerList;
use crate::app::notes::NotesList;
use crate::app::preview::Preview;
use crate::app::revisions::{RevisionDiff, RevisionList};
use crate::app::tests::{PATIENCE_S, TestList};
use crate::app::{App, GroupPath};
use crate::store::revision::Requester;

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

/// The basis of a dry run, if the body has one. EMCO's clients may send any body; what is not an object with `basis` is ignored.
fn basis(body: &Bytes) -> Result<Option<Basis>, Problem> {
    let Ok(Value::Object(mut body)) = serde_json::from_slice(body) else { return Ok(None) };
    let basis = body.remove("basis").filter(|basis| !basis.is_null());
    let read = basis.map(serde_json::from_value).transpose();
    read.map_err(|error| codes::INVALID.problem(format!("basis is not what a dry run returned: {error}")))
}

/// Query of a dry run of instantiate.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PreviewQuery {
    /// `true`, only with `dryRun`: say what would be decided if the group were approved first, as its documents are now.
    pub approve: Option<bool>,
}

/// Places the apps of the group, moving others if that is needed for room, and runs them.
#[utoipa::path(post, operation_id = "instantiate", tag = "lifecycle",
    path = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}/instantiate",
    params(GroupPath, VerbQuery, PreviewQuery), request_body = Option<VerbBody>,
    responses((status = 202, description = "Being done: the operation, also in Location", body = Operation),
        (status = 200, description = "What would be decided (dry run)", body = Preview)))]
pub async fn instantiate(
    State(app): State<App>,
    Path(path): Path<GroupPath>,
    Query(query): Query<VerbQuery>,
    Query(PreviewQuery { approve }): Query<PreviewQuery>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let (wait, approve) = (query.wait()?, approve.unwrap_or_default());
    if query.dry()? {
        let by = requested_by(&headers)?;
        let preview = if approve { app.preview_of_documents(&path, &by).await? } else { app.preview(&path, &by).await? };
        return Ok(Json(preview).into_response());
    }
    if approve {
        return Err(codes::INVALID.problem("approve=true is only for a dry run; to approve a group, POST …/approve"));
    }
    let id = app.instantiate(&path, &requested_by(&headers)?, basis(&body)?.as_ref()).await?;
    accepted(&app, id, wait).await
}

/// How a group is terminated.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct TerminateQuery {
    /// `true`: also delete the volume claims that StatefulSets made, with their data, when the pods are gone (default: they stay, as in
    /// Kubernetes).
    #[serde(rename = "deleteVolumes")]
    pub delete_volumes: Option<bool>,
}

/// Removes all apps of the group from their clusters. An instantiation that is going on is undone.
#[utoipa::path(post, operation_id = "terminate", tag = "lifecycle",
    path = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}/terminate",
    params(GroupPath, VerbQuery, TerminateQuery),
    responses((status = 202, description = "Being done: the operation, also in Location", body = Operation),
        (status = 200, description = "What would be removed (dry run)", body = crate::app::preview::Change)))]
pub async fn terminate(
    State(app): State<App>,
    Path(path): Path<GroupPath>,
    Query(query): Query<VerbQuery>,
    Query(TerminateQuery { delete_volumes }): Query<TerminateQuery>,
) -> Result<Response, Problem> {
    let wait = query.wait()?;
    if query.dry()? {
        return Ok(Json(app.preview_terminate(&path).await?).into_response());
    }
    let id = app.terminate(&path, delete_volumes.unwrap_or_default()).await?;
    accepted(&app, id, wait).await
}

/// Applies what the documents say now. Apps stay on their clusters as long as their placement intents allow that; otherwise they are
/// started where the intents allow them, and removed where they ran when they are ready. The body is EMCO's: only the new revision; the
/// operation is in Location.
#[utoipa::path(post, operation_id = "update", tag = "lifecycle",
    path = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}/update",
    params(GroupPath, VerbQuery), request_body = Option<VerbBody>,
    responses((status = 202, description = "Being done: the new revision; the operation is in Location", body = i64, content_type = "application/json"),
        (status = 200, description = "What would change (dry run)", body = crate::app::preview::Change)))]
pub async fn update(
    State(app): State<App>,
    Path(path): Path<GroupPath>,
    Query(query): Query<VerbQuery>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let wait = query.wait()?;
    if query.dry()? {
        return Ok(Json(app.preview_update(&path, &requested_by(&headers)?).await?).into_response());
    }
    let (id, revision) = app.update(&path, &requested_by(&headers)?, basis(&body)?.as_ref()).await?;
    let mut response = accepted(&app, id, wait).await?;
    *response.body_mut() = format!("{revision}\n").into();
    response.headers_mut().remove(http::header::CONTENT_LENGTH);
    Ok(response)
}

/// Brings the group back to one of its revisions, which gets a new number. Its documents stay as they are: the next update applies them
/// again.
#[utoipa::path(post, operation_id = "rollback", tag = "lifecycle",
    path = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}/rollback",
    params(GroupPath, VerbQuery), request_body = Rollback,
    responses((status = 202, description = "Being done: the operation, also in Location", body = Operation),
        (status = 200, description = "How the objects would differ (dry run)", body = RevisionDiff)))]
pub async fn rollback(
    State(app): State<App>,
    Path(path): Path<GroupPath>,
    Query(query): Query<VerbQuery>,
    headers: HeaderMap,
    Json(body): Json<Rollback>,
) -> Result<Response, Problem> {
    let wait = query.wait()?;
    let to = body.spec.revision.number()?;
    if query.dry()? {
        let current = app.revisions(&path).await?.items.into_iter().find(|revision| revision.current);
        let current = current.ok_or_else(|| codes::WRONG_STATE.problem("rollback is not possible: no revision of the group runs"))?;
        return Ok(Json(app.diff(&path, current.revision, to).await?).into_response());
    }
    let (id, _) = app.rollback(&path, to, &requested_by(&headers)?, &body.metadata.description).await?;
    accepted(&app, id, wait).await
}

/// How tests are run.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct TestQuery {
    /// Seconds after which tests that have not ended count as failed (default 300).
    #[serde(rename = "timeoutSeconds")]
    #[param(minimum = 1, maximum = 86400)]
    pub timeout_seconds: Option<u64>,
}

/// Runs the tests of the group's charts (hooks of the event `test`) in the clusters where its apps run. While they run, the group is neither
/// updated nor moved.
#[utoipa::path(post, operation_id = "test", tag = "lifecycle",
    path = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}/test",
    params(GroupPath, VerbQuery, TestQuery),
    responses((status = 202, description = "Being done: the operation, also in Location", body = Operation)))]
pub async fn test(
    State(app): State<App>,
    Path(path): Path<GroupPath>,
    Query(query): Query<VerbQuery>,
    Query(TestQuery { timeout_seconds }): Query<TestQuery>,
) -> Result<Response, Problem> {
    let wait = query.wait()?;
    if query.dry()? {
        return Err(codes::INVALID.problem("a test has no dry run: it changes nothing of the application"));
    }
    let timeout = timeout_seconds.unwrap_or(PATIENCE_S);
    if !(1..=86_400).contains(&timeout) {
        return Err(codes::INVALID.problem("timeoutSeconds: use a number from 1 to 86400"));
    }
    let id = app.test(&path, timeout).await?;
    accepted(&app, id, wait).await
}

/// The last run of the tests of each chart of the group, with the end of what they have printed.
#[utoipa::path(get, operation_id = "deployment-intent-group_tests", tag = "lifecycle",
    path = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}/tests",
    params(GroupPath), responses((status = 200, description = "The runs, by app and cluster", body = TestList)))]
pub async fn tests(State(app): State<App>, Path(path): Path<GroupPath>) -> Result<Json<TestList>, Problem> {
    Ok(Json(app.tests(&path).await?))
}

/// Stops an instantiation or an update that is going on: it is cancelled and undone. After a failed instantiation it only marks the group
/// as stopped.
#[utoipa::path(post, operation_id = "stop", tag = "lifecycle",
    path = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}/stop",
    params(GroupPath, VerbQuery),
    responses((status = 202, description = "Being undone, or undone already: the operation, also in Location", body = Operation),
        (status = 200, description = "The operation that would be undone (dry run)", body = Operation)))]
pub async fn stop(State(app): State<App>, Path(path): Path<GroupPath>, Query(query): Query<VerbQuery>) -> Result<Response, Problem> {
    let wait = query.wait()?;
    if query.dry()? {
        return Ok(Json(app.preview_stop(&path).await?).into_response());
    }
    let id = app.stop(&path).await?;
    accepted(&app, id, wait).await
}

/// Replaces the group by another group of the same composite app, which must be approved: it is instantiated, and when it is ready, this
/// group is terminated.
#[utoipa::path(post, operation_id = "migrate", tag = "lifecycle",
    path = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}/migrate",
    params(GroupPath, VerbQuery), request_body = Migrate,
    responses((status = 202, description = "Being done: the instantiation of the other group, also in Location", body = Operation),
        (status = 200, description = "What would be decided for the other group (dry run)", body = Preview)))]
pub async fn migrate(
    State(app): State<App>,
    Path(path): Path<GroupPath>,
    Query(query): Query<VerbQuery>,
    headers: HeaderMap,
    Json(body): Json<Migrate>,
) -> Result<Response, Problem> {
    let wait = query.wait()?;
    if [&body.spec.target_composite_app_version, &body.spec.target_deployment_intent_group].iter().any(|name| name.contains('\0')) {
        return Err(codes::INVALID.problem("Invalid Input: the target's names must not contain the character NUL"));
    }
    let target = GroupPath {
        composite_app_version: body.spec.target_composite_app_version,
        deployment_intent_group: body.spec.target_deployment_intent_group,
        ..path.clone()
    };
    if query.dry()? {
        return Ok(Json(app.preview_migrate(&path, &target, &requested_by(&headers)?).await?).into_response());
    }
    let id = app.migrate(&path, &target, &requested_by(&headers)?).await?;
    accepted(&app, id, wait).await
}

/// The revisions of the group that were reached, oldest first.
#[utoipa::path(get, operation_id = "deployment-intent-group_revisions", tag = "lifecycle",
    path = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}/revisions",
    params(GroupPath), responses((status = 200, description = "The revisions", body = RevisionList)))]
pub async fn revisions(State(app): State<App>, Path(path): Path<GroupPath>) -> Result<Json<RevisionList>, Problem> {
    Ok(Json(app.revisions(&path).await?))
}

/// Which revisions to compare.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DiffQuery {
    /// The older revision.
    pub from: i64,
    /// The newer revision.
    pub to: i64,
}

/// How the objects of two revisions differ.
#[utoipa::path(get, operation_id = "deployment-intent-group_diff", tag = "lifecycle",
    path = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}/revisions/diff",
    params(GroupPath, DiffQuery), responses((status = 200, description = "Objects that differ", body = RevisionDiff)))]
pub async fn diff(
    State(app): State<App>,
    Path(path): Path<GroupPath>,
    Query(query): Query<DiffQuery>,
) -> Result<Json<RevisionDiff>, Problem> {
    Ok(Json(app.diff(&path, query.from, query.to).await?))
}

/// EMCO's body of rollback.
#[derive(Debug, Deserialize, ToSchema)]
pub struct Rollback {
    #[serde(default)]
    pub metadata: VerbMetadata,
    pub spec: RollbackSpec,
}

/// What a verb is called for.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub struct VerbMetadata {
    /// Kept in the history of revisions.
    #[serde(default)]
    pub description: String,
}

/// Where to go back to.
#[derive(Debug, Deserialize, ToSchema)]
pub struct RollbackSpec {
    pub revision: RevisionNumber,
}

/// A revision. EMCO writes the number as a text.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum RevisionNumber {
    Number(i64),
    Text(String),
}

impl RevisionNumber {
    fn number(&self) -> Result<i64, Problem> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Text(text) => {
                text.parse().map_err(|_| codes::INVALID.problem(format!("Invalid Input: spec.revision {text:?} is not a number")))
            }
        }
    }
}

/// EMCO's body of migrate.
#[derive(Debug, Deserialize, ToSchema)]
pub struct Migrate {
    pub spec: MigrateSpec,
}

/// The group that takes over.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrateSpec {
    pub target_composite_app_version: String,
    pub target_deployment_intent_group: String,
}

/// Who asks, and whose apps may be moved for it, as the gateway says.
pub(super) fn requested_by(headers: &HeaderMap) -> Result<Requester, Problem> {
    let text = |name: &str| headers.get(name).and_then(|name| name.to_str().ok());
    let name = text("drover-user").unwrap_or_default().chars().take(128).collect();
    let movable_projects = text("drover-movable-projects").map(serde_json::from_str).transpose();
    let movable_projects = movable_projects.map_err(|error| codes::INVALID.problem(format!("drover-movable-projects: {error}")))?;
    Ok(Requester { name, movable_projects })
}

/// What the charts of the group say to those who install them (`NOTES.txt`), rendered from the documents as they are now.
#[utoipa::path(get, operation_id = "chart_notes", tag = "lifecycle",
    path = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}/notes",
    params(GroupPath), responses((status = 200, description = "The notes of each chart that has some", body = NotesList)))]
pub async fn notes(State(app): State<App>, Path(path): Path<GroupPath>) -> Result<Json<NotesList>, Problem> {
    Ok(Json(app.notes(&path).await?))
}

/// The running apps of other groups that seem to call Services of this group by name: in another cluster than theirs the name is unknown.
#[utoipa::path(get, operation_id = "callers", tag = "lifecycle",
    path = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}/callers",
    params(GroupPath),
    responses((status = 200, description = "The callers", body = CallerList)))]
pub async fn callers(State(app): State<App>, Path(path): Path<GroupPath>) -> Result<Json<CallerList>, Problem> {
    Ok(Json(app.callers(&path).await?))
}
