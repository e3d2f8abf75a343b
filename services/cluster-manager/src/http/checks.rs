//! Checks of a kubeconfig before a cluster is registered with it.

use axum::extract::State;
use drover_api::members::{ClusterCheck, ClusterCheckOrder};
use drover_service::{Json, Problem};

use crate::app::App;

/// Says whether a kubeconfig leads to a cluster that answers and accepts the credential, and whether that cluster is registered already.
/// Nothing is stored.
#[utoipa::path(post, path = "/v2/cluster-checks", operation_id = "cluster_check", tag = "clusters", request_body = ClusterCheckOrder,
    responses((status = 200, description = "What was found", body = ClusterCheck)))]
pub async fn check(state: State<App>, order: Json<ClusterCheckOrder>) -> Result<Json<ClusterCheck>, Problem> {
    Ok(Json(state.check(&order.0.kubeconfig).await?))
}
