//! Routes of the web page: reads from the services and renders their answers.

use askama::Template;
use axum::Extension;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use drover_api::agents::AgentList;
use drover_api::apps::{AppBinding, AppList, AppView};
use drover_api::ledger::Explanation;
use drover_api::members::{CopyEvent, CopyEvents, CopyPod, CopyPods};
use drover_api::operations::Operation;
use drover_api::traffic::RouteList;
use drover_api::words;
use drover_service::ProblemDocument;
use drover_service::clients::{Called, ClientInfo, migration, orchestrator, placement};
use drover_service::{Answer, Path, Peer, PeerError, Problem, Query, codes, segment};
use http::header;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa_axum::router::OpenApiRouter;
use uuid::Uuid;

use crate::access::{Shown, View};
use crate::page::{AppPage, Apps, DocsPage, ErrorPage, Facts, Filter, OperationPage, Overview, PlanPage};
use crate::proxy::Services;
use crate::routes::Upstream;

/// Routes of the page and its parts.
pub fn routes() -> OpenApiRouter<Services> {
    OpenApiRouter::new()
        .route("/", get(overview))
        .route("/ui/plans/{id}", get(plan))
        .route("/ui/operations/{id}", get(operation))
        .route("/ui/apps", get(apps))
        .route("/ui/apps/{project}/{application}/{version}/{group}/{app}", get(app))
        .route("/docs", get(|| async { page(Ok(DocsPage)).await }))
        .route("/ui/docs.css", get(|| async { ([(header::CONTENT_TYPE, "text/css")], include_str!("../assets/docs.css")) }))
        .route("/ui/docs.js", get(|| async { ([(header::CONTENT_TYPE, "text/javascript")], include_str!("../assets/docs.js")) }))
        .route("/ui/page.css", get(|| async { ([(header::CONTENT_TYPE, "text/css")], include_str!("../assets/page.css")) }))
        .route("/ui/page.js", get(|| async { ([(header::CONTENT_TYPE, "text/javascript")], include_str!("../assets/page.js")) }))
}

async fn overview(State(services): State<Services>, Extension(view): Extension<View>) -> Response {
    page(Ok(read(&services, &view).await)).await
}

async fn plan(State(services): State<Services>, Extension(view): Extension<View>, Path(id): Path<Uuid>) -> Response {
    let migration: migration::Client = services.peer(Upstream::Migration).into();
    let plan = found(migration.plan_get(&id).await.answer(&migration)).and_then(|plan| shown(&view, Shown::Plan, plan));
    page(plan.map(|plan| PlanPage::new(&plan))).await
}

async fn operation(State(services): State<Services>, Extension(view): Extension<View>, Path(id): Path<Uuid>) -> Response {
    let operation = read_operation(&services, id).await.and_then(|operation| shown(&view, Shown::Operation, operation));
    page(operation.map(|operation| OperationPage::new(&operation))).await
}

async fn read_operation(services: &Services, id: Uuid) -> Result<Operation, Problem> {
    found(services.peer(Upstream::Orchestrator).get(&format!("/v2/operations/{id}")).await)
}

async fn apps(State(services): State<Services>, Extension(view): Extension<View>, Query(filter): Query<Filter>) -> Response {
    page(read_apps(&services, &view).await.map(|list| Apps::new(&list, filter))).await
}

async fn read_apps(services: &Services, view: &View) -> Result<AppList, Problem> {
    shown(view, Shown::Apps, services.peer(Upstream::Orchestrator).get::<AppList>("/v2/apps").await?)
}

/// What the sender of the request sees of a document.
fn shown<T: Serialize + DeserializeOwned>(view: &View, shown: Shown, document: T) -> Result<T, Problem> {
    view.of_document(shown, document).ok_or_else(|| codes::NOT_FOUND.problem("There is nothing of your projects here"))
}

/// The names in the path of the page of an app.
#[derive(Deserialize)]
struct AppPath {
    project: String,
    application: String,
    version: String,
    group: String,
    app: String,
}

