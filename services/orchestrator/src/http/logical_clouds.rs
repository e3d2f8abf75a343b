//! Lifecycle of logical clouds. At level 0 every change takes effect immediately; at level 1 the status says how far it is.

use std::collections::BTreeMap;

use axum::extract::{RawPathParams, State};
use axum::response::{IntoResponse, Response};
use drover_api::status::{AppClusters, AppResources, ClusterStatus};
use drover_resources::{PathParams, TypedDocument};
use drover_service::{DryRun, Json, Problem, Query, codes};
use drover_store::Tx;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::app::status_view::StatusQuery;
use crate::app::{App, Error, logical_cloud};
use crate::resources::cluster_reference::ClusterReferenceSpec;
use crate::resources::logical_cloud::LogicalCloudSpec;
use crate::resources::{CLUSTER_REFERENCE, LOGICAL_CLOUD};
use crate::store::cloud_action;

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
    /// Objects by deployed status.
    #[serde(rename = "deployedCounts", skip_serializing_if = "BTreeMap::is_empty")]
    pub deployed_counts: BTreeMap<String, usize>,
    /// Objects by readiness.
    #[serde(rename = "readyCounts", skip_serializing_if = "BTreeMap::is_empty")]
    pub ready_counts: BTreeMap<String, usize>,
    /// What a cloud of level 1 has in each cluster; not with `output=summary`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<ClusterStatus>,
    /// With `?clusters`: only the clusters.
    #[serde(rename = "clustersByApp", skip_serializing_if = "Option::is_none")]
    pub clusters_by_app: Option<Vec<AppClusters>>,
    /// With `?resources`: only the names of the objects.
    #[serde(rename = "resourcesByApp", skip_serializing_if = "Option::is_none")]
    pub resources_by_app: Option<Vec<AppResources>>,
    /// Why it is not there yet, a sentence per cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

/// History of a logical cloud.
#[derive(Debug, Serialize, ToSchema)]
pub struct LogicalCloudStates {
    /// EMCO's id of the latest instantiation; empty, because Drover has none for logical clouds.
    pub statusctxid: String,
    /// Oldest first.
    pub actions: Vec<LogicalCloudAction>,
}

/// An entry in the history of a logical cloud.
#[derive(Debug, Serialize, ToSchema)]
pub struct LogicalCloudAction {
    /// State that was reached.
    pub state: String,
    /// EMCO's id of the instantiation; empty, because Drover has none for logical clouds.
    pub instance: String,
    /// When it was reached, RFC 3339.
    pub time: String,
    /// EMCO's revision; always 0.
    pub revision: i64,
}

/// Instantiates the logical cloud. One of level 1 gets its namespace, quotas, roles and user in each of its clusters; the status says how far
/// that is.
#[utoipa::path(post, operation_id = "logical-cloud_instantiate", tag = "logical-clouds",
    path = "/v2/projects/{project}/logical-clouds/{logicalCloud}/instantiate", params(("project" = String, Path), ("logicalCloud" = String, Path), DryRun),
    responses((status = 202, description = "Instantiated")))]
pub async fn instantiate(State(app): State<App>, raw: RawPathParams, Query(query): Query<DryRun>) -> Result<StatusCode, Problem> {
    let dry = query.asked()?;
    let (mut tx, cloud) = found(&app, &raw).await?;
    logical_cloud::instantiate(&mut tx, app.store.key()?, &cloud).await?;
    finish(tx, dry).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Terminates the logical cloud and removes what it has in its clusters. Refused while a deployment intent group runs in it.
#[utoipa::path(post, operation_id = "logical-cloud_terminate", tag = "logical-clouds",
    path = "/v2/projects/{project}/logical-clouds/{logicalCloud}/terminate", params(("project" = String, Path), ("logicalCloud" = String, Path), DryRun),
    responses((status = 202, description = "Terminated")))]
pub async fn terminate(State(app): State<App>, raw: RawPathParams, Query(query): Query<DryRun>) -> Result<StatusCode, Problem> {
    let dry = query.asked()?;
    let (mut tx, cloud) = found(&app, &raw).await?;
    logical_cloud::terminate(&mut tx, &cloud).await?;
    finish(tx, dry).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Takes over changed cluster references, permissions and quotas of an instantiated logical cloud. The body is EMCO's: the document.
#[utoipa::path(post, operation_id = "logical-cloud_update", tag = "logical-clouds",
    path = "/v2/projects/{project}/logical-clouds/{logicalCloud}/update", params(("project" = String, Path), ("logicalCloud" = String, Path), DryRun),
    responses((status = 202, description = "The logical cloud", body = Value)))]
pub async fn update(State(app): State<App>, raw: RawPathParams, Query(query): Query<DryRun>) -> Result<(StatusCode, Json<Value>), Problem> {
    let dry = query.asked()?;
    let (mut tx, cloud) = found(&app, &raw).await?;
    logical_cloud::update(&mut tx, app.store.key()?, &cloud).await?;
    finish(tx, dry).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({"metadata": cloud.metadata, "spec": cloud.spec}))))
}

/// Stops an instantiation that is going on or has failed, and undoes it.
#[utoipa::path(post, operation_id = "logical-cloud_stop", tag = "logical-clouds",
    path = "/v2/projects/{project}/logical-clouds/{logicalCloud}/stop", params(("project" = String, Path), ("logicalCloud" = String, Path), DryRun),
    responses((status = 200, description = "Stopped")))]
