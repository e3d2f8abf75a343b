//! Errors that handlers return, answered as `application/problem+json` (RFC 9457) with a stable code.
//!
//! The source of a [`Problem`] never reaches a client: the detail of an internal failure is fixed text, and the chain of its sources is
//! logged here, once, with the request id that the client sees as `instance`.

use std::error::Error;
use std::fmt;

use axum::response::{IntoResponse, Response};
use drover_api::problem::ProblemDocument;
use drover_store::StoreError;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::codes::{self, Code};
use crate::middleware;

/// An error that is to be answered.
pub struct Problem(Box<ProblemParts>);

struct ProblemParts {
    code: Code,
    detail: Option<String>,
    reasons: Vec<String>,
    instance: Option<String>,
    headers: HeaderMap,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Problem {
    /// A problem with a cause that the client may know; `detail` is shown to it.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self(Box::new(ProblemParts {
            code,
            detail: Some(detail.into()),
            reasons: Vec::new(),
            instance: None,
            headers: HeaderMap::new(),
            source: None,
        }))
    }

    /// An internal failure: its chain of causes goes to the log, the client gets fixed text and the request id.
    pub fn internal(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::failed(codes::INTERNAL, source)
    }

    /// As [`Problem::internal`] with another 5xx code (`store_unavailable`, `peer_unavailable`).
    pub fn failed(code: Code, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let mut problem = Self::new(code, "");
        problem.0.detail = None;
        problem.0.source = Some(source.into());
        problem
    }

    /// Adds a reason.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.0.reasons.push(reason.into());
        self
    }

    /// Adds reasons.
    pub fn reasons(mut self, reasons: impl IntoIterator<Item = String>) -> Self {
        self.0.reasons.extend(reasons);
        self
    }

    /// Sets `instance`: the operation or object that the problem is about (default: the request id).
    pub fn instance(mut self, instance: impl Into<String>) -> Self {
        self.0.instance = Some(instance.into());
        self
    }

    /// Adds a response header (`Retry-After`, `WWW-Authenticate`).
    pub fn header(mut self, name: header::HeaderName, value: HeaderValue) -> Self {
        self.0.headers.insert(name, value);
        self
    }

    /// The error code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The HTTP status of the error code.
    pub fn status(&self) -> StatusCode {
        self.0.code.status()
    }

    /// The body of the answer.
    pub fn document(&self) -> ProblemDocument {
        let inner = &self.0;
        ProblemDocument {
            kind: format!("/docs/errors/{}", inner.code.name),
            title: inner.code.title.to_owned(),
            status: inner.code.status,
            detail: inner.detail.clone().unwrap_or_else(|| inner.code.title.to_owned()),
            code: inner.code.name.to_owned(),
            instance: inner.instance.clone().or_else(middleware::request_id),
            reasons: inner.reasons.clone(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code.name, self.0.detail.as_deref().unwrap_or(self.0.code.title))
    }
}

impl fmt::Debug for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Problem({self}; reasons {:?}; source {:?})", self.0.reasons, self.0.source)
    }
}

impl Error for Problem {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let document = self.document();
        if let Some(source) = &self.0.source {
            tracing::error!(code = %document.code, request.id = document.instance.as_deref().unwrap_or(""),
                error = %chain(source.as_ref()), "a request failed");
        }
        let body = serde_json::to_vec(&document).expect("strings and numbers always serialise");
        let mut response = (self.status(), body).into_response();
        let headers = response.headers_mut();
        headers.extend(self.0.headers);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response
    }
}

/// An error with all its causes on one line; a cause that is already quoted in the text is not repeated.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Unavailable(_) | StoreError::Contended(_) => codes::STORE_UNAVAILABLE,
            StoreError::Full(_) => codes::STORE_FULL,
            StoreError::NotFound => codes::NOT_FOUND,
            StoreError::Constraint { .. } | StoreError::Seal(_) | StoreError::Schema { .. } | StoreError::Url | StoreError::Other(_) => {
                codes::INTERNAL
            }
        };
        Self::failed(code, error)
    }
}
