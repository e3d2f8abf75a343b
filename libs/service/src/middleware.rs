//! Work around every request: its id, its span, its metrics, panics and the time limit.
//!
//! The request id is in a task-local, so that a [`crate::Problem`] made while the request is handled can name it.

use std::any::Any;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue};
use tracing::{Instrument, Span};
use uuid::Uuid;

use crate::metrics::Metrics;
use crate::{Problem, codes, tasks, telemetry};

tokio::task_local! {
    static REQUEST_ID: String;
}

const HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// The id of the request that the current task handles.
pub fn request_id() -> Option<String> {
    REQUEST_ID.try_with(Clone::clone).ok()
}

/// Carries out the rest of a request even if its sender hangs up meanwhile: hyper drops a handler then.
pub async fn to_its_end(rest: impl Future<Output = Response> + Send + 'static) -> Response {
    let rest = REQUEST_ID.scope(request_id().unwrap_or_default(), rest);
    match tokio::spawn(rest.in_current_span()).await {
        Ok(response) => response,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => panicked(panic),
            Err(error) => Problem::internal(error).into_response(),
        },
    }
}

/// State of [`observe`].
#[derive(Clone)]
pub(crate) struct Observed {
    pub service: &'static str,
    pub metrics: Metrics,
    pub timeout: Duration,
}

/// Gives the request an id, a span (a child of the caller's) and a time limit, and counts it in the metrics.
pub(crate) async fn observe(State(observed): State<Observed>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = request
        .headers()
        .get(&HEADER)
        .and_then(|id| id.to_str().ok())
        .filter(|id| acceptable(id))
        .map_or_else(|| Uuid::now_v7().to_string(), str::to_owned);
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map_or("unmatched", MatchedPath::as_str).to_owned();
    let span = span(&observed, &request, &route, &id);

    let answer = REQUEST_ID.scope(id.clone(), async {
        match tokio::time::timeout(observed.timeout, next.run(request)).await {
            Ok(response) => response,
            Err(_) => codes::TIMEOUT.problem("The request took too long and was given up").into_response(),
        }
    });
    let mut response = answer.instrument(span.clone()).await;

    span.record("http.response.status_code", response.status().as_u16());
    observed.metrics.request(&route, &method, response.status(), started.elapsed());
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(HEADER, value);
    }
    response
}

fn span(observed: &Observed, request: &Request, route: &str, id: &str) -> Span {
    // No spans for the pages that machines poll: there would be too many.
    if matches!(route, "/healthz" | "/readyz" | "/metrics") || route.starts_with("/internal/feeds/") {
        return Span::none();
    }
    let span = tracing::info_span!("request", otel.name = format!("{} {route}", request.method()), otel.kind = "server",
        service = observed.service, request.id = id, http.request.method = %request.method(), http.route = route,
        url.path = request.uri().path(), http.response.status_code = tracing::field::Empty);
    telemetry::set_parent_from(&span, request.headers());
    span
}

/// Whether a client's own request id is safe in a log.
fn acceptable(id: &str) -> bool {
    (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Answers a panic with `internal`; the panic's message goes to the log only.
pub(crate) fn panicked(panic: Box<dyn Any + Send + 'static>) -> Response {
    Problem::internal(format!("a handler panicked: {}", tasks::panic_message(&*panic))).into_response()
}
