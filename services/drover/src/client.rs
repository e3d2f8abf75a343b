//! Speaking REST with a running Drover. Knows problem+json, tokens and the base address; nothing of any noun.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use drover_api::problem::ProblemDocument;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

/// A refusal in Drover's own words.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", text(.0))]
pub struct Problem(pub ProblemDocument);

fn text(problem: &ProblemDocument) -> String {
    let mut text = if problem.detail.is_empty() { problem.title.clone() } else { problem.detail.clone() };
    for reason in problem.reasons.iter().filter(|reason| !problem.detail.contains(reason.as_str())) {
        text.push_str("\n  - ");
        text.push_str(reason);
    }
    text.push_str(&format!("\n  code: {0} (docs/errors/{0}.md)", problem.code));
    text
}

/// An answer: its status, the operation it points at, and its JSON.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: StatusCode,
    /// `Location`, for accepted work.
    pub location: Option<String>,
    /// `Warning` headers.
    pub warnings: Vec<String>,
    /// JSON body, `null` if empty.
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
    pub fn new(base: Url, token: Option<String>) -> Result<Self> {
        let http = reqwest::Client::builder().connect_timeout(Duration::from_secs(5)).timeout(Duration::from_secs(90)).build()?;
        Ok(Self { base, token, http })
    }

    /// The address it speaks to.
    pub fn base(&self) -> &Url {
        &self.base
    }

    fn request(&self, method: Method, path: &str) -> Result<RequestBuilder> {
        let url = self.base.join(path.trim_start_matches('/')).with_context(|| format!("bad path {path}"))?;
        let request = self.http.request(method, url).header(header::ACCEPT, "application/json");
        Ok(match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        })
    }

    async fn answered(&self, request: RequestBuilder) -> Result<Response> {
        let response = request.send().await.map_err(|error| {
            if error.is_connect() {
                anyhow!("no Drover answers at {}\n  start one with `drover up`, or name another with --url (DROVER_URL)", self.base)
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

    /// Any call with an optional JSON body.
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer> {
        let mut request = self.request(method, path)?;
        if let Some(body) = body {
            request = request.json(body);
        }
        self.send(request).await
    }

    /// The file of a document.
    pub async fn file(&self, path: &str) -> Result<Vec<u8>> {
        let request = self.request(Method::GET, path)?;
        let request = request.headers(HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static("application/octet-stream"))]));
        Ok(self.answered(request).await?.bytes().await?.into())
    }

    /// GET as a typed value.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let answer = self.call(Method::GET, path, None).await?;
        serde_json::from_value(answer.body).with_context(|| format!("unexpected answer of {path}"))
    }

    /// GET, `None` where there is no such thing.
    pub async fn find(&self, path: &str) -> Result<Option<Value>> {
        match self.call(Method::GET, path, None).await {
            Ok(answer) => Ok(Some(answer.body)),
            Err(error) if is_status(&error, 404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// POST.
    pub async fn post(&self, path: &str, body: Option<&Value>) -> Result<Answer> {
        self.call(Method::POST, path, body).await
    }

    /// PUT.
    pub async fn put(&self, path: &str, body: &Value) -> Result<Answer> {
        self.call(Method::PUT, path, Some(body)).await
    }

    /// DELETE; absent is fine.
    pub async fn delete(&self, path: &str) -> Result<()> {
        match self.call(Method::DELETE, path, None).await {
            Ok(_) => Ok(()),
            Err(error) if is_status(&error, 404) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Creates `collection/name` from `body`, or replaces it.
    pub async fn upsert(&self, collection: &str, name: &str, body: &Value) -> Result<()> {
        match self.post(collection, Some(body)).await {
            Ok(_) => Ok(()),
            Err(error) if is_status(&error, 409) && code(&error) == Some("already_exists") => {
                self.put(&format!("{collection}/{name}"), body).await.map(drop)
            }
            Err(error) => Err(error),
        }
    }

    /// Creates `collection` item from `body` unless it exists.
    pub async fn ensure(&self, collection: &str, body: &Value) -> Result<()> {
        match self.post(collection, Some(body)).await {
            Ok(_) => Ok(()),
            Err(error) if code(&error) == Some("already_exists") => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Whether Drover answered with this status.
pub fn is_status(error: &anyhow::Error, status: u16) -> bool {
    error.downcast_ref::<Problem>().is_some_and(|problem| problem.0.status == status)
}

/// The problem's code.
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
