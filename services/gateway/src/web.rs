//! The web page's routes: read what the services say, render it.

use askama::Template;
use axum::extract::State;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use drover_api::ledger::ClusterCapacity;
use drover_api::operations::{Operation, OperationList};
use drover_api::plans::{PlanDocument, PlanList};
use drover_service::peer::segment;
use drover_service::{Path, Peer, PeerError, Problem, Query, codes};
use http::header;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa_axum::router::OpenApiRouter;

use crate::page::{Explanation, Live, Overview, PlanPage};
use crate::proxy::Services;
use crate::routes::Upstream;

/// The page and its parts.
pub fn routes() -> OpenApiRouter<Services> {
    OpenApiRouter::new()
        .route("/", get(overview))
        .route("/ui/live", get(live))
        .route("/ui/plans/{id}", get(plan))
        .route("/ui/explain", get(explain))
        .route("/ui/page.css", get(|| async { ([(header::CONTENT_TYPE, "text/css")], include_str!("../assets/page.css")) }))
        .route("/ui/page.js", get(|| async { ([(header::CONTENT_TYPE, "text/javascript")], include_str!("../assets/page.js")) }))
}

async fn overview(State(services): State<Services>) -> Result<Response, Problem> {
    render(&Overview::from(read(&services).await))
}

async fn live(State(services): State<Services>) -> Result<Response, Problem> {
    render(&read(&services).await)
}

async fn plan(State(services): State<Services>, Path(id): Path<String>) -> Result<Response, Problem> {
    let path = format!("/v2/plans/{}", segment(&id));
    let document: PlanDocument = found(services.peer(Upstream::Migration).get(&path).await)?;
    render(&PlanPage::new(&document))
}

#[derive(Deserialize)]
struct Wanted {
    app: String,
    project: String,
}

async fn explain(State(services): State<Services>, Query(wanted): Query<Wanted>) -> Result<Response, Problem> {
    let path = format!("/v2/explain?app={}&project={}", segment(&wanted.app), segment(&wanted.project));
    let explanation: serde_json::Value = found(services.peer(Upstream::Placement).get(&path).await)?;
    render(&Explanation::new(&wanted.app, &explanation))
}

/// The three lists of the overview; one that cannot be read is said to be missing, the others are shown.
async fn read(services: &Services) -> Live {
    let peer = |upstream| services.peer(upstream).attempts(1);
    let (placement, orchestrator, migration) = (peer(Upstream::Placement), peer(Upstream::Orchestrator), peer(Upstream::Migration));
    let (clusters, operations, plans) = tokio::join!(
        list::<Vec<ClusterCapacity>>(&placement, "/v2/clusters?view=capacity"),
        list::<OperationList>(&orchestrator, "/v2/operations"),
        list::<PlanList>(&migration, "/v2/plans"),
    );
    let mut problems = Vec::new();
    let clusters = clusters.unwrap_or_else(|why| {
        problems.push(why);
        Vec::new()
    });
    let operations: Vec<Operation> = operations.map(|l| l.items).unwrap_or_else(|why| {
        problems.push(why);
        Vec::new()
    });
    let plans = plans.map(|l| l.items).unwrap_or_else(|why| {
        problems.push(why);
        Vec::new()
    });
    Live::new(&clusters, &operations, &plans, problems)
}

async fn list<T: DeserializeOwned>(peer: &Peer, path: &str) -> Result<T, String> {
    peer.get(path).await.map_err(|error| {
        tracing::warn!(%error, path, "the page lacks a list");
        format!("{} does not answer; this page lacks its part", peer.name())
    })
}

fn found<T>(result: Result<T, PeerError>) -> Result<T, Problem> {
    result.map_err(|error| match error.problem() {
        Some(problem) if error.is_not_found() => codes::NOT_FOUND.problem(problem.detail.clone()),
        _ => error.into(),
    })
}

fn render(page: &impl Template) -> Result<Response, Problem> {
    let html = page.render().map_err(Problem::internal)?;
    Ok(([(header::CACHE_CONTROL, "no-store")], Html(html)).into_response())
}