pub async fn stop(State(app): State<App>, raw: RawPathParams, Query(query): Query<DryRun>) -> Result<StatusCode, Problem> {
    let dry = query.asked()?;
    let (mut tx, cloud) = found(&app, &raw).await?;
    logical_cloud::stop(&mut tx, &cloud).await?;
    finish(tx, dry).await?;
    Ok(StatusCode::OK)
}

/// Commits, unless it is a dry run.
async fn finish(tx: Tx, dry: bool) -> Result<(), Problem> {
    if !dry {
        tx.commit().await.map_err(Error::from)?;
    }
    Ok(())
}

async fn found(app: &App, raw: &RawPathParams) -> Result<(Tx, TypedDocument<LogicalCloudSpec>), Problem> {
    let mut tx = app.store.begin().await?;
    let cloud = logical_cloud::at(&mut tx, &PathParams::from(raw).fill(&LOGICAL_CLOUD.item_path())?).await?;
    Ok((tx, cloud))
}

/// State and history of a logical cloud, and what it has in its clusters.
#[utoipa::path(get, operation_id = "logical-cloud_status", tag = "logical-clouds",
    path = "/v2/projects/{project}/logical-clouds/{logicalCloud}/status",
    params(("project" = String, Path), ("logicalCloud" = String, Path),
        ("output" = Option<String>, Query, description = "`summary`, `all` (default) or `detail`"),
        ("cluster" = Option<Vec<String>>, Query, description = "Only these clusters, as `provider%2Bcluster`; may repeat"),
        ("resource" = Option<Vec<String>>, Query, description = "Only resources of these names; may repeat"),
        ("clusters" = Option<String>, Query, description = "Only the clusters"),
        ("resources" = Option<String>, Query, description = "Only the names of the objects"),
        ("status" = Option<String>, Query, description = "`deployed` or `ready`; both are always shown")),
    responses((status = 200, description = "State and history", body = LogicalCloudStatus)))]
pub async fn status(
    State(app): State<App>,
    raw: RawPathParams,
    Query(query): Query<Vec<(String, String)>>,
) -> Result<Json<LogicalCloudStatus>, Problem> {
    let params = PathParams::from(&raw);
    let wanted = StatusQuery::parse(&query)?;
    let mut tx = app.store.begin().await?;
    let cloud = logical_cloud::at(&mut tx, &params.fill(&LOGICAL_CLOUD.item_path())?).await?;
    let history = cloud_action::of_cloud(&mut tx, cloud.id).await?;
    let state = logical_cloud::state(&mut tx, cloud.id).await?;
    let view = app.cloud_view(&mut tx, cloud.id).await?;
    tx.rollback().await.map_err(Error::from)?;
    let deployed = logical_cloud::deployed(state, &view.copies);
    let shown = view.show(&wanted, &deployed)?;
    let actions = history
        .into_iter()
        .map(|action| LogicalCloudAction { state: action.state, instance: String::new(), time: action.at.0.to_string(), revision: 0 })
        .collect();
    Ok(Json(LogicalCloudStatus {
        project: params.get("project").unwrap_or_default().to_owned(),
        logical_cloud: cloud.name.clone(),
        name: cloud.name,
        states: LogicalCloudStates { statusctxid: String::new(), actions },
        ready_status: if deployed == "Instantiated" { "Ready" } else { "NotReady" }.to_owned(),
        deployed_status: deployed,
        deployed_counts: shown.deployed_counts,
        ready_counts: shown.ready_counts,
        clusters: shown.clusters,
        clusters_by_app: shown.clusters_by_app,
        resources_by_app: shown.resources_by_app,
        reasons: view.reasons(),
    }))
}

/// The kubeconfig of the user of a logical cloud of level 1 for one of its clusters. Whoever has it has the rights of the cloud's
/// user-permissions in that cluster.
#[utoipa::path(get, operation_id = "cluster-reference_kubeconfig", tag = "logical-clouds",
    path = "/v2/projects/{project}/logical-clouds/{logicalCloud}/cluster-references/{clusterReference}/kubeconfig",
    params(("project" = String, Path), ("logicalCloud" = String, Path), ("clusterReference" = String, Path)),
    responses((status = 200, description = "The kubeconfig", body = String, content_type = "application/yaml")))]
pub async fn kubeconfig(State(app): State<App>, raw: RawPathParams) -> Result<Response, Problem> {
    let params = PathParams::from(&raw);
    let (mut tx, cloud) = found(&app, &raw).await?;
    let path = params.fill(&CLUSTER_REFERENCE.item_path())?;
    let reference: Option<TypedDocument<ClusterReferenceSpec>> = drover_resources::get(&mut tx, &CLUSTER_REFERENCE, &path).await?;
    let reference = reference.ok_or_else(|| Error::NotFound { what: format!("Cluster reference {path}") })?;
    if cloud.spec.is_admin() {
        let why = "a logical cloud of level 0 has no user of its own";
        return Err(codes::WRONG_STATE.problem(format!("there is no kubeconfig: {why}")));
    }
    let view = app.cloud_view(&mut tx, cloud.id).await?;
    tx.rollback().await.map_err(Error::from)?;
    let member = reference.spec.member();
    let part = view.copies.into_iter().find(|copy| copy.present && copy.member.0 == member);
    let part = part.ok_or_else(|| codes::WRONG_STATE.problem("Logical Cloud hasn't been instantiated yet"))?;
    let text = app.user_kubeconfig(&part).await?;
    let mut response = text.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/yaml"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}
