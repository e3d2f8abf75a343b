//! The list of clusters, in EMCO's three shapes, and the status of a cluster.

use axum::extract::{RawPathParams, State};
use axum::response::{IntoResponse, Response};
use drover_api::members::ClusterState;
use drover_resources::{Metadata, PathParams};
use drover_scheduling::{Capacity, MemberKey};
use drover_service::{Json, Path, Problem, Query, codes};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::http::labels::Label;
use crate::resources::cluster::{CLUSTER, ClusterSpec};

/// Filter and shape of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ClusterListQuery {
    /// Return only the names of the clusters that have this label.
    pub label: Option<String>,
    /// Return labels instead of specs.
    #[serde(rename = "withLabels")]
    pub with_labels: Option<bool>,
    /// `state`: return the health of each cluster too.
    pub view: Option<String>,
    /// Maximum number of clusters (plain list only).
    pub limit: Option<u32>,
    /// Name after which the page starts (plain list only).
    pub after: Option<String>,
}

/// An entry of the list: a plain name with `?label=`, else `metadata` and what was asked for.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Listed {
    /// With `?label=`.
    Name(String),
    /// Otherwise.
    Cluster(Box<ListedCluster>),
}

/// One cluster of a list.
#[derive(Debug, Serialize, ToSchema)]
pub struct ListedCluster {
    metadata: Metadata,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<ClusterSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<Vec<Label>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<ClusterState>,
}

/// Health and capacity of a cluster.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClusterHealth {
    #[serde(flatten)]
    pub state: ClusterState,
    /// Nodes and usage as last observed; `ageMs` says how long ago. Absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// The uid of its namespace `kube-system`, which identifies the Kubernetes cluster; absent until it was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// Lists the clusters of a provider.
#[utoipa::path(get, path = "/v2/cluster-providers/{clusterProvider}/clusters", operation_id = "cluster_list", tag = "clusters",
    params(("clusterProvider" = String, Path), ClusterListQuery), responses((status = 200, description = "Sorted by name", body = Vec<Listed>)))]
pub async fn list(state: State<App>, raw: RawPathParams, query: Query<ClusterListQuery>) -> Result<Response, Problem> {
    let (app, params, shape) = (state.0, PathParams::from(&raw), query.0);
    let view = match shape.view.as_deref() {
        None | Some("") => false,
        Some("state") => true,
        Some(other) => return Err(codes::INVALID.problem(format!("view={other} is unknown; the only view is state"))),
    };
    if shape.label.is_none() && shape.with_labels != Some(true) && !view {
        let page = [("limit", shape.limit.map(|limit| limit.to_string())), ("after", shape.after)];
        let page = page.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
        return drover_resources::list(&app.documents, &CLUSTER, &params, &page).await;
    }
    let provider = params.get("clusterProvider").unwrap_or_default();
    let clusters = app.clusters_of(provider).await?;
    let listed = clusters.into_iter().filter(|cluster| shape.label.as_ref().is_none_or(|label| cluster.labels.contains(label)));
    let listed: Vec<Listed> = listed
        .map(|cluster| {
            let key = MemberKey::new(provider, &cluster.document.name);
            let document = cluster.document;
            if shape.label.is_some() && !view && shape.with_labels != Some(true) {
                return Listed::Name(document.name);
            }
            let labels = (shape.with_labels == Some(true)).then(|| cluster.labels.into_iter().map(|label| Label { label }).collect());
            let spec = (shape.with_labels != Some(true)).then_some(document.spec);
            Listed::Cluster(Box::new(ListedCluster {
                metadata: document.metadata,
                spec,
                labels,
                state: view.then(|| app.fleet.state(&key)),
            }))
        })
        .collect();
    Ok(Json(listed).into_response())
}

/// Health and capacity of one cluster.
#[utoipa::path(get, path = "/v2/cluster-providers/{clusterProvider}/clusters/{cluster}/status", operation_id = "cluster_status", tag = "clusters",
    params(("clusterProvider" = String, Path), ("cluster" = String, Path)), responses((status = 200, description = "As last observed", body = ClusterHealth)))]
pub async fn status(state: State<App>, path: Path<(String, String)>) -> Result<Json<ClusterHealth>, Problem> {
    let (app, (provider, cluster)) = (state.0, path.0);
    let uid = app.identity_of(app.cluster_id(&provider, &cluster).await?).await?;
    let key = MemberKey::new(&provider, &cluster);
    Ok(Json(ClusterHealth { state: app.fleet.state(&key), capacity: app.fleet.capacity_now(&key), uid }))
}
