//! The REST client of the command line: base address, bearer token, problem+json errors. It knows nothing of single resources.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use drover_api::problem::ProblemDocument;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use crate::reasons::condensed;

/// An error response of Drover (`application/problem+json`).
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", text(.0))]
pub struct Problem(pub ProblemDocument);

fn text(problem: &ProblemDocument) -> String {
    let mut text = if problem.detail.is_empty() { problem.title.clone() } else { problem.detail.clone() };
    let reasons: Vec<String> = problem.reasons.iter().filter(|reason| !problem.detail.contains(reason.as_str())).cloned().collect();
    for reason in condensed(&reasons) {
        text.push_str("\n  - ");
        text.push_str(&reason);
    }
    text.push_str(&format!("\n  code: {0} (docs/errors/{0}.md)", problem.code));
    text
}

/// A successful response.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: StatusCode,
    /// `Location` header: the operation that was started.
    pub location: Option<String>,
    /// `Warning` headers.
    pub warnings: Vec<String>,
    /// JSON body; `null` if the body is empty.
    pub body: Value,
}

/// A client of one Drover.
#[derive(Clone, Debug)]
pub struct Client {
    base: Url,
    token: Option<String>,
    http: reqwest::Client,
}

impl Client {
    /// A client of the Drover at `base`.
    ///
    /// # Errors
    /// The HTTP client cannot be set up.
    pub fn new(base: Url, token: Option<String>) -> Result<Self> {
        Self::with_authority(base, token, None)
    }

    /// As [`Client::new`]; `authority` is a PEM file with the only authority whose certificates are believed.
    ///
    /// # Errors
    /// The file cannot be read, or the HTTP client cannot be set up.
    pub fn with_authority(base: Url, token: Option<String>, authority: Option<&Path>) -> Result<Self> {
        let mut http = reqwest::Client::builder().connect_timeout(Duration::from_secs(5)).timeout(Duration::from_secs(90));
        if let Some(file) = authority {
            let pem = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
            let roots = reqwest::Certificate::from_pem_bundle(&pem).with_context(|| format!("{} holds no certificate", file.display()))?;
            http = http.tls_certs_only(roots);
        }
        Ok(Self { base, token, http: http.build()? })
    }

    /// The base address of all requests.
    pub fn base(&self) -> &Url {
        &self.base
    }

