//! Answers HTTP requests: token, faults, query string, body, verb. The same for in-process clients and TCP.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http::{HeaderMap, Method, Response, header};
use serde_json::{Value, json};

use crate::api::{ApiResult, Options, PatchType, Target};
use crate::cluster::Cluster;
use crate::error::ApiError;
use crate::faults::Unreachable;
use crate::key::Key;
use crate::object;
use crate::route::{self, Route};
use crate::selectors::{Fields, Labels};
use crate::state::ClusterState;
use crate::watch;
use crate::{discovery, metrics};

/// A request whose body has been read and whose path starts below the cluster's prefix.
pub struct ApiRequest {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Whether it comes from inside the process, so that it needs no token.
    pub trusted: bool,
}

/// Answers a request.
///
/// # Errors
/// When a fault breaks the connection.
pub async fn handle(cluster: Arc<Cluster>, request: ApiRequest) -> Result<Response<Body>, Unreachable> {
    let faults = &cluster.faults;
    faults.reachable().await?;
    if let Some(delay) = faults.latency() {
        tokio::time::sleep(delay).await;
        faults.reachable().await?;
    }
    let write = !matches!(request.method, Method::GET | Method::HEAD);
    if let Some(code) = faults.status(write, &request.path) {
        let refusal = if code == 401 { ApiError::unauthorized() } else { ApiError::other(code) };
        return Ok(refuse(&refusal));
    }
    if !request.trusted && !authentic(&cluster, &request) {
        return Ok(refuse(&ApiError::unauthorized()));
    }
    let answer = match serve(&cluster, &request) {
        Ok(answer) => answer,
        Err(refusal) => refuse(&refusal),
    };
    if write && cluster.faults.loses_answer() {
        return Err(Unreachable);
    }
    Ok(answer)
}

fn authentic(cluster: &Cluster, request: &ApiRequest) -> bool {
    let given = request.headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()).and_then(|v| v.strip_prefix("Bearer "));
    let anonymous = cluster.anonymous || matches!(request.path.as_str(), "/version" | "/healthz" | "/livez" | "/readyz");
    match given {
        Some(token) => token == *cluster.token.lock().unwrap_or_else(PoisonError::into_inner),
        None => anonymous,
    }
}

fn refuse(refusal: &ApiError) -> Response<Body> {
    let mut response = answer(refusal.code, &refusal.status());
    if matches!(refusal.code, 429 | 503) {
        response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    }
    response
}

fn answer(code: u16, body: &Value) -> Response<Body> {
    typed(code, "application/json", Body::from(body.to_string()))
}

fn typed(code: u16, content: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content));
    response
}

struct Query(HashMap<String, String>);

impl Query {
    fn parse(query: &str) -> Self {
        Self(serde_urlencoded_pairs(query).collect())
    }

    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn is(&self, name: &str) -> bool {
        matches!(self.get(name), "true" | "1")
    }
}

fn serde_urlencoded_pairs(query: &str) -> impl Iterator<Item = (String, String)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name), decode(value))
    })
}

/// Decodes the percent-encoding of a query component.
fn decode(text: &str) -> String {
    let (mut out, bytes, mut at) = (Vec::with_capacity(text.len()), text.as_bytes(), 0);
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (bytes[at], hex) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 2;
            }
            (b'+', _) => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Answers a request to a Service that the API server would pass on: a simulated app serves when one of its pods is ready.
fn proxied(cluster: &Cluster, path: &str) -> Option<Result<Response<Body>, ApiError>> {
    let (namespace, rest) = path.strip_prefix("/api/v1/namespaces/")?.split_once("/services/")?;
    let (service, _) = rest.split_once("/proxy/")?;
    let name = format!("{}-slice", service.split_once(':').map_or(service, |(name, _)| name));
    let slice = cluster.with(|state| state.store.get(&Key::new(&"endpointslices.discovery.k8s.io".into(), namespace, &name)));
    let endpoints = slice.as_deref().map(|slice| object::list(slice, "/endpoints")).unwrap_or_default();
    let serves = endpoints.iter().any(|endpoint| endpoint["conditions"]["ready"] == true);
    Some(if serves { Ok(typed(200, "text/plain", Body::from("ok"))) } else { Err(ApiError::other(503)) })
}

