//! Lifecycle of logical clouds. At level 0 every change takes effect immediately.

use axum::extract::{RawPathParams, State};
use drover_resources::{PathParams, TypedDocument};
use drover_service::{DryRun, Json, Problem, Query};
use drover_store::Tx;
use http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::app::{App, Error, logical_cloud};
use crate::resources::LOGICAL_CLOUD;
use crate::resources::logical_cloud::LogicalCloudSpec;

/// State of a logical cloud.
#[derive(Debug, Serialize, ToSchema)]
pub struct LogicalCloudStatus {
    /// Name of its project.
    pub project: String,
    /// Name of the logical cloud.
    pub name: String,
    /// The same; EMCO's clients read either.
    #[serde(rename = "logicalCloud")]
    pub logical_cloud: String,
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
    /// EMCO's id of the latest instantiation; empty, because Drover has none at level 0.
    pub statusctxid: String,
    /// Oldest first.
    pub actions: Vec<LogicalCloudAction>,
}

/// An entry in the history of a logical cloud.
#[derive(Debug, Serialize, ToSchema)]
pub struct LogicalCloudAction {
    /// State that was reached.
    pub state: String,
    /// EMCO's id of the instantiation; empty, because Drover has none at level 0.
    pub instance: String,
    /// When it was reached, RFC 3339.
    pub time: String,
    /// EMCO's revision; always 0.
    pub revision: i64,
}

/// Instantiates the logical cloud.
#[utoipa::path(post, operation_id = "logical-cloud_instantiate", tag = "logical-clouds",
    path = "/v2/projects/{project}/logical-clouds/{logicalCloud}/instantiate", params(("project" = String, Path), ("logicalCloud" = String, Path), DryRun),
    responses((status = 202, description = "Instantiated")))]
pub async fn instantiate(State(app): State<App>, raw: RawPathParams, Query(query): Query<DryRun>) -> Result<StatusCode, Problem> {
    let dry = query.asked()?;
    let (mut tx, cloud) = found(&app, &raw).await?;
    logical_cloud::instantiate(&mut tx, &cloud).await?;
    if !dry {
        tx.commit().await.map_err(Error::from)?;
    }
    Ok(StatusCode::ACCEPTED)
}

/// Terminates the logical cloud. Refused while a deployment intent group runs in it.
#[utoipa::path(post, operation_id = "logical-cloud_terminate", tag = "logical-clouds",
    path = "/v2/projects/{project}/logical-clouds/{logicalCloud}/terminate", params(("project" = String, Path), ("logicalCloud" = String, Path), DryRun),
    responses((status = 202, description = "Terminated")))]
pub async fn terminate(State(app): State<App>, raw: RawPathParams, Query(query): Query<DryRun>) -> Result<StatusCode, Problem> {
    let dry = query.asked()?;
    let (mut tx, cloud) = found(&app, &raw).await?;
    logical_cloud::terminate(&mut tx, &cloud).await?;
    if !dry {
        tx.commit().await.map_err(Error::from)?;
    }
    Ok(StatusCode::ACCEPTED)
}

/// Takes over changed cluster references of an instantiated logical cloud. The body is EMCO's: the document.
#[utoipa::path(post, operation_id = "logical-cloud_update", tag = "logical-clouds",
    path = "/v2/projects/{project}/logical-clouds/{logicalCloud}/update", params(("project" = String, Path), ("logicalCloud" = String, Path), DryRun),
    responses((status = 202, description = "The logical cloud", body = Value)))]
pub async fn update(State(app): State<App>, raw: RawPathParams, Query(query): Query<DryRun>) -> Result<(StatusCode, Json<Value>), Problem> {
    // Nothing changes in any case.
    query.asked()?;
    let (mut tx, cloud) = found(&app, &raw).await?;
    logical_cloud::update(&mut tx, &cloud).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({"metadata": cloud.metadata, "spec": cloud.spec}))))
}

/// Stops an instantiation or a termination that is going on.
#[utoipa::path(post, operation_id = "logical-cloud_stop", tag = "logical-clouds",
    path = "/v2/projects/{project}/logical-clouds/{logicalCloud}/stop", params(("project" = String, Path), ("logicalCloud" = String, Path), DryRun),
    responses((status = 200, description = "Stopped")))]
pub async fn stop(State(app): State<App>, raw: RawPathParams, Query(query): Query<DryRun>) -> Result<StatusCode, Problem> {
    query.asked()?;
    let (mut tx, cloud) = found(&app, &raw).await?;
    logical_cloud::stop(&mut tx, &cloud).await?;
    Ok(StatusCode::OK)
}

async fn found(app: &App, raw: &RawPathParams) -> Result<(Tx, TypedDocument<LogicalCloudSpec>), Problem> {
    let mut tx = app.store.begin().await?;
    let cloud = logical_cloud::at(&mut tx, &PathParams::from(raw).fill(&LOGICAL_CLOUD.item_path())?).await?;
    Ok((tx, cloud))
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
    let actions = history
        .into_iter()
        .map(|action| LogicalCloudAction { state: action.state, instance: String::new(), time: action.at.0.to_string(), revision: 0 })
        .collect();
    Ok(Json(LogicalCloudStatus {
        project: params.get("project").unwrap_or_default().to_owned(),
        logical_cloud: cloud.name.clone(),
        name: cloud.name,
        states: LogicalCloudStates { statusctxid: String::new(), actions },
        ready_status: if state == "Instantiated" { "Ready" } else { "NotReady" }.to_owned(),
        deployed_status: state,
    }))
}
