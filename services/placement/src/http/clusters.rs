//! Members with their room.

use axum::extract::State;
use drover_api::ledger::ClusterCapacity;
use drover_service::{Json, Problem, Query, codes};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;

/// Which view of the clusters.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct View {
    /// `capacity`, the only one.
    #[serde(default)]
    view: Option<String>,
}

/// Room of every member, the most preferred first: allocatable, requested, reserved, used and free, and how old that is.
#[utoipa::path(get, path = "/v2/clusters", operation_id = "cluster_capacity_list", tags = ["clusters", "peer"], params(View),
    responses((status = 200, description = "Members in order of preference", body = Vec<ClusterCapacity>)))]
pub async fn list(State(app): State<App>, Query(query): Query<View>) -> Result<Json<Vec<ClusterCapacity>>, Problem> {
    match query.view.as_deref() {
        None | Some("capacity") => Ok(Json(app.capacity())),
        Some(other) => Err(codes::INVALID.problem(format!("There is no view {other:?} of the clusters; it can be \"capacity\""))),
    }
}
