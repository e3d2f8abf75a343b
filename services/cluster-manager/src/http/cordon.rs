//! Closes a cluster to new copies of apps, and opens it again. What runs there is not affected.

use axum::extract::State;
use drover_api::members::CordonOrder;
use drover_scheduling::Cordon;
use drover_service::{DryRun, Json, Path, Problem, Query, codes};
use http::StatusCode;

use crate::app::App;

/// The longest reason that is accepted, in characters.
const LONGEST: usize = 256;

/// Closes a cluster to new copies of apps. One that is closed already keeps the time since when it is.
#[utoipa::path(put, path = "/v2/cluster-providers/{clusterProvider}/clusters/{cluster}/cordon", operation_id = "cluster_cordon",
    tags = ["clusters", "peer"], params(("clusterProvider" = String, Path), ("cluster" = String, Path), DryRun), request_body = CordonOrder,
    responses((status = 200, description = "The cluster is closed", body = Cordon)))]
pub async fn put(
    state: State<App>,
    path: Path<(String, String)>,
    Query(query): Query<DryRun>,
    order: Json<CordonOrder>,
) -> Result<Json<Cordon>, Problem> {
    let ((provider, cluster), order) = (path.0, order.0);
    let reason = &order.reason;
    if reason.chars().count() > LONGEST || reason.chars().any(char::is_control) {
        return Err(codes::INVALID.problem(format!("reason: at most {LONGEST} characters on one line")));
    }
    Ok(Json(state.cordon(&provider, &cluster, &order, query.asked()?).await?))
}

/// Opens a cluster to new copies of apps. One that is open stays open.
#[utoipa::path(delete, path = "/v2/cluster-providers/{clusterProvider}/clusters/{cluster}/cordon", operation_id = "cluster_uncordon",
    tag = "clusters", params(("clusterProvider" = String, Path), ("cluster" = String, Path), DryRun),
    responses((status = 204, description = "The cluster is open")))]
pub async fn delete(state: State<App>, path: Path<(String, String)>, Query(query): Query<DryRun>) -> Result<StatusCode, Problem> {
    let (provider, cluster) = path.0;
    state.uncordon(&provider, &cluster, query.asked()?).await?;
    Ok(StatusCode::NO_CONTENT)
}
