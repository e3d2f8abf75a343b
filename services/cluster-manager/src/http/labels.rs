//! Labels of a cluster: `{"clusterLabel":"x"}`, without metadata, as in EMCO.

use axum::extract::State;
use drover_resources::is_name;
use drover_scheduling::Reachability;
use drover_service::{DryRun, Json, Path, Problem, Query, codes};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;

/// A label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ClusterLabel)]
pub struct Label {
    /// A name, or a pair `key=value` of names. `pod-network=NAME` and `reachability=podNetwork|nodePort|loadBalancer|none` say how pods
    /// are reached.
    #[serde(rename = "clusterLabel")]
    pub label: String,
}

type OneLabel = (String, String, String);

/// Lists the labels of a cluster.
#[utoipa::path(get, path = "/v2/cluster-providers/{clusterProvider}/clusters/{cluster}/labels", operation_id = "cluster_label_list", tag = "clusters",
    params(("clusterProvider" = String, Path), ("cluster" = String, Path)), responses((status = 200, description = "Sorted", body = Vec<Label>)))]
pub async fn list(state: State<App>, path: Path<(String, String)>) -> Result<Json<Vec<Label>>, Problem> {
    let labels = state.labels(&path.0.0, &path.0.1).await?;
    Ok(Json(labels.into_iter().map(|label| Label { label }).collect()))
}

/// Adds a label to a cluster.
#[utoipa::path(post, path = "/v2/cluster-providers/{clusterProvider}/clusters/{cluster}/labels", operation_id = "cluster_label_create", tag = "clusters",
    params(("clusterProvider" = String, Path), ("cluster" = String, Path), DryRun), request_body = Label,
    responses((status = 201, description = "The cluster has the label", body = Label)))]
pub async fn create(
    state: State<App>,
    path: Path<(String, String)>,
    Query(query): Query<DryRun>,
    body: Json<Label>,
) -> Result<(StatusCode, Json<Label>), Problem> {
    let Json(label) = body;
    if !is_label(&label.label) {
        let words = "is neither a name nor a pair key=value of names";
        return Err(codes::INVALID.problem(format!("Invalid Input: clusterLabel: {:?} {words}", label.label)));
    }
    Reachability::check(&label.label)
        .map_err(|error| codes::INVALID.problem(format!("Invalid Input: clusterLabel: {:?}: {error}", label.label)))?;
    state.add_label(&path.0.0, &path.0.1, &label.label, query.asked()?).await?;
    Ok((StatusCode::CREATED, Json(label)))
}

/// Returns one label of a cluster.
#[utoipa::path(get, path = "/v2/cluster-providers/{clusterProvider}/clusters/{cluster}/labels/{clusterLabel}", operation_id = "cluster_label_get", tag = "clusters",
    params(("clusterProvider" = String, Path), ("cluster" = String, Path), ("clusterLabel" = String, Path)),
    responses((status = 200, description = "The cluster has the label", body = Label)))]
pub async fn get(state: State<App>, path: Path<OneLabel>) -> Result<Json<Label>, Problem> {
    let (provider, cluster, label) = path.0;
    let found = state.labels(&provider, &cluster).await?.into_iter().find(|found| *found == label);
    found.map(|label| Json(Label { label })).ok_or_else(no_label)
}

/// Replaces a label by itself. EMCO offers this operation and answers 201.
#[utoipa::path(put, path = "/v2/cluster-providers/{clusterProvider}/clusters/{cluster}/labels/{clusterLabel}", operation_id = "cluster_label_put", tag = "clusters",
    params(("clusterProvider" = String, Path), ("cluster" = String, Path), ("clusterLabel" = String, Path), DryRun), request_body = Label,
    responses((status = 201, description = "The cluster has the label", body = Label)))]
pub async fn put(
    state: State<App>,
    path: Path<OneLabel>,
    Query(query): Query<DryRun>,
    body: Json<Label>,
) -> Result<(StatusCode, Json<Label>), Problem> {
    // Nothing changes in any case.
    query.asked()?;
    if body.0.label != path.0.2 {
        return Err(codes::MISMATCHED_NAME.problem("Mismatched name in PUT request"));
    }
    Ok((StatusCode::CREATED, get(state, path).await?))
}

/// Removes a label from a cluster.
#[utoipa::path(delete, path = "/v2/cluster-providers/{clusterProvider}/clusters/{cluster}/labels/{clusterLabel}", operation_id = "cluster_label_delete", tag = "clusters",
    params(("clusterProvider" = String, Path), ("cluster" = String, Path), ("clusterLabel" = String, Path), DryRun),
    responses((status = 204, description = "The label is removed")))]
pub async fn delete(state: State<App>, path: Path<OneLabel>, Query(query): Query<DryRun>) -> Result<StatusCode, Problem> {
    let (provider, cluster, label) = path.0;
    if state.remove_label(&provider, &cluster, &label, query.asked()?).await? { Ok(StatusCode::NO_CONTENT) } else { Err(no_label()) }
}

fn no_label() -> Problem {
    codes::NOT_FOUND.problem("The requested resource not found")
}

/// EMCO's labels are names; Drover also allows pairs such as `zone=kr-1`.
fn is_label(label: &str) -> bool {
    match label.split_once('=') {
        Some((key, value)) => is_name(key) && is_name(value) && label.len() <= 128,
        None => is_name(label),
    }
}
