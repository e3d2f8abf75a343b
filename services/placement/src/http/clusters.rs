//! The room of all members.

use axum::extract::State;
use drover_api::ledger::ClusterCapacity;
use drover_service::{Json, Problem, Query, codes};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;

/// Which view of the clusters is asked for.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct CapacityQuery {
    /// `capacity`, the only view and the default.
    #[serde(default)]
    view: Option<String>,
}

/// Room of every cluster: allocatable, requested, reserved, used and free, with the age of the observation. The most preferred first.
#[utoipa::path(get, path = "/v2/clusters", operation_id = "cluster_capacity_list", tags = ["clusters", "peer"], params(CapacityQuery),
    responses((status = 200, description = "Clusters in order of preference", body = Vec<ClusterCapacity>)))]
pub async fn list(State(app): State<App>, Query(query): Query<CapacityQuery>) -> Result<Json<Vec<ClusterCapacity>>, Problem> {
    match query.view.as_deref() {
        None | Some("capacity") => Ok(Json(app.capacity())),
        Some(other) => Err(codes::INVALID.problem(format!("There is no view {other:?} of the clusters; it can be \"capacity\""))),
    }
}
