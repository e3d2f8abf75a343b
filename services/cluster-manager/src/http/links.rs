//! Links of clusters: what operators do with them, and the way through them for other services.

use axum::extract::{Request, State};
use axum::response::Response;
use drover_api::links::{InvitationOrder, LinkAcceptance, LinkInvitation, LinkState};
use drover_link::wire::PROTOCOL;
use drover_scheduling::MemberKey;
use drover_service::tunnel::switched;
use drover_service::{DryRun, Json, Path, Problem, Query, codes};
use http::{StatusCode, header};
use hyper_util::rt::TokioIo;

use crate::app::App;

type Cluster = Path<(String, String)>;

fn key(path: &Cluster) -> MemberKey {
    MemberKey::new(&path.0.0, &path.0.1)
}

/// Makes an invitation for the agent of a cluster, in the place of an earlier one. Its token is told in this answer only.
#[utoipa::path(post, path = "/v2/cluster-providers/{clusterProvider}/clusters/{cluster}/link/invitation", operation_id = "link_invite",
    tag = "clusters", params(("clusterProvider" = String, Path), ("cluster" = String, Path), DryRun), request_body = InvitationOrder,
    responses((status = 201, description = "The invitation", body = LinkInvitation)))]
pub async fn invite(
    state: State<App>,
    path: Cluster,
    Query(query): Query<DryRun>,
    order: Json<InvitationOrder>,
) -> Result<(StatusCode, Json<LinkInvitation>), Problem> {
    Ok((StatusCode::CREATED, Json(state.invite(&key(&path), &order.0, query.asked()?).await?)))
}

/// How far the link of a cluster is, and whether its agent is connected.
#[utoipa::path(get, path = "/v2/cluster-providers/{clusterProvider}/clusters/{cluster}/link", operation_id = "link_get", tag = "clusters",
    params(("clusterProvider" = String, Path), ("cluster" = String, Path)),
    responses((status = 200, description = "The link", body = LinkState)))]
pub async fn get(state: State<App>, path: Cluster) -> Result<Json<LinkState>, Problem> {
    Ok(Json(state.link(&key(&path)).await?))
}

/// Accepts the agent that asks for a certificate, by the fingerprint of its key. It may be repeated.
#[utoipa::path(put, path = "/v2/cluster-providers/{clusterProvider}/clusters/{cluster}/link/acceptance", operation_id = "link_accept",
    tag = "clusters", params(("clusterProvider" = String, Path), ("cluster" = String, Path), DryRun), request_body = LinkAcceptance,
    responses((status = 200, description = "The link", body = LinkState)))]
pub async fn accept(
    state: State<App>,
    path: Cluster,
    Query(query): Query<DryRun>,
    order: Json<LinkAcceptance>,
) -> Result<Json<LinkState>, Problem> {
    Ok(Json(state.accept(&key(&path), &order.0, query.asked()?).await?))
}

/// Takes back the access of a cluster's agent and its invitation: its connections break at once, and it gets no further certificate.
#[utoipa::path(delete, path = "/v2/cluster-providers/{clusterProvider}/clusters/{cluster}/link", operation_id = "link_revoke",
    tag = "clusters", params(("clusterProvider" = String, Path), ("cluster" = String, Path), DryRun),
    responses((status = 204, description = "The agent has no access")))]
pub async fn revoke(state: State<App>, path: Cluster, Query(query): Query<DryRun>) -> Result<StatusCode, Problem> {
    state.revoke(&key(&path), query.asked()?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A connection to the API server of a linked member, as a stream of bytes, for services that talk to members. The request asks for
/// `Upgrade: drover-link`.
#[utoipa::path(get, path = "/internal/links/{key}", operation_id = "link_stream", tag = "link", params(("key" = String, Path)),
    responses((status = 101, description = "The connection is the stream")))]
pub async fn stream(state: State<App>, path: Path<String>, mut request: Request) -> Result<Response, Problem> {
    let asks = request.headers().get(header::UPGRADE).is_some_and(|value| value == PROTOCOL);
    if !asks {
        return Err(codes::INVALID.problem(format!("this request must ask for Upgrade: {PROTOCOL}, by HTTP/1.1")));
    }
    let member = state.own_links().stream(&MemberKey(path.0)).await;
    let mut member = member.map_err(|error| codes::CLUSTER_UNREACHABLE.problem(error.to_string()))?;
    let caller = hyper::upgrade::on(&mut request);
    // Ends with either side, and at the latest with the process.
    tokio::spawn(async move {
        if let Ok(caller) = caller.await {
            // There is nobody to whom an error could be reported.
            let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(caller), &mut member).await;
        }
    });
    Ok(switched(PROTOCOL))
}
