//! Operations for other services of Drover only.

use axum::extract::State;
use drover_api::members::{MemberCredential, UserKubeconfig, UserOrder, UserState};
use drover_scheduling::MemberKey;
use drover_service::{Json, Path, Problem};
use serde_json::Value;
use uuid::Uuid;

use crate::app::App;

/// Returns the kubeconfig of a member, for resource-synchronizer.
#[utoipa::path(get, path = "/internal/members/{key}/kubeconfig", operation_id = "member_kubeconfig_get", tag = "peer", params(("key" = String, Path)),
    responses((status = 200, description = "The current kubeconfig", body = MemberCredential)))]
pub async fn kubeconfig(state: State<App>, path: Path<String>) -> Result<Json<MemberCredential>, Problem> {
    Ok(Json(state.credential(&MemberKey(path.0)).await?))
}

/// Makes a user of a member: a key, and a certificate that the member's own authority signs. One that exists is renewed when two thirds of its
/// time are over.
#[utoipa::path(put, path = "/internal/members/{key}/users/{id}", operation_id = "member_user_put", tag = "peer",
    params(("key" = String, Path), ("id" = Uuid, Path)), request_body = UserOrder,
    responses((status = 200, description = "Whether it has its certificate", body = UserState)))]
pub async fn put_user(state: State<App>, path: Path<(String, Uuid)>, order: Json<UserOrder>) -> Result<Json<UserState>, Problem> {
    let (key, id) = path.0;
    Ok(Json(state.issue_user(&MemberKey(key), id, &order.0).await?))
}

/// Returns the kubeconfig of a user of a member.
#[utoipa::path(get, path = "/internal/members/{key}/users/{id}/kubeconfig", operation_id = "member_user_kubeconfig", tag = "peer",
    params(("key" = String, Path), ("id" = Uuid, Path)), responses((status = 200, description = "Its kubeconfig", body = UserKubeconfig)))]
pub async fn user_kubeconfig(state: State<App>, path: Path<(String, Uuid)>) -> Result<Json<UserKubeconfig>, Problem> {
    let (key, id) = path.0;
    Ok(Json(UserKubeconfig { kubeconfig: state.user_kubeconfig(&MemberKey(key), id).await? }))
}

/// Forgets a user of a member.
#[utoipa::path(delete, path = "/internal/members/{key}/users/{id}", operation_id = "member_user_delete", tag = "peer",
    params(("key" = String, Path), ("id" = Uuid, Path)), responses((status = 200, description = "Forgotten", body = Value)))]
pub async fn delete_user(state: State<App>, path: Path<(String, Uuid)>) -> Result<Json<Value>, Problem> {
    let (key, id) = path.0;
    state.forget_user(&MemberKey(key), id).await?;
    Ok(Json(Value::Null))
}
