//! What only other services of Drover may ask.

use axum::extract::State;
use drover_api::members::MemberCredential;
use drover_scheduling::MemberKey;
use drover_service::{Json, Path, Problem};

use crate::app::App;

/// A member's kubeconfig, for resource-synchronizer.
#[utoipa::path(get, path = "/internal/members/{key}/kubeconfig", operation_id = "member_kubeconfig_get", tag = "peer", params(("key" = String, Path)),
    responses((status = 200, description = "The current one", body = MemberCredential)))]
pub async fn kubeconfig(state: State<App>, path: Path<String>) -> Result<Json<MemberCredential>, Problem> {
    Ok(Json(state.credential(&MemberKey(path.0)).await?))
}
