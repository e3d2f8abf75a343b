//! Calls to another service: one connection pool, the peer token, the trace context, a time limit, and retries where they are harmless.
//!
//! Services ask each other through the generated [`crate::clients`], each made from a [`Peer`], which sends their requests; [`crate::Answer`] makes
//! a [`PeerError`] of what went wrong. Directly a peer only gets what no client has: feeds, whose values are read one by one,
//! `/readyz`, and documents, whose paths are values.
//! Streams of bytes ([`Peer::stream`]) are not part of a client either.
//! GET, PUT and DELETE are retried (every internal write is a PUT to an id that the caller chose); POST never is.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use drover_api::problem::ProblemDocument;
use http::{HeaderValue, Method, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Client, ClientBuilder, Request, Response};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use url::Url;

use crate::problem::chain;
use crate::{Problem, Tls, backoff, codes, telemetry};

/// Another service as seen by its caller; cheap to clone.
#[derive(Clone)]
pub struct Peer {
    name: &'static str,
    base: Url,
    http: Client,
    token: SecretString,
    timeout: Duration,
    timeouts: Vec<(&'static str, Duration)>,
    attempts: u32,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// There was no complete answer. The call may be repeated.
    #[error("{peer} does not answer: {detail}")]
    Unavailable { peer: &'static str, detail: String },
    /// The service answered with a problem.
    #[error("{peer} answers {status} {}: {}", problem.code, problem.detail)]
    Refused { peer: &'static str, status: StatusCode, problem: Box<ProblemDocument> },
    /// The answer does not match the service's OpenAPI document.
    #[error("the answer of {peer} does not match its OpenAPI document: {detail}")]
    Undecodable { peer: &'static str, detail: String },
}

impl PeerError {
    /// The code of the problem that the service answered with.
    pub fn code(&self) -> Option<&str> {
        self.problem().map(|problem| problem.code.as_str())
    }

    /// The problem that the service answered with.
    pub fn problem(&self) -> Option<&ProblemDocument> {
        match self {
            Self::Refused { problem, .. } => Some(problem),
            Self::Unavailable { .. } | Self::Undecodable { .. } => None,
        }
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable { .. } => true,
            Self::Refused { status, .. } => may_succeed_later(*status),
            Self::Undecodable { .. } => false,
        }
    }

    /// Whether the service answered 404.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if *status == StatusCode::NOT_FOUND)
    }
}

impl From<PeerError> for Problem {
    fn from(error: PeerError) -> Self {
        Problem::failed(codes::PEER_UNAVAILABLE, error)
    }
}

/// None for an answer 404.
pub(crate) fn found<T>(answer: Result<T, PeerError>) -> Result<Option<T>, PeerError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// One path segment, encoded (`+` of a member key too).
pub fn segment(text: &str) -> String {
    const KEEP: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    utf8_percent_encode(text, KEEP).to_string()
}

/// Time limit for connecting to another service.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long an unused connection is kept; shorter than the time after which services close it (`--head-seconds`), so that no request is
/// sent into a connection that is being closed.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// The connection pool of the process.
pub fn client() -> &'static Client {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    CLIENT.get_or_init(|| builder().build().expect("a client without certificates of its own can always be built"))
}

fn builder() -> ClientBuilder {
    Client::builder().connect_timeout(CONNECT_TIMEOUT).pool_idle_timeout(IDLE_TIMEOUT).redirect(reqwest::redirect::Policy::none())
}

impl Peer {
    /// A service with a time limit of 10 s per attempt and at most 4 attempts.
    pub fn new(name: &'static str, base: Url, token: SecretString) -> Self {
        Self { name, base, http: client().clone(), token, timeout: Duration::from_secs(10), timeouts: Vec::new(), attempts: 4 }
    }

    /// Shows this service's certificate, and demands one of the service that is called.
    pub fn tls(mut self, tls: Option<&Tls>) -> Self {
        let make = |config| builder().tls_backend_preconfigured(config).build().expect("the configuration is one of rustls");
        if let Some(http) = tls.and_then(|tls| tls.client(self.name, make)) {
            self.http = http;
        }
        self
    }

    /// Sets the time limit per attempt.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the time limit per attempt of one operation, by its id.
    pub fn timeout_of(mut self, operation: &'static str, timeout: Duration) -> Self {
        self.timeouts.push((operation, timeout));
        self
    }

    /// Sets the number of attempts, at least 1. Workflow steps should allow few, because they are retried themselves.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// Name of the service.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Address of the service, without a slash at the end.
    pub(crate) fn base(&self) -> String {
        self.base.as_str().trim_end_matches('/').to_owned()
    }

