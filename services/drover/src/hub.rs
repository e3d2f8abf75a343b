//! The generated client of the REST API (`drover_client`) as the commands use it: answers as types of `drover_api`, refusals as errors that
//! people read, and documents by their paths. It knows nothing of single operations.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use base64::Engine;
use drover_api::problem::ProblemDocument;
use drover_client::{Answer as Called, ClientInfo, Error, types};
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Method, Response, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;
use uuid::Uuid;

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
    /// The generated client: a method per operation. [`Client::read`] awaits them.
    pub api: drover_client::Client,
}

impl Client {
    /// A client of the Drover at `base`.
    ///
    /// # Errors
    /// The HTTP client cannot be set up.
    pub fn new(base: Url, token: Option<String>) -> Result<Self> {
        Self::with_authority(base, token, None)
    }

    /// As [`Client::new`]; `authority` is a PEM file with the only authorities whose certificates are believed.
    ///
    /// # Errors
    /// The file cannot be read, or the HTTP client cannot be set up.
    pub fn with_authority(base: Url, token: Option<String>, authority: Option<&Path>) -> Result<Self> {
        let pem = authority.map(|file| std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))).transpose()?;
        // For the history of revisions; it gives no rights.
        let user = std::env::var("USER").ok().and_then(|user| HeaderValue::from_str(&user).ok());
        let headers: Vec<_> = user.map(|user| (HeaderName::from_static("drover-user"), user)).into_iter().collect();
        let api = drover_client::connect_with_authority(base.as_str(), token.as_deref(), &headers, pem.as_deref())
            .map_err(|error| anyhow!("{error}"))?;
        Ok(Self { base, api })
    }

    /// The base address of all requests.
    pub fn base(&self) -> &Url {
        &self.base
    }

    /// The HTTP client, which sends the token, for what is no operation of the API.
    pub fn http(&self) -> &reqwest::Client {
        self.api.client()
    }

    /// What a refused or failed request means.
    fn failure(&self, error: Error<types::Problem>) -> anyhow::Error {
        match error {
            Error::ErrorResponse(refused) => {
                let status = refused.status();
                let bytes = serde_json::to_vec(&refused.into_inner()).unwrap_or_default();
                let mut problem = ProblemDocument::read(status.as_u16(), &bytes);
                if problem.title.is_empty() {
                    problem.title = status.to_string();
                }
                Problem(problem).into()
            }
            Error::CommunicationError(error) if error.is_connect() && self.base.scheme() == "https" => anyhow!(error).context(format!(
                "no Drover with a certificate that this machine believes answers at {}\n  is its authority in --ca-file (DROVER_CA_FILE)?",
                self.base
            )),
            Error::CommunicationError(error) if error.is_connect() => {
                anyhow!("no Drover answers at {}\n  start it with `drover up`, or give another address with --url (DROVER_URL)", self.base)
            }
            Error::CommunicationError(error) | Error::ResponseBodyError(error) | Error::InvalidUpgrade(error) => {
                anyhow!(error).context(format!("no answer from {}", self.base))
            }
            Error::InvalidResponsePayload(_, error) => anyhow!(error).context("the answer is not as the API describes it"),
            Error::UnexpectedResponse(response) => anyhow!("{} answered {}", self.base, response.status()),
            Error::InvalidRequest(why) | Error::Custom(why) => anyhow!(why),
        }
    }

    /// The answer of a method of [`Client::api`], as a type of `drover_api`.
    ///
    /// # Errors
    /// Drover cannot be reached, answers with an error ([`Problem`]), or the answer does not have the form of `T`.
    pub async fn read<A: Serialize, T: DeserializeOwned>(&self, called: impl Future<Output = Called<A>>) -> Result<T> {
        match called.await {
            Ok(answer) => serde_json::from_value(serde_json::to_value(answer.into_inner())?).context("unexpected answer"),
            // A newer Drover may say more than the generated type knows, and no more than `T` does.
            Err(Error::InvalidResponsePayload(bytes, error)) => {
                serde_json::from_slice(&bytes).map_err(|_| self.failure(Error::InvalidResponsePayload(bytes, error)))
            }
            Err(error) => Err(self.failure(error)),
        }
    }

    /// As [`Client::read`]; `None` when the answer is 404.
    ///
    /// # Errors
    /// See [`Client::read`].
    pub async fn read_if_there<A: Serialize, T: DeserializeOwned>(&self, called: impl Future<Output = Called<A>>) -> Result<Option<T>> {
        found(self.read(called).await)
    }

    /// The status and headers of a method of [`Client::api`], with its answer as JSON.
    ///
    /// # Errors
    /// Drover cannot be reached, or answers with an error ([`Problem`]).
    pub async fn answer<A: Serialize>(&self, called: impl Future<Output = Called<A>>) -> Result<Answer> {
        let answer = called.await.map_err(|error| self.failure(error))?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let location = headers.get(header::LOCATION).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let warnings = headers.get_all(header::WARNING).iter().filter_map(|value| value.to_str().ok()).map(str::to_owned).collect();
        Ok(Answer { status, location, warnings, body: serde_json::to_value(answer.into_inner())? })
    }

    /// Requests an operation by its path.
    ///
    /// # Errors
    /// The API has no such operation, Drover cannot be reached, answers with an error ([`Problem`]), or the body is not JSON.
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer> {
        self.answer(self.api.call(method.as_str(), path, body)).await
    }

    /// The file that belongs to a document.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn file(&self, path: &str) -> Result<Vec<u8>> {
        let only_file = |request: reqwest::RequestBuilder| {
            request.headers([(header::ACCEPT, HeaderValue::from_static("application/octet-stream"))].into_iter().collect())
        };
        let response = self.api.send("GET", path, only_file).await.map_err(|error| self.failure(error))?;
        Ok(response.bytes().await?.into())
    }

    /// GET of a text that arrives bit by bit, for as long as `limit`.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn stream(&self, path: &str, limit: Duration) -> Result<Response> {
        self.api.send("GET", path, |request| request.timeout(limit)).await.map_err(|error| self.failure(error))
    }

    /// POST that becomes a WebSocket with this protocol, for at most a day.
    ///
    /// # Errors
    /// As [`Client::call`], and when Drover does not agree to the protocol.
    pub async fn websocket(&self, path: &str, protocol: &'static str) -> Result<reqwest::Upgraded> {
        let key = base64::engine::general_purpose::STANDARD.encode(rand::random::<[u8; 16]>());
        // Not by `api`, which repeats a request whose connection broke: what it begins would begin twice.
        let request = self.http().post(format!("{}{path}", self.api.baseurl())).timeout(Duration::from_secs(24 * 3600));
        let request = request.header(header::CONNECTION, "Upgrade").header(header::UPGRADE, "websocket");
        let request = request.header(header::SEC_WEBSOCKET_VERSION, "13").header(header::SEC_WEBSOCKET_KEY, key);
        let answer = request.header(header::SEC_WEBSOCKET_PROTOCOL, protocol).send().await;
        let answer = answer.map_err(|error| self.failure(Error::CommunicationError(error)))?;
        let status = answer.status();
        if status != StatusCode::SWITCHING_PROTOCOLS {
            return Err(Problem(ProblemDocument::read(status.as_u16(), &answer.bytes().await?)).into());
        }
        let agreed = answer.headers().get(header::SEC_WEBSOCKET_PROTOCOL);
        ensure!(
            agreed.is_some_and(|agreed| agreed == protocol),
            "the cluster does not know the protocol {protocol}: it needs Kubernetes 1.30 or newer"
        );
        answer.upgrade().await.context("the connection did not become a WebSocket")
    }

    /// Whether the hub, and all services behind it, are ready; none if this Drover does not say.
    ///
    /// # Errors
    /// It cannot be reached, or answers with an error ([`Problem`]).
    pub async fn readiness(&self) -> Result<Value> {
        let answer = self.api.client().get(self.base.join("readyz")?).send().await;
        let response = answer.map_err(|error| self.failure(Error::CommunicationError(error)))?;
        let status = response.status();
        let bytes = response.bytes().await?;
        if status.is_success() {
            return Ok(serde_json::from_slice(&bytes).unwrap_or_default());
        }
        Err(Problem(ProblemDocument::read(status.as_u16(), &bytes)).into())
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
        found(self.get(path).await)
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
        found(self.call(Method::DELETE, path, None).await).map(drop)
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

fn found<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if is_status(&error, 404) => Ok(None),
        Err(error) => Err(error),
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

/// The id of an operation or a plan.
///
/// # Errors
/// The text is no id.
pub fn id(text: &str) -> Result<Uuid> {
    text.parse().map_err(|_| anyhow!("{text:?} is not an id; `drover get operations` and `drover get plans` show ids"))
}

/// A body for a method of [`Client::api`].
///
/// # Errors
/// The value does not have the form of the body.
pub fn body<T: DeserializeOwned>(value: Value) -> Result<T> {
    serde_json::from_value(value).context("the request is not as the API describes it")
}

/// One path segment, percent-encoded.
pub fn segment(name: &str) -> String {
    percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC)
        .to_string()
        .replace("%2D", "-")
        .replace("%2E", ".")
        .replace("%5F", "_")
}