fn serve(cluster: &Arc<Cluster>, request: &ApiRequest) -> Result<Response<Body>, ApiError> {
    if let Some(answer) = proxied(cluster, &request.path) {
        return answer;
    }
    let query = Query::parse(&request.query);
    let labels = Labels::parse(query.get("labelSelector"))?;
    let fields = Fields::parse(query.get("fieldSelector"))?;
    let accept = request.headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or("");
    let metadata_only = accept.contains("as=PartialObjectMetadata");
    let target = match cluster.with(|state| route::find(state, &request.path)) {
        Route::Object(target) => target,
        route => return plain(cluster, request, route, &labels),
    };
    if request.method == Method::GET && target.name.is_empty() && query.is("watch") {
        return open_watch(cluster, target, labels, fields, metadata_only, &query);
    }
    if request.method == Method::GET && target.name.is_empty() && !metadata_only {
        let list = cluster.with(|state| state.list_json(&target, &labels, &fields));
        return Ok(typed(200, "application/json", Body::from(list)));
    }
    let created = request.method == Method::POST;
    let (existed, result) = cluster.with(|state| {
        let before = state.store.has(&target.key(&target.name));
        (before, verb(state, request, &target, &query, &labels, &fields))
    });
    let result = result?;
    let apply_created = request.method == Method::PATCH && !existed;
    let shown = if metadata_only && result["kind"] != "Status" { as_metadata(result) } else { result };
    Ok(answer(if created || apply_created { 201 } else { 200 }, &shown))
}

fn plain(cluster: &Arc<Cluster>, request: &ApiRequest, route: Route, labels: &Labels) -> Result<Response<Body>, ApiError> {
    if let (Route::Review { api_version, kind }, true) = (&route, request.method == Method::POST) {
        let mut review = body(request)?;
        review["apiVersion"] = json!(api_version);
        review["kind"] = json!(kind);
        review["status"] = if *kind == "SelfSubjectReview" {
            json!({"userInfo": {"username": "kubesim", "groups": ["system:masters"]}})
        } else {
            json!({"allowed": true})
        };
        return Ok(answer(201, &review));
    }
    if !matches!(route, Route::Nowhere) && request.method != Method::GET {
        return Err(ApiError::method_not_allowed());
    }
    if matches!(route, Route::Health) {
        return Ok(typed(200, "text/plain", Body::from("ok")));
    }
    let result = cluster.with(|state| match route {
        Route::Version => Ok(discovery::version()),
        Route::CoreVersions => Ok(discovery::core_versions()),
        Route::Groups => Ok(discovery::groups(state)),
        Route::Group(group) => discovery::group(state, &group),
        Route::Resources { group, version } => discovery::resources(state, &group, &version),
        Route::OpenApi(of) => Ok(discovery::openapi(state, of.as_ref())),
        Route::Metrics(path) => metrics::serve(state, &path, labels),
        Route::Review { .. } => Err(ApiError::method_not_allowed()),
        Route::Health | Route::Object(_) | Route::Nowhere => Err(ApiError::no_such_resource()),
    });
    Ok(answer(200, &result?))
}

fn as_metadata(result: Value) -> Value {
    match result.get("items").and_then(Value::as_array) {
        Some(items) => json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": result["metadata"],
            "items": items.iter().map(watch::metadata_of).collect::<Vec<_>>()}),
        None => watch::metadata_of(&result),
    }
}

