//! The orders of agents, for orchestrator.

use axum::extract::State;
use drover_api::agents::AgentOrders;
use drover_service::{Json, Problem};

use crate::app::App;

/// The agents that clusters are to run, each with the clusters that its document means now.
#[utoipa::path(get, path = "/internal/agents", operation_id = "agent_orders", tag = "peer",
    responses((status = 200, description = "Sorted by name", body = AgentOrders)))]
pub async fn orders(state: State<App>) -> Result<Json<AgentOrders>, Problem> {
    Ok(Json(state.agent_orders().await?))
}
