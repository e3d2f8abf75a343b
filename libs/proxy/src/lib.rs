//! Forwarding of HTTP requests: bodies that can be offered to several destinations, the request to one destination, and a listener that
//! can be ended without failing a request.
//!
//! Which destination a request goes to is decided elsewhere (services/autoscaler for KPA, services/traffic for routes). Invariant: no
//! byte of a request is sent to two destinations, unless its method says that this does no harm.

pub mod body;
pub mod forward;
pub mod serve;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;

use body::AnswerBody;

/// Seconds after which a refused client may try again.
const RETRY_AFTER: &str = "1";

/// An answer that the proxy gives itself: problem+json with a code that has a page in docs/errors, as in all of Drover.
pub fn own_answer(code: &str, status: StatusCode, title: &str, detail: &str) -> Response<AnswerBody> {
    let document = serde_json::json!({
        "type": format!("/docs/errors/{code}"), "title": title, "status": status.as_u16(), "detail": detail, "code": code,
    });
    let mut response = Response::new(AnswerBody::from(Full::new(Bytes::from(document.to_string()))));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
    }
    response
}
