//! What users look at of one copy of an app: its pods, its events and its logs, read from the member's API server when asked for.

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use drover_api::members::{CopyEvents, CopyPods};
use drover_scheduling::MemberKey;
use drover_service::{Json, Path, Problem, Query};
use http::header;
use uuid::Uuid;

use crate::app::{App, LogQuery};

type Copy = (String, String, Uuid);

/// The pods of a copy of an app, sorted by name.
#[utoipa::path(get, path = "/v2/cluster-providers/{clusterProvider}/clusters/{cluster}/copies/{binding}/pods", operation_id = "copy_pods",
    tag = "clusters", params(("clusterProvider" = String, Path), ("cluster" = String, Path), ("binding" = Uuid, Path)),
    responses((status = 200, description = "The pods", body = CopyPods)))]
pub async fn pods(state: State<App>, path: Path<Copy>) -> Result<Json<CopyPods>, Problem> {
    let (provider, cluster, binding) = path.0;
    Ok(Json(state.pods_of(&MemberKey::new(&provider, &cluster), binding).await?))
}

/// The events of a copy of an app and of its pods, oldest first, as long as the cluster keeps them (usually an hour).
#[utoipa::path(get, path = "/v2/cluster-providers/{clusterProvider}/clusters/{cluster}/copies/{binding}/events", operation_id = "copy_events",
    tag = "clusters", params(("clusterProvider" = String, Path), ("cluster" = String, Path), ("binding" = Uuid, Path)),
    responses((status = 200, description = "The events", body = CopyEvents)))]
pub async fn events(state: State<App>, path: Path<Copy>) -> Result<Json<CopyEvents>, Problem> {
    let (provider, cluster, binding) = path.0;
    Ok(Json(state.events_of(&MemberKey::new(&provider, &cluster), binding).await?))
}

/// The log of a container of a copy of an app.
#[utoipa::path(get, path = "/v2/cluster-providers/{clusterProvider}/clusters/{cluster}/copies/{binding}/log", operation_id = "copy_log",
    tag = "clusters", params(("clusterProvider" = String, Path), ("cluster" = String, Path), ("binding" = Uuid, Path), LogQuery),
    responses((status = 200, description = "The lines", body = String, content_type = "text/plain")))]
pub async fn log(state: State<App>, path: Path<Copy>, query: Query<LogQuery>) -> Result<Response, Problem> {
    let (provider, cluster, binding) = path.0;
    let lines = state.log_of(&MemberKey::new(&provider, &cluster), binding, &query.0).await?;
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], Body::from_stream(lines)).into_response())
}