fn open_watch(
    cluster: &Arc<Cluster>,
    target: Target,
    labels: Labels,
    fields: Fields,
    metadata_only: bool,
    query: &Query,
) -> Result<Response<Body>, ApiError> {
    let initial_events = query.is("sendInitialEvents");
    if initial_events && query.get("resourceVersionMatch") != "NotOlderThan" {
        return Err(ApiError::invalid(
            "ListOptions",
            "",
            "resourceVersionMatch",
            "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ));
    }
    let body = watch::open(
        cluster.clone(),
        watch::WatchRequest {
            target,
            labels,
            fields,
            metadata_only,
            initial_events,
            bookmarks: query.is("allowWatchBookmarks"),
            revision: query.get("resourceVersion").into(),
            timeout: Duration::from_secs(query.get("timeoutSeconds").parse().unwrap_or(1800)),
        },
    )?;
    Ok(typed(200, "application/json", body))
}

fn options(request: &ApiRequest, query: &Query) -> Options {
    let agent = request.headers.get(header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or("unknown");
    let manager = match query.get("fieldManager") {
        "" if request.headers.get(header::CONTENT_TYPE).is_some_and(|t| t.as_bytes().starts_with(b"application/apply-patch")) => "",
        "" => agent.split('/').next().unwrap_or("unknown"),
        given => given,
    };
    let given = |name: &str| Some(query.get(name)).filter(|v| !v.is_empty());
    Options {
        dry_run: query.get("dryRun") == "All",
        force: query.is("force"),
        manager: manager.into(),
        propagation: given("propagationPolicy").map(String::from),
        grace: given("gracePeriodSeconds").and_then(|g| g.parse().ok()),
    }
}

fn body(request: &ApiRequest) -> ApiResult {
    let content = request.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("application/json");
    if content.contains("protobuf") || content.contains("cbor") {
        return Err(ApiError::unsupported_media_type(content));
    }
    let undecodable = |e: String| ApiError::bad_request(format!("unable to decode the body of the request: {e}"));
    if content.contains("yaml") {
        return serde_yaml::from_slice(&request.body).map_err(|e| undecodable(e.to_string()));
    }
    serde_json::from_slice(&request.body).map_err(|e| undecodable(e.to_string()))
}

fn patch_type(request: &ApiRequest) -> Result<PatchType, ApiError> {
    let content = request.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
    match content.split(';').next().unwrap_or("").trim() {
        "application/json-patch+json" => Ok(PatchType::Json),
        "application/merge-patch+json" => Ok(PatchType::Merge),
        "application/strategic-merge-patch+json" => Ok(PatchType::Strategic),
        "application/apply-patch+yaml" => Ok(PatchType::Apply),
        other => Err(ApiError::unsupported_media_type(other)),
    }
}

fn verb(state: &mut ClusterState, request: &ApiRequest, target: &Target, query: &Query, labels: &Labels, fields: &Fields) -> ApiResult {
    let options = options(request, query);
    let delete_options = || if request.body.is_empty() { Ok(Value::Null) } else { body(request) };
    match (request.method.as_str(), target.name.is_empty()) {
        ("GET", true) => Ok(state.list(target, labels, fields)),
        ("GET", false) => state.read(target),
        // A namespaced object can only be created in a namespace, any other only outside.
        ("POST", true) if target.kind.namespaced == target.namespace.is_empty() => Err(ApiError::method_not_allowed()),
        ("POST", true) => state.create(target, body(request)?, &options),
        ("POST", false) if target.sub == "eviction" => state.evict(target),
        ("PUT", false) => state.replace(target, body(request)?, &options),
        ("PATCH", false) => state.patch(target, patch_type(request)?, body(request)?, &options),
        ("DELETE", false) if target.sub.is_empty() => state.delete(target, &delete_options()?, &options),
        ("DELETE", true) => state.delete_all(target, labels, fields, &delete_options()?, &options),
        _ => Err(ApiError::method_not_allowed()),
    }
}
