//! Adds to a service's routes what every service has: documents, health, metrics, tasks, access checks, limits, fallbacks.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Path as AxumPath, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use axum_extra::headers::HeaderMapExt;
use axum_extra::headers::authorization::{Authorization, Basic};
use http::{HeaderValue, header};
use secrecy::{ExposeSecret, SecretString};
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::router::OpenApiRouter;

use crate::middleware::{Observed, observe, panicked};
use crate::{Common, Problem, codes, openapi};

/// Time limit of a request. Long polls and `?wait=` stay below it.
const TIMEOUT: Duration = Duration::from_secs(90);

/// The app of a service: its routes and those that every service has.
pub fn router(routes: OpenApiRouter, common: &Common) -> Router {
    let (router, document) = openapi::finish(common.service, routes);
    let json = Arc::new(serde_json::to_string_pretty(&document).expect("an OpenAPI document always serialises"));
    let (readiness, metrics, tasks) = (common.readiness.clone(), common.metrics.clone(), common.tasks.clone());
    let observed = Observed { service: common.service, metrics: metrics.clone(), timeout: TIMEOUT };

    router
        .route("/openapi.json", get(move || async move { ([(header::CONTENT_TYPE, "application/json")], json.to_string()) }))
        .route("/docs", get(|| async { openapi::page("openapi.json") }))
        .route("/docs/errors/{code}", get(error_page))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(move || async move { readiness.probe().await }))
        .route("/debug/tasks", get(move || async move { crate::Json(tasks.list()) }))
        .route("/metrics", get(move || async move { ([(header::CONTENT_TYPE, OPENMETRICS)], metrics.text()) }))
        .fallback(|request: Request| async move { no_route(&request) })
        .method_not_allowed_fallback(|request: Request| async move { no_method(&request) })
        .layer(from_fn_with_state(Tokens { peer: common.peer_token.clone(), api: common.api_token.clone() }, guard))
        .layer(DefaultBodyLimit::disable())
        .layer(Extension(common.shutdown.clone()))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state(observed, observe))
}

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn no_route(request: &Request) -> Problem {
    codes::NOT_FOUND.problem(format!("There is nothing at {}", request.uri().path()))
}

fn no_method(request: &Request) -> Problem {
    codes::METHOD_NOT_ALLOWED.problem(format!("{} does not know {}", request.uri().path(), request.method()))
}

async fn error_page(AxumPath(code): AxumPath<String>) -> Result<impl IntoResponse, Problem> {
    let code = codes::find(&code).ok_or_else(|| codes::NOT_FOUND.problem(format!("There is no error code {code}")))?;
    Ok(([(header::CONTENT_TYPE, "text/markdown; charset=utf-8")], code.page))
}

#[derive(Clone)]
struct Tokens {
    peer: SecretString,
    api: Option<SecretString>,
}

/// `/internal` and `/debug` need the peer token; the rest needs the API token where one is set (or the peer token: the gateway).
///
/// A browser can only be asked for a password: for reading, the API token is taken as one. Not for writing, because a
/// browser sends a password along with whatever another site makes it do.
async fn guard(State(tokens): State<Tokens>, request: Request, next: Next) -> Result<Response, Problem> {
    let path = request.uri().path();
    let given = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim());
    let is = |token: &SecretString| given.is_some_and(|given| same(given.as_bytes(), token.expose_secret().as_bytes()));
    let allowed = if matches!(path.split('/').nth(1), Some("internal" | "debug")) {
        is(&tokens.peer)
    } else if matches!(path, "/healthz" | "/readyz") {
        true
    } else {
        let password = Some(request.headers()).filter(|_| request.method().is_safe()).and_then(|headers| {
            let basic: Authorization<Basic> = headers.typed_get()?;
            Some(basic.password().to_owned())
        });
        let is_password =
            |token: &SecretString| password.as_ref().is_some_and(|given| same(given.as_bytes(), token.expose_secret().as_bytes()));
        tokens.api.as_ref().is_none_or(|api| is(api) || is(&tokens.peer) || is_password(api))
    };
    if allowed {
        return Ok(next.run(request).await);
    }
    let browser = request.headers().get(header::ACCEPT).is_some_and(|kinds| kinds.to_str().is_ok_and(|kinds| kinds.contains("text/html")));
    let how = if browser { r#"Basic realm="Drover: the token is the password", charset="UTF-8""# } else { "Bearer" };
    Err(codes::UNAUTHORIZED
        .problem("Send the token as `Authorization: Bearer <token>`")
        .header(header::WWW_AUTHENTICATE, HeaderValue::from_static(how)))
}

/// Equality in a time that does not depend on where the two differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |different, (a, b)| different | (a ^ b)) == 0
}
