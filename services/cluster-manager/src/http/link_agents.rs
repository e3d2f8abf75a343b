//! What agents of clusters ask the listener of links, which serves nothing else. The messages are in libs/link; agents are known by the
//! certificates of the links' authority, which TLS has verified.

use std::time::{Duration, SystemTime};

use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use drover_link::carry::Link;
use drover_link::keys::Shown;
use drover_link::wire::{AGENT, ENROL, Enrolment, Issued, LINK, PROTOCOL, RENEW, Renewal};
use drover_service::tunnel::switched;
use drover_service::{BodyLimit, Json, Problem, codes};
use drover_store::{Timestamp, now};
use http::{HeaderMap, StatusCode, header};
use tower_http::timeout::TimeoutLayer;

use crate::app::{App, Joined, LinkHealth};

/// Larger than any request.
const BODY: usize = 16 << 10;

/// The most that is shown of an agent's version.
const VERSION: usize = 40;

/// Time limit of a request, so that a body that never ends does not hold its connection. Longer than an agent waits for an operator.
const LONGEST: Duration = Duration::from_secs(60);

/// What a connection has shown; none for an agent that has no certificate yet.
pub type Agent = Extension<Option<Shown>>;

/// The routes of the listener.
pub fn router(app: App) -> Router {
    Router::new()
        .route(ENROL, post(enrol))
        .route(RENEW, post(renew))
        .route(LINK, get(link))
        .fallback(|| async { codes::NOT_FOUND.problem("here are only the links of clusters") })
        .layer(Extension(BodyLimit(BODY)))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, LONGEST))
        .with_state(app)
}

async fn enrol(state: State<App>, order: Json<Enrolment>) -> Result<Json<Issued>, Problem> {
    Ok(Json(state.enrol(&order.0).await?))
}

async fn renew(state: State<App>, agent: Agent, order: Json<Renewal>) -> Result<Json<Issued>, Problem> {
    Ok(Json(state.renew(&known(agent)?, &order.0).await?))
}

async fn link(state: State<App>, agent: Agent, mut request: Request) -> Result<Response, Problem> {
    let joined = state.join(&known(agent)?).await?;
    let version = version(request.headers());
    let connection = hyper::upgrade::on(&mut request);
    let app = state.0;
    // Ends with the connection, which ends with its certificate or when the agent is revoked.
    tokio::spawn(async move {
        match connection.await {
            Ok(connection) => carry(app, joined, version, connection).await,
            Err(error) => tracing::debug!(%error, "an agent went away before its link began"),
        }
    });
    Ok(switched(PROTOCOL))
}

async fn carry(app: App, joined: Joined, version: Option<String>, connection: hyper::upgrade::Upgraded) {
    let Joined { member, generation, until } = joined;
    let link = match Link::start(connection).await {
        Ok(link) => link,
        Err(error) => return tracing::debug!(%error, "a link could not begin"),
    };
    let expires = jiff::Timestamp::try_from(until).map_or_else(|_| now(), Timestamp::from);
    if !app.links.add(member, generation, link.clone(), LinkHealth { since: now(), until: expires, version }) {
        return;
    }
    tracing::info!(cluster.id = %member, "the agent of a cluster is connected");
    // It may have been revoked between its acceptance and now.
    if let Err(error) = app.end_earlier_links(&[member]).await {
        tracing::warn!(%error, "it cannot be checked whether links are still accepted");
    }
    let left = until.duration_since(SystemTime::now()).unwrap_or_default();
    if tokio::time::timeout(left, link.over()).await.is_err() {
        link.cut();
    }
    link.over().await;
    app.links.tidy();
    tracing::info!(cluster.id = %member, "the connection of a cluster's agent has ended");
}

/// The version that an agent says it has, which is shown to people.
fn version(headers: &HeaderMap) -> Option<String> {
    let said = headers.get(header::USER_AGENT)?.to_str().ok()?.strip_prefix(AGENT)?;
    Some(said.chars().take(VERSION).collect())
}

fn known(agent: Agent) -> Result<Shown, Problem> {
    agent.0.ok_or_else(|| codes::LINK_REFUSED.problem("show the certificate of a cluster's agent"))
}
