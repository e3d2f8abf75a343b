//! Lifecycle of logical clouds. At level 0 every change takes effect immediately.

use axum::extract::{RawPathParams, State};
use drover_resources::PathParams;
use drover_service::{Json, Problem};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::{App, Error, logical_cloud};
use crate::resources::LOGICAL_CLOUD;

/// State of a logical cloud.
#[derive(Debug, Serialize, ToSchema)]
pub struct LogicalCloudStatus {
    /// Name of its project.
    pub project: String,
    /// Name of the logical cloud.
    pub name: String,
    /// Its history.
    pub states: LogicalCloudStates,
    /// Its current state.
    #[serde(rename = "deployedStatus")]
    pub deployed_status: String,
    /// `Ready` once instantiated.
    #[serde(rename = "readyStatus")]
    pub ready_status: String,
}

/// History of a logical cloud.
#[derive(Debug, Serialize, ToSchema)]
pub struct LogicalCloudStates {
    /// Oldest first.
    pub actions: Vec<LogicalCloudAction>,
}

/// An entry in the history of a logical cloud.
#[derive(Debug, Serialize, ToSchema)]
pub struct LogicalCloudAction {
    /// State that was reached.
    pub state: String,
    /// When it was reached, RFC 3339.
    pub time: String,
}

/// Marks the logical cloud as instantiated.
#[utoipa::path(post, operation_id = "logical-cloud_instantiate", tag = "logical-clouds",
    path = "/v2/projects/{project}/logical-clouds/{logicalCloud}/instantiate", params(("project" = String, Path), ("logicalCloud" = String, Path)),
    responses((status = 202, description = "Instantiated")))]
pub async fn instantiate(State(app): State<App>, raw: RawPathParams) -> Result<StatusCode, Problem> {
    let mut tx = app.store.begin().await?;
    let cloud = logical_cloud::at(&mut tx, &PathParams::from(&raw).fill(&LOGICAL_CLOUD.item_path())?).await?;
    logical_cloud::instantiate(&mut tx, cloud.id).await?;
    tx.commit().await.map_err(Error::from)?;
    Ok(StatusCode::ACCEPTED)
}

/// Marks the logical cloud as terminated. Refused while a deployment intent group runs in it.
#[utoipa::path(post, operation_id = "logical-cloud_terminate", tag = "logical-clouds",
    path = "/v2/projects/{project}/logical-clouds/{logicalCloud}/terminate", params(("project" = String, Path), ("logicalCloud" = String, Path)),
    responses((status = 202, description = "Terminated")))]
pub async fn terminate(State(app): State<App>, raw: RawPathParams) -> Result<StatusCode, Problem> {
    let mut tx = app.store.begin().await?;
    let cloud = logical_cloud::at(&mut tx, &PathParams::from(&raw).fill(&LOGICAL_CLOUD.item_path())?).await?;
    logical_cloud::terminate(&mut tx, cloud.id).await?;
    tx.commit().await.map_err(Error::from)?;
    Ok(StatusCode::ACCEPTED)
}

/// State and history of a logical cloud.
#[utoipa::path(get, operation_id = "logical-cloud_status", tag = "logical-clouds",
    path = "/v2/projects/{project}/logical-clouds/{logicalCloud}/status", params(("project" = String, Path), ("logicalCloud" = String, Path)),
    responses((status = 200, description = "State and history", body = LogicalCloudStatus)))]
pub async fn status(State(app): State<App>, raw: RawPathParams) -> Result<Json<LogicalCloudStatus>, Problem> {
    let params = PathParams::from(&raw);
    let mut tx = app.store.begin().await?;
    let cloud = logical_cloud::at(&mut tx, &params.fill(&LOGICAL_CLOUD.item_path())?).await?;
    let history = logical_cloud::actions(&mut tx, cloud.id).await?;
    let state = logical_cloud::state(&mut tx, cloud.id).await?.to_string();
    let actions = history.into_iter().map(|action| LogicalCloudAction { state: action.state, time: action.at.0.to_string() }).collect();
    Ok(Json(LogicalCloudStatus {
        project: params.get("project").unwrap_or_default().to_owned(),
        name: cloud.name,
        states: LogicalCloudStates { actions },
        ready_status: if state == "Instantiated" { "Ready" } else { "NotReady" }.to_owned(),
        deployed_status: state,
    }))
}
