//! What users look at of one copy of an app: its pods, its events and its logs, read from the member's API server when asked for.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use drover_api::members::{CopyEvents, CopyPods};
use drover_scheduling::MemberKey;
use drover_service::tunnel::Handshake;
use drover_service::{Json, Path, Problem, Query, codes};
use http::header;
use uuid::Uuid;

use crate::app::{App, ExecOrder, LogQuery};

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

/// Runs a program in a container of a copy of an app. The request asks for a WebSocket (`Upgrade: websocket`) with the protocol
/// `v5.channel.k8s.io` of Kubernetes, whose messages go to the cluster and back unchanged. It is a POST, unlike other WebSockets, so that it
/// needs the rights of a change, is recorded as one, and cannot be made by the page of another site.
#[utoipa::path(post, path = "/v2/cluster-providers/{clusterProvider}/clusters/{cluster}/copies/{binding}/exec", operation_id = "copy_exec",
    tag = "clusters", params(("clusterProvider" = String, Path), ("cluster" = String, Path), ("binding" = Uuid, Path), ExecOrder),
    responses((status = 101, description = "The program runs; its input and output are messages of the WebSocket")))]
pub async fn exec(state: State<App>, path: Path<Copy>, mut request: Request) -> Result<Response, Problem> {
    let (provider, cluster, binding) = path.0;
    let order = ExecOrder::read(request.uri().query().unwrap_or_default())?;
    let handshake = Handshake::of(&mut request)
        .ok_or_else(|| codes::INVALID.problem("this request must ask for a WebSocket: Upgrade: websocket, by HTTP/1.1"))?;
    state.exec_in(&MemberKey::new(&provider, &cluster), binding, &order, handshake).await
}
