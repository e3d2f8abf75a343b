//! Calls to another service: one connection pool, the peer token, the trace, a time limit, and repeats where harmless.
//!
//! GET, PUT and DELETE are repeated (every internal write is a PUT to an id that the caller chose); POST never is.

use std::sync::OnceLock;
use std::time::Duration;

use http::{HeaderMap, Method, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rand::Rng;
use reqwest::Client;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use url::Url;

use crate::problem::chain;
use crate::{Problem, ProblemDocument, codes, telemetry};

/// A client of one service; cheap to clone.
#[derive(Clone)]
pub struct Peer {
    name: &'static str,
    base: Url,
    token: SecretString,
    timeout: Duration,
    attempts: u32,
}

/// Why a call gave no answer to work with.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// No answer, or one that says "later": repeat it at will.
    #[error("{peer} does not answer: {detail}")]
    Unavailable {
        /// Its name.
        peer: &'static str,
        /// What was seen.
        detail: String,
    },
    /// It answered with a problem.
    #[error("{peer} answers {status} {}: {}", problem.code, problem.detail)]
    Refused {
        /// Its name.
        peer: &'static str,
        /// Status.
        status: StatusCode,
        /// Its own words.
        problem: Box<ProblemDocument>,
    },
    /// Its answer is not what was agreed.
    #[error("{peer} answers something else than agreed: {detail}")]
    Undecodable {
        /// Its name.
        peer: &'static str,
        /// What was wrong.
        detail: String,
    },
}

impl PeerError {
    /// The code of its problem, if it answered with one.
    pub fn code(&self) -> Option<&str> {
        self.problem().map(|problem| problem.code.as_str())
    }
    /// Its problem.
    pub fn problem(&self) -> Option<&ProblemDocument> {
        match self {
            Self::Refused { problem, .. } => Some(problem),
            Self::Unavailable { .. } | Self::Undecodable { .. } => None,
        }
    }
    /// The same call may work later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable { .. } => true,
            Self::Refused { status, .. } => status.is_server_error() && *status != StatusCode::NOT_IMPLEMENTED,
            Self::Undecodable { .. } => false,
        }
    }
    /// It says that there is no such thing.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if *status == StatusCode::NOT_FOUND)
    }
}

impl From<PeerError> for Problem {
    fn from(error: PeerError) -> Self {
        Problem::failed(codes::PEER_UNAVAILABLE, error)
    }
}

/// One path segment, encoded (`+` of a member key too).
pub fn segment(text: &str) -> String {
    const KEEP: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    utf8_percent_encode(text, KEEP).to_string()
}

/// The connection pool of the process.
pub fn client() -> &'static Client {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    CLIENT.get_or_init(|| {
        Client::builder()
            .connect_timeout(Duration::from_secs(3))
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .expect("a client without certificates of its own can always be built")
    })
}

impl Peer {
    /// A client with a limit of 10 s per attempt and 4 attempts.
    pub fn new(name: &'static str, base: Url, token: SecretString) -> Self {
        Self { name, base, token, timeout: Duration::from_secs(10), attempts: 4 }
    }

    /// Another time limit per attempt.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Another number of attempts (1: never repeat; workflow steps repeat themselves).
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// `GET path`; `path` starts with a slash and may have a query, its parts encoded with [`segment`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, PeerError> {
        self.call(Method::GET, path, None::<&()>).await
    }

    /// `GET path`, none for 404.
    pub async fn find<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, PeerError> {
        match self.get(path).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// `PUT path`.
    pub async fn put<B: Serialize + ?Sized, T: DeserializeOwned>(&self, path: &str, body: &B) -> Result<T, PeerError> {
        self.call(Method::PUT, path, Some(body)).await
    }

    /// `POST path`, sent once.
    pub async fn post<B: Serialize + ?Sized, T: DeserializeOwned>(&self, path: &str, body: &B) -> Result<T, PeerError> {
        self.call(Method::POST, path, Some(body)).await
    }

    /// `DELETE path`; gone already is as good.
    pub async fn delete(&self, path: &str) -> Result<(), PeerError> {
        match self.call::<(), serde_json::Value>(Method::DELETE, path, None).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// Any call. An empty answer decodes as JSON `null` (use `()` or `Value`).
    pub async fn call<B: Serialize + ?Sized, T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<T, PeerError> {
        let body = body.map(serde_json::to_vec).transpose().map_err(|error| self.undecodable(error.to_string()))?;
        let attempts = if method == Method::POST { 1 } else { self.attempts };
        let mut attempt = 1;
        loop {
            match self.once(&method, path, body.clone()).await {
                Err(error) if attempt < attempts && error.is_retryable() => {
                    tokio::time::sleep(backoff(attempt, Duration::from_secs(1))).await
                }
                result => return result.and_then(|bytes| self.decode(&bytes)),
            }
            attempt += 1;
        }
    }

    async fn once(&self, method: &Method, path: &str, body: Option<Vec<u8>>) -> Result<Vec<u8>, PeerError> {
        let url = self.base.join(path).map_err(|error| self.undecodable(format!("{path} is no path: {error}")))?;
        let mut headers = HeaderMap::new();
        telemetry::inject(&mut headers);
        let mut request =
            client().request(method.clone(), url).timeout(self.timeout).headers(headers).bearer_auth(self.token.expose_secret());
        if let Some(body) = body {
            request = request.header(header::CONTENT_TYPE, "application/json").body(body);
        }
        let unavailable = |error: reqwest::Error| PeerError::Unavailable { peer: self.name, detail: chain(&error.without_url()) };
        let response = request.send().await.map_err(unavailable)?;
        let status = response.status();
        let bytes = response.bytes().await.map_err(unavailable)?;
        if status.is_success() {
            return Ok(bytes.to_vec());
        }
        let problem = serde_json::from_slice(&bytes).unwrap_or_else(|_| ProblemDocument {
            status: status.as_u16(),
            detail: String::from_utf8_lossy(&bytes).chars().take(200).collect(),
            ..ProblemDocument::default()
        });
        Err(PeerError::Refused { peer: self.name, status, problem: Box::new(problem) })
    }

    fn decode<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, PeerError> {
        let bytes = if bytes.is_empty() { b"null" } else { bytes };
        serde_json::from_slice(bytes).map_err(|error| self.undecodable(error.to_string()))
    }

    fn undecodable(&self, detail: String) -> PeerError {
        PeerError::Undecodable { peer: self.name, detail }
    }
}

/// Before the attempt after the `attempt`-th: 50 ms doubling up to `most`, half of it random.
pub fn backoff(attempt: u32, most: Duration) -> Duration {
    let whole = Duration::from_millis(50).saturating_mul(2_u32.saturating_pow(attempt.saturating_sub(1).min(16))).min(most);
    whole.mul_f64(rand::rng().random_range(0.5..=1.0))
}
