//! The list of clusters with EMCO's two other shapes, and what is known of a member.

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

/// Which clusters, in which shape.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Shape {
    /// Only names of clusters that have this label.
    pub label: Option<String>,
    /// With their labels instead of their specs.
    #[serde(rename = "withLabels")]
    pub with_labels: Option<bool>,
    /// `state`: with what is known of each.
    pub view: Option<String>,
    /// At most this many (plain list only).
    pub limit: Option<u32>,
    /// The page after this one (plain list only).
    pub after: Option<String>,
}

/// A cluster as its lists show it: always `metadata`, the rest as asked for. `?label=` answers plain names.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Listed {
    /// `?label=`
    Name(String),
    /// Else.
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

/// State and room of a member.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClusterStatus {
    /// State.
    #[serde(flatten)]
    pub state: ClusterState,
    /// Its nodes as last seen; `age_ms` says how long ago.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
}

/// Clusters of a provider.
#[utoipa::path(get, path = "/v2/cluster-providers/{clusterProvider}/clusters", operation_id = "cluster_list", tag = "clusters",
    params(("clusterProvider" = String, Path), Shape), responses((status = 200, description = "In the order of their names", body = Vec<Listed>)))]
pub async fn list(state: State<App>, raw: RawPathParams, query: Query<Shape>) -> Result<Response, Problem> {
    let (app, params, shape) = (state.0, PathParams::from(&raw), query.0);
    let view = match shape.view.as_deref() {
        None | Some("") => false,
        Some("state") => true,
        Some(other) => return Err(codes::INVALID.problem(format!("view={other}: state is expected"))),
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

/// State and room of one cluster.
#[utoipa::path(get, path = "/v2/cluster-providers/{clusterProvider}/clusters/{cluster}/status", operation_id = "cluster_status", tag = "clusters",
    params(("clusterProvider" = String, Path), ("cluster" = String, Path)), responses((status = 200, description = "As last seen", body = ClusterStatus)))]
pub async fn status(state: State<App>, path: Path<(String, String)>) -> Result<Json<ClusterStatus>, Problem> {
    let (app, (provider, cluster)) = (state.0, path.0);
    app.cluster_id(&provider, &cluster).await?;
    let key = MemberKey::new(&provider, &cluster);
    Ok(Json(ClusterStatus { state: app.fleet.state(&key), capacity: app.fleet.capacity_now(&key) }))
}
