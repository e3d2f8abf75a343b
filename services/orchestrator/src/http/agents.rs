//! The list of agents.

use axum::extract::State;
use drover_api::agents::AgentList;
use drover_service::{Json, Problem};

use crate::app::App;

/// Drover's agents, in which clusters they run and how far the rollout of each is. What is to run is set at `/v2/agents/{agent}`.
#[utoipa::path(get, path = "/v2/agent-copies", operation_id = "agent_copies", tag = "agents",
    responses((status = 200, description = "The agents", body = AgentList)))]
pub async fn list(State(app): State<App>) -> Result<Json<AgentList>, Problem> {
    Ok(Json(app.agents().await?))
}
