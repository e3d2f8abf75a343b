//! Operations for other services of Drover only.

use axum::extract::State;
use drover_api::members::MemberCredential;
use drover_scheduling::MemberKey;
use drover_service::{Json, Path, Problem};

use crate::app::App;

/// Returns the kubeconfig of a member, for resource-synchronizer.
#[utoipa::path(get, path = "/internal/members/{key}/kubeconfig", operation_id = "member_kubeconfig_get", tag = "peer", params(("key" = String, Path)),
    responses((status = 200, description = "The current kubeconfig", body = MemberCredential)))]
pub async fn kubeconfig(state: State<App>, path: Path<String>) -> Result<Json<MemberCredential>, Problem> {
    Ok(Json(state.credential(&MemberKey(path.0)).await?))
}