async fn app(State(services): State<Services>, Extension(view): Extension<View>, Path(names): Path<AppPath>) -> Response {
    page(app_page(&services, &view, &names).await).await
}

async fn app_page(services: &Services, view: &View, names: &AppPath) -> Result<AppPage, Problem> {
    let is = |app: &&AppView| {
        (&app.project, &app.composite_app, &app.version, &app.dig, &app.app)
            == (&names.project, &names.application, &names.version, &names.group, &names.app)
    };
    let list = read_apps(services, view).await?;
    let app = list.items.iter().find(is);
    let app = app.ok_or_else(|| codes::NOT_FOUND.problem(format!("There is no app {}/{}", names.application, names.app)))?;
    let AppPath { project, application, version, group, .. } = names;
    let group = format!("/v2/projects/{project}/composite-apps/{application}/{version}/deployment-intent-groups/{group}");
    Ok(AppPage::new(app, &group, facts(services, view, app, &group).await))
}

/// Reads everything about an app, at the same time. What cannot be read is a problem of the page.
async fn facts(services: &Services, view: &View, app: &AppView, group: &str) -> Facts {
    let once = |upstream| services.peer(upstream).attempts(1);
    let (client, members) = (orchestrator::Client::from(once(Upstream::Orchestrator)), once(Upstream::ClusterManager));
    let orchestrator = client.inner();
    let (name, status, revisions) = (format!("{}/{}", app.composite_app, app.app), format!("{group}/status"), format!("{group}/revisions"));
    let copies = app.bindings.iter().map(|copy| copy_facts(&members, copy));
    let (explanation, status, revisions, routes, copies) = tokio::join!(
        client.explain(&name, Some(&app.project)),
        orchestrator.get(&status),
        orchestrator.get(&revisions),
        orchestrator.get::<RouteList>("/v2/routes"),
        futures::future::join_all(copies),
    );
    let explanation = explanation.answer(&client).ok().and_then(|explanation| view.of_document(Shown::Explanation, explanation));
    let mut facts = Facts { explanation, ..Facts::default() };
    if let Some(moved) = facts.explanation.as_ref().filter(|explanation| explanation.moved) {
        facts.moved = moved_by(&once(Upstream::Migration).into(), view, moved).await;
    }
    facts.status = told(status, "its objects", &mut facts.problems);
    facts.revisions = told(revisions, "its revisions", &mut facts.problems).unwrap_or_default();
    facts.routes = told(routes, "its routes", &mut facts.problems).map(|list| list.items).unwrap_or_default();
    for (copy, read) in app.bindings.iter().zip(copies) {
        let Some((pods, events, logs)) = told(read, &format!("its pods on {}", copy.member), &mut facts.problems) else { continue };
        facts.pods.extend(pods.into_iter().map(|pod| (copy.member.0.clone(), pod)));
        facts.events.extend(events.into_iter().map(|event| (copy.member.0.clone(), event)));
        facts.logs.extend(logs);
    }
    facts
}

/// Why a plan moved an app to where it is. Nothing, if the plan is an old one, or one for others whom the sender does not see.
async fn moved_by(migration: &migration::Client, view: &View, of: &Explanation) -> Option<String> {
    let plans = migration.plan_list(None, None).await.answer(migration).ok()?;
    let plans = view.of_document(Shown::Plans, plans)?.items;
    of.room.iter().find_map(|claim| words::moved_by(&plans, of.dig.id, &of.app, &claim.member.0))
}

/// How many of its last lines the page shows of a log.
const LINES: usize = 100;

type CopyFacts = (Vec<CopyPod>, Vec<CopyEvent>, Vec<(String, String)>);