    fn request(&self, method: Method, path: &str) -> Result<RequestBuilder> {
        let url = self.base.join(path.trim_start_matches('/')).with_context(|| format!("bad path {path}"))?;
        let mut request = self.http.request(method, url).header(header::ACCEPT, "application/json");
        // For the history of revisions; it gives no rights.
        if let Some(user) = std::env::var("USER").ok().and_then(|user| HeaderValue::from_str(&user).ok()) {
            request = request.header("drover-user", user);
        }
        Ok(match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        })
    }

    async fn answered(&self, request: RequestBuilder) -> Result<Response> {
        let response = request.send().await.map_err(|error| {
            if error.is_connect() && self.base.scheme() == "https" {
                anyhow!(error).context(format!(
                    "no Drover with a certificate that this machine believes answers at {}\n  is its authority in --ca-file (DROVER_CA_FILE)?",
                    self.base
                ))
            } else if error.is_connect() {
                anyhow!("no Drover answers at {}\n  start it with `drover up`, or give another address with --url (DROVER_URL)", self.base)
            } else {
                anyhow!(error).context(format!("no answer from {}", self.base))
            }
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let mut problem = ProblemDocument::read(status.as_u16(), &response.bytes().await?);
        if problem.title.is_empty() {
            problem.title = status.to_string();
        }
        Err(Problem(problem).into())
    }

    async fn send(&self, request: RequestBuilder) -> Result<Answer> {
        let response = self.answered(request).await?;
        let status = response.status();
        let text = |name: header::HeaderName| response.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let location = text(header::LOCATION);
        let warnings = response.headers().get_all(header::WARNING).iter().filter_map(|v| v.to_str().ok()).map(str::to_owned).collect();
        let bytes = response.bytes().await?;
        let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).context("the answer is not JSON")? };
        Ok(Answer { status, location, warnings, body })
    }

    /// Sends a request with an optional JSON body.
    ///
    /// # Errors
    /// Drover cannot be reached, answers with an error ([`Problem`]), or the body is not JSON.
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer> {
        let mut request = self.request(method, path)?;
        if let Some(body) = body {
            request = request.json(body);
        }
        self.send(request).await
    }

    /// The file that belongs to a document.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn file(&self, path: &str) -> Result<Vec<u8>> {
        let request = self.request(Method::GET, path)?;
        let request = request.headers(HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static("application/octet-stream"))]));
        Ok(self.answered(request).await?.bytes().await?.into())
    }

    /// GET of a text that arrives bit by bit, for as long as `limit`.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn stream(&self, path: &str, limit: Duration) -> Result<Response> {
        self.answered(self.request(Method::GET, path)?.timeout(limit)).await
    }

    /// GET, decoded as `T`.
    ///
    /// # Errors
    /// As [`Client::call`], and when the response does not have the form of `T`.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let answer = self.call(Method::GET, path, None).await?;
        serde_json::from_value(answer.body).with_context(|| format!("unexpected answer of {path}"))
    }

    /// GET; `None` when the answer is 404.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn find(&self, path: &str) -> Result<Option<Value>> {
        match self.call(Method::GET, path, None).await {
            Ok(answer) => Ok(Some(answer.body)),
            Err(error) if is_status(&error, 404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// POST.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn post(&self, path: &str, body: Option<&Value>) -> Result<Answer> {
        self.call(Method::POST, path, body).await
    }

    /// PUT.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn put(&self, path: &str, body: &Value) -> Result<Answer> {
        self.call(Method::PUT, path, Some(body)).await
    }

    /// DELETE; succeeds as well when there is nothing to delete.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn delete(&self, path: &str) -> Result<()> {
        match self.call(Method::DELETE, path, None).await {
            Ok(_) => Ok(()),
            Err(error) if is_status(&error, 404) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Creates `collection/name` from `body`, or replaces it if it exists.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn upsert(&self, collection: &str, name: &str, body: &Value) -> Result<()> {
        match self.post(collection, Some(body)).await {
            Ok(_) => Ok(()),
            Err(error) if is_status(&error, 409) && code(&error) == Some("already_exists") => {
                self.put(&format!("{collection}/{name}"), body).await.map(drop)
            }
            Err(error) => Err(error),
        }
    }

    /// Creates an item of `collection` from `body` unless it exists.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn ensure(&self, collection: &str, body: &Value) -> Result<()> {
        match self.post(collection, Some(body)).await {
            Ok(_) => Ok(()),
            Err(error) if code(&error) == Some("already_exists") => Ok(()),
            // Who may not create it may still use what is there.
            Err(error) if code(&error) == Some("forbidden") => match body.pointer("/metadata/name").and_then(Value::as_str) {
                Some(name) if self.find(&format!("{collection}/{}", segment(name))).await.is_ok_and(|found| found.is_some()) => Ok(()),
                _ => Err(error),
            },
            Err(error) => Err(error),
        }
    }
}

/// Whether the error is a response with this HTTP status.
pub fn is_status(error: &anyhow::Error, status: u16) -> bool {
    error.downcast_ref::<Problem>().is_some_and(|problem| problem.0.status == status)
}

/// The error code of a response, if the error is one.
pub fn code(error: &anyhow::Error) -> Option<&str> {
    error.downcast_ref::<Problem>().map(|problem| problem.0.code.as_str())
}

/// One path segment, percent-encoded.
pub fn segment(name: &str) -> String {
    percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC)
        .to_string()
        .replace("%2D", "-")
        .replace("%2E", ".")
        .replace("%5F", "_")
}
