//! Query parameters and headers that mean the same for all operations, by what the OpenAPI document says of each.
//!
//! `dryRun` is refused where an operation has no dry run: a write that ignored it would be done. `Prefer: wait=30` (RFC 7240) is
//! `?wait=30s` where an operation can wait. The answer of a deprecated operation says so (`Deprecation`, RFC 9745).

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::{Deprecated, OpenApi, RefOr};

use crate::{Problem, codes};

/// The key of an operation's extension that says since when it is deprecated: `2026-11-24`.
const SINCE: &str = "x-deprecated-since";

/// The query of a write that can be tried without being done.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DryRun {
    /// `All`: check everything and write nothing.
    #[serde(rename = "dryRun")]
    pub dry_run: Option<String>,
}

impl DryRun {
    /// Whether a dry run is asked for.
    ///
    /// # Errors
    /// The value is another one than `All`.
    pub fn asked(&self) -> Result<bool, Problem> {
        asks_dry_run(self.dry_run.as_deref())
    }
}

/// Whether a value of `dryRun` asks for a dry run: `All`, as in Kubernetes, or `true`.
///
/// # Errors
/// The value is another one.
pub fn asks_dry_run(value: Option<&str>) -> Result<bool, Problem> {
    match value.unwrap_or_default().to_ascii_lowercase().as_str() {
        "" | "false" => Ok(false),
        "all" | "true" => Ok(true),
        _ => Err(codes::INVALID.problem(format!("dryRun must be All or absent, not {:?}", value.unwrap_or_default()))),
    }
}

/// What the document says of each operation, by method and path.
#[derive(Clone, Default)]
pub(crate) struct Operations(Arc<HashMap<(http::Method, String), Known>>);

#[derive(Clone, Default)]
struct Known {
    dry_run: bool,
    wait: bool,
    deprecated: Option<HeaderValue>,
}

impl Operations {
    pub(crate) fn of(document: &OpenApi) -> Self {
        let mut known = HashMap::new();
        for (path, item) in &document.paths.paths {
            let methods = [
                (http::Method::GET, &item.get),
                (http::Method::PUT, &item.put),
                (http::Method::POST, &item.post),
                (http::Method::DELETE, &item.delete),
                (http::Method::PATCH, &item.patch),
            ];
            for (method, operation) in methods {
                if let Some(operation) = operation {
                    known.insert((method, path.clone()), Known::of(operation));
                }
            }
        }
        Self(Arc::new(known))
    }
}

impl Known {
    fn of(operation: &Operation) -> Self {
        let query = |name: &str| {
            operation.parameters.iter().flatten().any(|parameter| {
                matches!(parameter, RefOr::T(parameter) if parameter.name == name && matches!(parameter.parameter_in, ParameterIn::Query))
            })
        };
        let since = operation.extensions.as_ref().and_then(|extensions| extensions.get(SINCE)?.as_str());
        let is_deprecated = matches!(operation.deprecated, Some(Deprecated::True));
        Self { dry_run: query("dryRun"), wait: query("wait"), deprecated: since.filter(|_| is_deprecated).and_then(date) }
    }
}

/// A day as RFC 9745 writes it: `@` and the seconds since 1970.
fn date(day: &str) -> Option<HeaderValue> {
    let at: jiff::civil::Date = day.parse().ok()?;
    let at = at.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp();
    HeaderValue::from_str(&format!("@{}", at.as_second())).ok()
}

/// Refuses a dry run where an operation has none, turns `Prefer: wait` into the query, and marks the answers of deprecated operations.
pub(crate) async fn understand(State(operations): State<Operations>, mut request: Request, next: Next) -> Response {
    let at = request.extensions().get::<MatchedPath>().map(|at| (request.method().clone(), at.as_str().to_owned()));
    let Some(known) = at.and_then(|at| operations.0.get(&at)).cloned() else { return next.run(request).await };
    if !known.dry_run && !request.method().is_safe() && parameter(request.uri(), "dryRun").is_some_and(|value| !value.is_empty()) {
        return codes::INVALID.problem("This operation has no dry run, so nothing was done; leave dryRun out").into_response();
    }
    let mut applied = None;
    if known.wait
        && parameter(request.uri(), "wait").is_none()
        && let Some(seconds) = preferred(request.headers())
        && let Some(uri) = with_wait(request.uri(), seconds)
    {
        *request.uri_mut() = uri;
        applied = HeaderValue::from_str(&format!("wait={seconds}")).ok();
    }
    let mut response = next.run(request).await;
    let headers = [("preference-applied", applied), ("deprecation", known.deprecated)];
    for (name, value) in headers {
        if let Some(value) = value {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    response
}

/// The value of a query parameter.
fn parameter(uri: &Uri, name: &str) -> Option<String> {
    let pairs = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    pairs.into_iter().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// The seconds of `Prefer: wait=30`, also among other preferences.
fn preferred(headers: &HeaderMap) -> Option<u64> {
    let values = headers.get_all("prefer").into_iter().filter_map(|value| value.to_str().ok());
    let mut preferences = values.flat_map(|value| value.split([',', ';']));
    preferences.find_map(|preference| {
        let (name, value) = preference.split_once('=')?;
        if !name.trim().eq_ignore_ascii_case("wait") {
            return None;
        }
        value.trim().trim_matches('"').parse().ok()
    })
}

fn with_wait(uri: &Uri, seconds: u64) -> Option<Uri> {
    let query = uri.query().map(|query| format!("{query}&")).unwrap_or_default();
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = format!("{}?{query}wait={seconds}s", uri.path()).parse().ok();
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_is_found_among_other_preferences() {
        let headers = |value: &'static str| HeaderMap::from_iter([(HeaderName::from_static("prefer"), HeaderValue::from_static(value))]);
        assert_eq!(preferred(&headers("respond-async, wait=30")), Some(30));
        assert_eq!(preferred(&headers("Wait = \"5\"; x=1")), Some(5));
        assert_eq!(preferred(&headers("wait=soon")), None);
        assert_eq!(preferred(&HeaderMap::new()), None);
    }

    #[test]
    fn wait_is_added_to_a_query_and_makes_one() {
        let uri = |text: &'static str| Uri::from_static(text);
        assert_eq!(with_wait(&uri("/v2/a?b=1"), 30).unwrap(), "/v2/a?b=1&wait=30s");
        assert_eq!(with_wait(&uri("/v2/a"), 30).unwrap(), "/v2/a?wait=30s");
    }

    #[test]
    fn dry_run_is_all_or_true_and_no_other_word() {
        let asked = |value: &str| asks_dry_run(Some(value)).ok();
        assert_eq!(["All", "all", "true", "", "false"].map(asked), [Some(true), Some(true), Some(true), Some(false), Some(false)]);
        assert_eq!((asked("Some"), asks_dry_run(None).ok()), (None, Some(false)));
    }

    #[test]
    fn deprecation_is_seconds_since_1970() {
        assert_eq!(date("2026-11-24").unwrap(), "@1795478400");
        assert_eq!(date("soon"), None);
    }
}