async fn copy_facts(members: &Peer, copy: &AppBinding) -> Result<CopyFacts, PeerError> {
    let (provider, cluster) = (segment(copy.member.provider()), segment(copy.member.cluster()));
    let path = format!("/v2/cluster-providers/{provider}/clusters/{cluster}/copies/{}", copy.binding);
    let (pods, events) = (format!("{path}/pods"), format!("{path}/events"));
    let (pods, events) = tokio::join!(members.get::<CopyPods>(&pods), members.get::<CopyEvents>(&events));
    let (pods, events) = (pods?.items, events?.items);
    let log = |pod: &str, container: &str| {
        let name = format!("{pod} {container} on {}", copy.member);
        (name, format!("{path}/log?pod={}&container={}&tailLines={LINES}", segment(pod), segment(container)))
    };
    let logs = pods.iter().flat_map(|pod| pod.containers.iter().map(|container| log(&pod.name, container))).collect();
    Ok((pods, events, logs))
}

fn told<T>(read: Result<T, PeerError>, what: &str, problems: &mut Vec<String>) -> Option<T> {
    read.inspect_err(|error| {
        tracing::warn!(%error, what, "a part of the page could not be read");
        problems.push(format!("{what} cannot be read now"));
    })
    .ok()
}

/// The four lists of the overview. The page names a list that cannot be read as missing and shows the others.
async fn read(services: &Services, view: &View) -> Overview {
    let once = |upstream| services.peer(upstream).attempts(1);
    let placement: placement::Client = once(Upstream::Placement).into();
    let orchestrator: orchestrator::Client = once(Upstream::Orchestrator).into();
    let migration: migration::Client = once(Upstream::Migration).into();
    // What agents report names policies of all projects.
    let agents = async {
        match view.is_whole() {
            true => orchestrator.inner().get::<AgentList>("/v2/agent-copies").await,
            false => Ok(AgentList::default()),
        }
    };
    let (clusters, agents, operations, plans) = tokio::join!(
        placement.cluster_capacity_list(None),
        agents,
        orchestrator.operations_list(None, None, None, None, None),
        migration.plan_list(None, None),
    );
    let mut problems = Vec::new();
    let clusters = part(&placement, clusters, &mut problems).and_then(|clusters| view.of_document(Shown::Clusters, clusters));
    let operations = part(&orchestrator, operations, &mut problems).and_then(|list| view.of_document(Shown::Operations, list));
    let plans = part(&migration, plans, &mut problems).and_then(|list| view.of_document(Shown::Plans, list));
    let (clusters, operations, plans) =
        (clusters.unwrap_or_default(), operations.map_or_else(Vec::new, |list| list.items), plans.map_or_else(Vec::new, |list| list.items));
    let agents = told(agents, "the agents", &mut problems).unwrap_or_default().items;
    Overview::new(&clusters, &agents, &operations, &plans, problems)
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

/// A page, or the error as a page.
async fn page<T: Template>(read: Result<T, Problem>) -> Response {
    match read.and_then(|page| page.render().map_err(Problem::internal)) {
        Ok(html) => ([(header::CACHE_CONTROL, "no-store")], Html(html)).into_response(),
        Err(problem) => error_page(problem.into_response()).await,
    }
}

/// Shows a problem as a page to a browser that asked for a page: who is not signed in, or follows an old link, reads a sentence and not
/// JSON. Below `/v2` the answer is always JSON.
pub async fn errors_as_pages(request: Request, next: Next) -> Response {
    let accepted = request.headers().get(header::ACCEPT).and_then(|kinds| kinds.to_str().ok());
    let wants_page = accepted.is_some_and(|kinds| kinds.contains("text/html")) && !request.uri().path().starts_with("/v2/");
    let answer = next.run(request).await;
    let is_problem = answer.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/problem+json");
    if !(wants_page && is_problem) {
        return answer;
    }
    let (mut parts, body) = answer.into_parts();
    let page = error_page(Response::from_parts(parts.clone(), body)).await;
    [header::CONTENT_TYPE, header::CONTENT_LENGTH].iter().for_each(|name| drop(parts.headers.remove(name)));
    (parts.headers, page).into_response()
}

async fn error_page(answer: Response) -> Response {
    let status = answer.status();
    let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap_or_default();
    let page = ErrorPage::new(ProblemDocument::read(status.as_u16(), &body));
    (status, [(header::CACHE_CONTROL, "no-store")], Html(page.render().unwrap_or_default())).into_response()
}