    /// `GET path`; `path` starts with a slash and may have a query, its parts encoded with [`segment`].
    ///
    /// # Errors
    /// See [`PeerError`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, PeerError> {
        let undecodable = |detail| PeerError::Undecodable { peer: self.name, detail };
        let url = self.base.join(path).map_err(|error| undecodable(format!("{path} is not a path: {error}")))?;
        let unavailable = |error: reqwest::Error| PeerError::Unavailable { peer: self.name, detail: chain(&error.without_url()) };
        let response = self.send(Request::new(Method::GET, url), "").await.map_err(unavailable)?;
        let status = response.status();
        let body = response.bytes().await.map_err(unavailable)?;
        if !status.is_success() {
            let problem = Box::new(ProblemDocument::read(status.as_u16(), &body));
            return Err(PeerError::Refused { peer: self.name, status, problem });
        }
        serde_json::from_slice(&body).map_err(|error| undecodable(error.to_string()))
    }

    /// `GET path`; none if the service answers 404.
    ///
    /// # Errors
    /// See [`PeerError`].
    pub async fn find<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, PeerError> {
        found(self.get(path).await)
    }

    /// `GET path` that ends as a stream of bytes, if the service agrees to this protocol (`Upgrade`).
    ///
    /// # Errors
    /// See [`PeerError`].
    pub async fn stream(&self, path: &str, protocol: &'static str) -> Result<reqwest::Upgraded, PeerError> {
        let unavailable = |detail: String| PeerError::Unavailable { peer: self.name, detail };
        let url = self.base.join(path).map_err(|error| unavailable(format!("{path} is not a path: {error}")))?;
        let request = self.http.get(url).header(header::CONNECTION, "Upgrade").header(header::UPGRADE, protocol);
        let asked = async {
            let broken = |error: reqwest::Error| unavailable(chain(&error.without_url()));
            let answer = request.bearer_auth(self.token.expose_secret()).send().await.map_err(broken)?;
            let status = answer.status();
            if status == StatusCode::SWITCHING_PROTOCOLS {
                return answer.upgrade().await.map_err(broken);
            }
            let body = answer.bytes().await.map_err(broken)?;
            Err(PeerError::Refused { peer: self.name, status, problem: Box::new(ProblemDocument::read(status.as_u16(), &body)) })
        };
        tokio::time::timeout(self.timeout, asked).await.map_err(|_| unavailable("no answer in time".to_owned()))?
    }

    /// Sends a request, again while repeating it is harmless, may help, and attempts are left. `operation` is its id in the service's
    /// document, for [`Peer::timeout_of`]. The answer has all of its body; an error's is a [`ProblemDocument`].
    pub(crate) async fn send(&self, mut request: Request, operation: &str) -> reqwest::Result<Response> {
        let own = self.timeouts.iter().find(|(id, _)| *id == operation);
        *request.timeout_mut() = Some(own.map_or(self.timeout, |(_, timeout)| *timeout));
        telemetry::inject(request.headers_mut());
        if let Ok(mut token) = HeaderValue::from_str(&format!("Bearer {}", self.token.expose_secret())) {
            token.set_sensitive(true);
            request.headers_mut().insert(header::AUTHORIZATION, token);
        }
        let attempts = if request.method() == Method::POST { 1 } else { self.attempts };
        for attempt in 1..attempts {
            let Some(copy) = request.try_clone() else { break };
            match whole(&self.http, copy).await {
                Ok(response) if !may_succeed_later(response.status()) => return Ok(response),
                _ => tokio::time::sleep(backoff(attempt, Duration::from_secs(1))).await,
            }
        }
        whole(&self.http, request).await
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({} at {})", self.name, self.base)
    }
}

/// Sends a request once and reads the whole body, so that an answer that breaks off is an error. The body of an error status becomes a
/// [`ProblemDocument`].
async fn whole(http: &Client, request: Request) -> reqwest::Result<Response> {
    let response = http.execute(request).await?;
    let (status, headers) = (response.status(), response.headers().clone());
    let mut body = response.bytes().await?;
    if !status.is_success() {
        let problem = ProblemDocument::read(status.as_u16(), &body);
        body = serde_json::to_vec(&problem).expect("strings and numbers always serialise").into();
    }
    let mut whole = http::Response::new(body);
    (*whole.status_mut(), *whole.headers_mut()) = (status, headers);
    Ok(whole.into())
}

fn may_succeed_later(status: StatusCode) -> bool {
    status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
}
