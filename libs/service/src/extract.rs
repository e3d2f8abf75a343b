//! Extractors whose rejections are problems, with EMCO's order: empty body 400, undecodable 422, then the handler's rules.
//!
//! Use these instead of axum's. A body over the limit is read to its end (up to a bound) and dropped before the answer, so that a
//! client that is still sending gets the 413 and not a reset connection.

use axum::body::Body;
use axum::extract::path::ErrorKind;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http::request::Parts;
use http::{HeaderMap, header};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Problem, codes};

/// A JSON body of a request or an answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Json<T>(pub T);

/// The bytes of a body, within the route's [`BodyLimit`].
#[derive(Clone, Debug, Default)]
pub struct Raw(pub Bytes);

/// Path parameters.
#[derive(Clone, Copy, Debug, Default, FromRequestParts)]
#[from_request(via(axum::extract::Path), rejection(Problem))]
pub struct Path<T>(pub T);

/// Query parameters.
#[derive(Clone, Copy, Debug, Default, FromRequestParts)]
#[from_request(via(axum::extract::Query), rejection(Problem))]
pub struct Query<T>(pub T);

/// Size limit of a route's bodies in bytes (1 MiB unless set); set it with `.layer(Extension(BodyLimit(n)))`.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimit(pub usize);

impl Default for BodyLimit {
    fn default() -> Self {
        Self(1 << 20)
    }
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        // A malformed id names nothing, so it is answered like an unknown one.
        let detail = match &rejection {
            PathRejection::FailedToDeserializePathParams(failed) => match failed.kind() {
                ErrorKind::ParseErrorAtKey { key, value, .. } | ErrorKind::DeserializeError { key, value, .. } => {
                    format!("There is no {key} {value:?}")
                }
                _ => rejection.body_text(),
            },
            _ => rejection.body_text(),
        };
        codes::NOT_FOUND.problem(detail)
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Self {
        codes::INVALID.problem(format!("Invalid query: {}", rejection.body_text()))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let body = read(&parts, body).await?;
        if body.is_empty() {
            return Err(codes::EMPTY_BODY.problem("Empty body"));
        }
        expect_json(&parts.headers)?;
        decode(&body).map(Json)
    }
}

impl<S: Send + Sync> FromRequest<S> for Raw {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        read(&parts, body).await.map(Self)
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
            Err(error) => Problem::internal(error).into_response(),
        }
    }
}

/// Decodes JSON.
///
/// # Errors
/// As [`undecodable`]; the message names the place.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| undecodable(&error))
}

/// The problem of JSON that could not be decoded: 400 for a missing key or an unknown word, which break EMCO's schema; 422 for text
/// that is not JSON or has another type than expected.
pub fn undecodable(error: &serde_json::Error) -> Problem {
    if error.is_data() && !error.to_string().starts_with("invalid type") {
        return codes::INVALID.problem(format!("Invalid Input: {error}"));
    }
    codes::MALFORMED_JSON.problem(format!("The body cannot be decoded: {error}"))
}

/// Checks that the content type is JSON. A body without a content type is taken as JSON, as EMCO does.
///
/// # Errors
/// 415 for another content type.
pub fn expect_json(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(content_type) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let content_type = content_type.to_str().unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    // The types that an HTML form can send are no JSON: any web page may send them without being asked first.
    if essence == "application/json" || essence.ends_with("+json") {
        return Ok(());
    }
    Err(codes::UNSUPPORTED_MEDIA_TYPE.problem(format!("The content type is {content_type:?}; this path takes application/json")))
}

/// Reads the whole body within the route's [`BodyLimit`].
///
/// # Errors
/// 400 if the body breaks off, 413 if it is larger than the limit.
pub async fn read(parts: &Parts, body: Body) -> Result<Bytes, Problem> {
    /// Bytes of a body that are read and dropped at most.
    const DRAIN: usize = 256 << 20;
    let BodyLimit(limit) = parts.extensions.get::<BodyLimit>().copied().unwrap_or_default();
    let mut stream = body.into_data_stream();
    let (mut kept, mut seen) = (BytesMut::new(), 0_usize);
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|error| codes::INVALID.problem(format!("The body ended early: {error}")))?;
        seen += chunk.len();
        if seen <= limit {
            kept.extend_from_slice(&chunk);
        } else if seen > DRAIN {
            break;
        } else {
            kept = BytesMut::new();
        }
    }
    if seen > limit {
        return Err(codes::TOO_LARGE.problem(format!("The body is larger than the {limit} bytes that this path takes")));
    }
    Ok(kept.freeze())
}
