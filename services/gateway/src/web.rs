//! Routes of the web page: reads from the services and renders their answers.

use askama::Template;
use axum::extract::State;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use drover_service::clients::{Called, ClientInfo, migration, orchestrator, placement};
use drover_service::{Answer, Path, Peer, PeerError, Problem, Query, codes};
use http::header;
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use uuid::Uuid;

use crate::page::{Explanation, Live, Overview, PlanPage};
use crate::proxy::Services;
use crate::routes::Upstream;

/// Routes of the page and its parts.
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

async fn plan(State(services): State<Services>, Path(id): Path<Uuid>) -> Result<Response, Problem> {
    let migration: migration::Client = services.peer(Upstream::Migration).into();
    render(&PlanPage::new(&found(migration.plan_get(&id).await.answer(&migration))?))
}

#[derive(Deserialize)]
struct ExplainQuery {
    app: String,
    project: String,
}

async fn explain(State(services): State<Services>, Query(wanted): Query<ExplainQuery>) -> Result<Response, Problem> {
    let placement: placement::Client = services.peer(Upstream::Placement).into();
    let explanation = found(placement.explain(&wanted.app, Some(&wanted.project)).await.answer(&placement))?;
    render(&Explanation::new(&wanted.app, &explanation))
}

/// The three lists of the overview. The page names a list that cannot be read as missing and shows the others.
async fn read(services: &Services) -> Live {
    let once = |upstream| services.peer(upstream).attempts(1);
    let placement: placement::Client = once(Upstream::Placement).into();
    let orchestrator: orchestrator::Client = once(Upstream::Orchestrator).into();
    let migration: migration::Client = once(Upstream::Migration).into();
    let (clusters, operations, plans) = tokio::join!(
        placement.cluster_capacity_list(None),
        orchestrator.operations_list(None, None, None, None, None),
        migration.plan_list(None),
    );
    let mut problems = Vec::new();
    let clusters = part(&placement, clusters, &mut problems).unwrap_or_default();
    let operations = part(&orchestrator, operations, &mut problems).map_or_else(Vec::new, |list| list.items);
    let plans = part(&migration, plans, &mut problems).map_or_else(Vec::new, |list| list.items);
    Live::new(&clusters, &operations, &plans, problems)
}

fn part<T>(client: &impl ClientInfo<Peer>, called: Called<T>, problems: &mut Vec<String>) -> Option<T> {
    let peer = client.inner().name();
    let answer = called.answer(client).inspect_err(|error| {
        tracing::warn!(%error, "a list of the page could not be read");
        problems.push(format!("{peer} does not answer; its part of this page is missing"));
    });
    answer.ok()
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
