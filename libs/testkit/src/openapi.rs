//! Checks every request and response of a test against the OpenAPI document of the service.
//!
//! [`validated`] wraps a router. A response that the document does not describe is replaced by a 500 that says what is wrong, so
//! any test that checks the status fails. A request body is checked if the service accepted it, because a refused one may be
//! wrong on purpose. The pages that every service has (/healthz, /metrics) are not checked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Response, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::IntoResponse;
use jsonschema::Validator;
use serde_json::{Value, json};

/// Wraps a router so that each request and response is checked against `document`.
pub fn validated(router: Router, document: Value) -> Router {
    router.layer(from_fn_with_state(Arc::new(Documented { document, compiled: Mutex::default() }), check))
}

/// A proxy in front of a running service that checks as [`validated`] does. Tests use its address instead of the service's.
pub async fn proxy(target: std::net::SocketAddr, document: Value) -> crate::HttpServer {
    let forward = move |request: Request| async move {
        let (parts, body) = request.into_parts();
        let body = to_bytes(body, 1 << 27).await.unwrap_or_default();
        let url = format!("http://{target}{}", parts.uri);
        let mut headers = parts.headers;
        headers.remove(header::HOST);
        headers.remove(header::TRANSFER_ENCODING);
        match reqwest::Client::new().request(parts.method, url).headers(headers).body(body).send().await {
            Ok(answer) => {
                let mut response = Response::builder().status(answer.status());
                for (name, value) in answer.headers().iter().filter(|(name, _)| *name != header::TRANSFER_ENCODING) {
                    response = response.header(name, value);
                }
                response.body(Body::from_stream(answer.bytes_stream())).expect("the parts come from a response")
            }
            Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
        }
    };
    crate::HttpServer::start(validated(Router::new().fallback(forward), document)).await
}

struct Documented {
    document: Value,
    /// Compiled schemas by their JSON pointers.
    compiled: Mutex<HashMap<String, Arc<Validator>>>,
}

async fn check(State(documented): State<Arc<Documented>>, request: Request, next: Next) -> Response<Body> {
    let path = request.uri().path().to_owned();
    if !path.starts_with("/v2/") && !path.starts_with("/internal/") {
        return next.run(request).await;
    }
    let method = request.method().as_str().to_ascii_lowercase();
    let (parts, body) = request.into_parts();
    let request_headers = parts.headers.clone();
    // In tests only bodies that must be refused because of their size are larger than this; they are not read here.
    let (sent, body) = match parts.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok()) {
        Some(length) if length > 1 << 26 => (Bytes::new(), body),
        _ => {
            let sent = to_bytes(body, 1 << 27).await.unwrap_or_default();
            (sent.clone(), Body::from(sent))
        }
    };
    let response = next.run(Request::from_parts(parts, body)).await;
    let streamed = content_type(response.headers()) == "text/event-stream";
    let (parts, body) = response.into_parts();
    let (answered, body) = if streamed {
        (Bytes::new(), body)
    } else {
        let answered = to_bytes(body, 1 << 27).await.unwrap_or_default();
        (answered.clone(), Body::from(answered))
    };
    let exchange = Exchange {
        method: &method,
        path: &path,
        request: (&request_headers, &sent),
        status: parts.status,
        response: (&parts.headers, &answered),
    };
    match documented.judge(&exchange) {
        Ok(()) => Response::from_parts(parts, body),
        Err(wrong) => {
            let text = format!(
                "the OpenAPI document does not describe this: {method} {path} answered {}: {wrong}\n{}",
                parts.status,
                String::from_utf8_lossy(&answered)
            );
            tracing::error!("{text}");
            let mut response = Response::new(Body::from(text));
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response
        }
    }
}

struct Exchange<'a> {
    method: &'a str,
    path: &'a str,
    request: (&'a HeaderMap, &'a Bytes),
    status: StatusCode,
    response: (&'a HeaderMap, &'a Bytes),
}

