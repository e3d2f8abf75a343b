//! Calls to another service: one connection pool, the peer token, the trace, a time limit, and repeats where harmless.
//!
//! Services ask each other through the generated [`clients`], each made from a [`Peer`], which sends their requests; [`Answer`] makes
//! a [`PeerError`] of what went wrong. Directly a peer only gets what no client has: feeds, whose values are read one by one,
//! `/readyz`, and documents, whose paths are values.
//! GET, PUT and DELETE are repeated (every internal write is a PUT to an id that the caller chose); POST never is.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use drover_api::problem::ProblemDocument;
use http::{HeaderValue, Method, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Client, Request, Response};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use url::Url;

use crate::clients::{self, Called, ClientInfo};
use crate::problem::chain;
use crate::{Problem, backoff, codes, telemetry};

/// A way to one service; cheap to clone.
#[derive(Clone)]
pub struct Peer {
    name: &'static str,
    base: Url,
    token: SecretString,
    timeout: Duration,
    patience: Vec<(&'static str, Duration)>,
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
            Self::Refused { status, .. } => is_for_later(*status),
            Self::Undecodable { .. } => false,
        }
    }
    /// It says that there is no such thing.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if *status == StatusCode::NOT_FOUND)
    }

    fn of(peer: &'static str, error: clients::Error<ProblemDocument>) -> Self {
        use clients::Error;
        match error {
            Error::CommunicationError(error) if error.is_builder() => Self::Undecodable { peer, detail: chain(&error) },
            Error::CommunicationError(error) | Error::ResponseBodyError(error) | Error::InvalidUpgrade(error) => {
                Self::Unavailable { peer, detail: chain(&error.without_url()) }
            }
            Error::ErrorResponse(answer) => Self::Refused { peer, status: answer.status(), problem: Box::new(answer.into_inner()) },
            Error::InvalidResponsePayload(_, error) => Self::Undecodable { peer, detail: error.to_string() },
            Error::UnexpectedResponse(response) => {
                Self::Undecodable { peer, detail: format!("{} is not in its document", response.status()) }
            }
            Error::InvalidRequest(detail) | Error::Custom(detail) => Self::Undecodable { peer, detail },
        }
    }
}

impl From<PeerError> for Problem {
    fn from(error: PeerError) -> Self {
        Problem::failed(codes::PEER_UNAVAILABLE, error)
    }
}

/// What a client's call came to, in the words of this crate.
pub trait Answer<T> {
    /// The answer of the service that `client` speaks with.
    fn answer(self, client: &impl ClientInfo<Peer>) -> Result<T, PeerError>;
    /// The same, none where the service says that there is no such thing.
    fn found(self, client: &impl ClientInfo<Peer>) -> Result<Option<T>, PeerError>;
}

impl<T> Answer<T> for Called<T> {
    fn answer(self, client: &impl ClientInfo<Peer>) -> Result<T, PeerError> {
        self.map(clients::ResponseValue::into_inner).map_err(|error| PeerError::of(client.inner().name, error))
    }
    fn found(self, client: &impl ClientInfo<Peer>) -> Result<Option<T>, PeerError> {
        found(self.answer(client))
    }
}

fn found<T>(answer: Result<T, PeerError>) -> Result<Option<T>, PeerError> {
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
    /// A way with a limit of 10 s per attempt and 4 attempts.
    pub fn new(name: &'static str, base: Url, token: SecretString) -> Self {
        Self { name, base, token, timeout: Duration::from_secs(10), patience: Vec::new(), attempts: 4 }
    }

    /// Another time limit per attempt.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Another time limit per attempt of one operation, by its id.
    pub fn timeout_of(mut self, operation: &'static str, timeout: Duration) -> Self {
        self.patience.push((operation, timeout));
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

    /// Address of the service, without a slash at the end.
    pub(crate) fn base(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// `GET path`; `path` starts with a slash and may have a query, its parts encoded with [`segment`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, PeerError> {
        let undecodable = |detail| PeerError::Undecodable { peer: self.name, detail };
        let url = self.base.join(path).map_err(|error| undecodable(format!("{path} is no path: {error}")))?;
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

    /// `GET path`, none for 404.
    pub async fn find<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, PeerError> {
        found(self.get(path).await)
    }

    /// Sends a request, again while repeating it is harmless, may help, and attempts are left. `operation` is its id in the service's
    /// document, for [`Peer::timeout_of`]. The answer has all of its body; an error's is a [`ProblemDocument`].
    pub(crate) async fn send(&self, mut request: Request, operation: &str) -> reqwest::Result<Response> {
        let patience = self.patience.iter().find(|(id, _)| *id == operation);
        *request.timeout_mut() = Some(patience.map_or(self.timeout, |(_, timeout)| *timeout));
        telemetry::inject(request.headers_mut());
        if let Ok(mut token) = HeaderValue::from_str(&format!("Bearer {}", self.token.expose_secret())) {
            token.set_sensitive(true);
            request.headers_mut().insert(header::AUTHORIZATION, token);
        }
        let attempts = if request.method() == Method::POST { 1 } else { self.attempts };
        for attempt in 1..attempts {
            let Some(copy) = request.try_clone() else { break };
            match whole(copy).await {
                Ok(response) if !is_for_later(response.status()) => return Ok(response),
                _ => tokio::time::sleep(backoff(attempt, Duration::from_secs(1))).await,
            }
        }
        whole(request).await
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({} at {})", self.name, self.base)
    }
}

/// The answer with all of its body, so that one that breaks off counts as none; an error's body is a problem.
async fn whole(request: Request) -> reqwest::Result<Response> {
    let response = client().execute(request).await?;
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

fn is_for_later(status: StatusCode) -> bool {
    status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
}
