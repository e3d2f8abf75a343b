//! Adds to a service's routes what every service has: documents, health, metrics, tasks, access checks, limits, fallbacks.

use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Path as AxumPath, Request};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Extension, Router};
use bytes::Bytes;
use http::header;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::router::OpenApiRouter;

use crate::access::{Access, guard, protect};
use crate::middleware::{Observed, observe, panicked};
use crate::understood::{Operations, understand};
use crate::{Common, Problem, codes, openapi};

/// Time limit of a request. Long polls and `?wait=` stay below it.
const TIMEOUT: Duration = Duration::from_secs(90);

/// The app of a service: its routes and those that every service has.
pub fn router(routes: OpenApiRouter, common: &Common) -> Router {
    let (router, document) = openapi::finish(common.service, routes);
    let json = serde_json::to_string_pretty(&document).expect("an OpenAPI document always serialises");
    complete(router, common, json.into(), Operations::of(&document))
}

/// As [`router`], with another text at `/openapi.json` than the document of these routes.
pub fn router_with_document(routes: OpenApiRouter, common: &Common, document: &'static str) -> Router {
    let (router, own) = openapi::finish(common.service, routes);
    complete(router, common, Bytes::from_static(document.as_bytes()), Operations::of(&own))
}

fn complete(router: Router, common: &Common, document: Bytes, operations: Operations) -> Router {
    let (readiness, metrics, tasks) = (common.readiness.clone(), common.metrics.clone(), common.tasks.clone());
    let observed = Observed { service: common.service, metrics: metrics.clone(), timeout: TIMEOUT };

    router
        .route("/openapi.json", get(move || async move { ([(header::CONTENT_TYPE, "application/json")], document) }))
        .route("/docs/errors/{code}", get(error_page))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(move || async move { readiness.probe().await }))
        .route("/debug/tasks", get(move || async move { crate::Json(tasks.list()) }))
        .route("/metrics", get(move || async move { ([(header::CONTENT_TYPE, OPENMETRICS)], metrics.text()) }))
        .fallback(|request: Request| async move { no_route(&request) })
        .method_not_allowed_fallback(|request: Request| async move { no_method(&request) })
        .layer(from_fn_with_state(operations, understand))
        .layer(from_fn_with_state(Access::new(common), guard))
        .layer(DefaultBodyLimit::disable())
        .layer(Extension(common.shutdown.clone()))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state(observed, observe))
        .layer(map_response(protect))
}

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn no_route(request: &Request) -> Problem {
    codes::NOT_FOUND.problem(format!("404 page not found: there is nothing at {}", request.uri().path()))
}

fn no_method(request: &Request) -> Problem {
    codes::METHOD_NOT_ALLOWED.problem(format!("{} does not know {}", request.uri().path(), request.method()))
}

async fn error_page(AxumPath(code): AxumPath<String>) -> Result<impl IntoResponse, Problem> {
    let code = codes::find(&code).ok_or_else(|| codes::NOT_FOUND.problem(format!("There is no error code {code}")))?;
    Ok(([(header::CONTENT_TYPE, "text/markdown; charset=utf-8")], code.page))
}