impl Documented {
    fn judge(&self, exchange: &Exchange<'_>) -> Result<(), String> {
        let Some(template) = self.template(exchange.path, exchange.method) else {
            let known = matches!(exchange.status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::UNAUTHORIZED);
            return if known { Ok(()) } else { Err("the document has no such operation".to_owned()) };
        };
        let operation = format!("/paths/{}/{}", escape(&template), exchange.method);
        if exchange.status.is_success() && content_type(exchange.request.0).ends_with("json") && !exchange.request.1.is_empty() {
            self.body(&format!("{operation}/requestBody"), exchange.request.0, exchange.request.1)
                .map_err(|wrong| format!("request: {wrong}"))?;
        }
        let responses = self.document.pointer(&format!("{operation}/responses")).ok_or("the operation has no responses")?;
        let status = exchange.status.as_str();
        let described = if responses.get(status).is_some() {
            status
        } else if !exchange.status.is_success() && responses.get("default").is_some() {
            "default"
        } else {
            return Err("this status is not described".to_owned());
        };
        self.body(&format!("{operation}/responses/{described}"), exchange.response.0, exchange.response.1)
            .map_err(|wrong| format!("response: {wrong}"))
    }

    /// The path of the document that matches, the one with the fewest parameters.
    fn template(&self, path: &str, method: &str) -> Option<String> {
        let paths = self.document.get("paths")?.as_object()?;
        let fitting = paths.iter().filter(|(template, item)| item.get(method).is_some() && fits(template, path));
        fitting.map(|(template, _)| template.clone()).min_by_key(|template| template.matches('{').count())
    }

    fn body(&self, pointer: &str, headers: &HeaderMap, body: &Bytes) -> Result<(), String> {
        let described = self.document.pointer(pointer).ok_or("a body is not described")?;
        let Some(content) = described.get("content").and_then(Value::as_object) else {
            return if body.is_empty() { Ok(()) } else { Err("a body that the document does not describe".to_owned()) };
        };
        let given = content_type(headers);
        if body.is_empty() && given.is_empty() {
            return Err("no body where the document describes one".to_owned());
        }
        if !content.contains_key(&given) {
            return Err(format!("content type {given:?}, described are {:?}", content.keys().collect::<Vec<_>>()));
        }
        if !given.ends_with("json") {
            return Ok(());
        }
        let value: Value = serde_json::from_slice(body).map_err(|error| format!("no JSON: {error}"))?;
        let validator = self.validator(&format!("{pointer}/content/{}/schema", escape(&given)))?;
        let wrong: Vec<String> =
            validator.iter_errors(&value).take(5).map(|error| format!("{} at {}", error, error.instance_path())).collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    }

    fn validator(&self, pointer: &str) -> Result<Arc<Validator>, String> {
        if let Some(known) = self.compiled.lock().unwrap_or_else(PoisonError::into_inner).get(pointer) {
            return Ok(known.clone());
        }
        let schema = self.document.pointer(pointer).ok_or_else(|| format!("no schema at {pointer}"))?;
        // The schema contains references into the document, so it is compiled together with the document's components.
        let root = json!({"allOf": [schema], "components": self.document.get("components")});
        let validator = jsonschema::options()
            .with_draft(jsonschema::Draft::Draft202012)
            .build(&root)
            .map_err(|error| format!("the schema at {pointer}: {error}"))?;
        let validator = Arc::new(validator);
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner).insert(pointer.to_owned(), validator.clone());
        Ok(validator)
    }
}

fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn fits(template: &str, path: &str) -> bool {
    let (mut wanted, mut found) = (template.split('/'), path.split('/'));
    loop {
        match (wanted.next(), found.next()) {
            (None, None) => return true,
            (Some(wanted), Some(found)) if wanted == found || (wanted.starts_with('{') && !found.is_empty()) => {}
            _ => return false,
        }
    }
}

fn escape(part: &str) -> String {
    part.replace('~', "~0").replace('/', "~1")
}

/// Compares a document with its golden file `openapi/<service>.json`, or writes that file if `UPDATE_GOLDEN` is set.
///
/// # Panics
/// The document differs, or the file cannot be written.
pub fn assert_golden(service: &str, document: &Value) {
    let path = format!("{}/../../openapi/{service}.json", env!("CARGO_MANIFEST_DIR"));
    let text = format!("{document:#}\n");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).expect("openapi/ can be written");
        return;
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(golden == text, "openapi/{service}.json differs from the service's document: run `cargo run -p xtask -- openapi`");
}
