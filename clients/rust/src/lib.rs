//! Typed client of Drover's REST API, generated from its OpenAPI document by [progenitor](https://docs.rs/progenitor).
//!
//! [`connect`] makes a [`Client`], which has a method per operation; [`types`] has the documents and answers. [`Client::call`] is for
//! paths that are data: any operation of the document, with JSON in and out.

#![allow(clippy::result_large_err, reason = "the type of errors is progenitor's")]

mod generated {
    #![allow(missing_docs, rustdoc::all, clippy::all, clippy::pedantic, clippy::unwrap_used, unused, reason = "generated")]
    include!(concat!(env!("OUT_DIR"), "/client.rs"));
}

use std::time::Duration;

use progenitor_client::{ClientHooks, OperationInfo};
use reqwest::Method;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

pub use generated::{ByteStream, Client, ClientInfo, Error, ResponseValue, types};

/// The result of a request.
pub type Answer<T> = Result<ResponseValue<T>, Error<types::Problem>>;

/// An operation of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its id in the document.
    pub id: &'static str,
    /// Its method.
    pub method: &'static str,
    /// The template of its path.
    pub path: &'static str,
}

/// All operations.
pub static OPERATIONS: &[Operation] = include!(concat!(env!("OUT_DIR"), "/operations.rs"));

impl Operation {
    /// The operation that answers `method path`: of those that fit, the one with the fewest parameters.
    pub fn at(method: &str, path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or_default();
        let fitting = OPERATIONS.iter().filter(|operation| operation.method == method && fits(operation.path, path));
        fitting.min_by_key(|operation| operation.path.matches('{').count()).copied()
    }
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

/// A client of the Drover at `url`, with the API token and further headers for each request.
///
/// # Errors
/// The token cannot be sent in a header, or the HTTP client cannot be set up.
pub fn connect(url: &str, token: Option<&str>, headers: &[(HeaderName, HeaderValue)]) -> Result<Client, Error<types::Problem>> {
    connect_with_authority(url, token, headers, None)
}

/// As [`connect`]; `authority` is PEM text of the only authorities whose certificates are believed.
///
/// # Errors
/// As [`connect`], or `authority` holds no certificate.
pub fn connect_with_authority(
    url: &str,
    token: Option<&str>,
    headers: &[(HeaderName, HeaderValue)],
    authority: Option<&[u8]>,
) -> Result<Client, Error<types::Problem>> {
    let mut all: HeaderMap = headers.iter().cloned().collect();
    if let Some(token) = token {
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| Error::InvalidRequest("the token is not a line of text".into()))?;
        value.set_sensitive(true);
        all.insert(AUTHORIZATION, value);
    }
    // Long polls and `?wait=` take up to a minute.
    let mut http = reqwest::Client::builder().connect_timeout(Duration::from_secs(5)).timeout(Duration::from_secs(90)).default_headers(all);
    if let Some(pem) = authority {
        http = http.tls_certs_only(reqwest::Certificate::from_pem_bundle(pem)?);
    }
    Ok(Client::new_with_client(url.trim_end_matches('/'), http.build()?))
}

/// Stands for one request, so that the gateway carries it out once however often it arrives.
const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Pauses before a request is repeated whose connection broke. A gateway that is started again takes a few seconds.
const PAUSES: [Duration; 4] = [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];

impl ClientHooks<()> for Client {
    async fn exec(&self, request: reqwest::Request, _: &OperationInfo) -> reqwest::Result<reqwest::Response> {
        self.execute(request).await
    }
}

impl Client {
    /// Sends a request. A GET or POST whose connection broke before the answer is sent again, with the same key.
    async fn execute(&self, mut request: reqwest::Request) -> reqwest::Result<reqwest::Response> {
        if request.method() == Method::POST && !request.headers().contains_key(KEY) {
            let key = HeaderValue::try_from(uuid::Uuid::new_v4().to_string());
            request.headers_mut().extend(key.ok().map(|key| (KEY, key)));
        }
        let mut pauses = PAUSES.iter();
        let mut broke = false;
        loop {
            let again = request.try_clone().filter(|again| matches!(*again.method(), Method::GET | Method::POST));
            let answer = self.client().execute(request).await;
            let lost = |error: &reqwest::Error| error.is_request() && !error.is_timeout() && (broke || !error.is_connect());
            match (&answer, again, pauses.next()) {
                (Err(error), Some(again), Some(pause)) if lost(error) => {
                    broke = true;
                    tokio::time::sleep(*pause).await;
                    request = again;
                }
                _ => return answer,
            }
        }
    }

    /// Requests an operation by its path, which begins with `/v2`, and may have a query. An empty answer is `null`.
    ///
    /// # Errors
    /// The document has no such operation, Drover cannot be reached or refuses the request, or the answer is not JSON.
    pub async fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Answer<Value> {
        let response = self.send(method, path, |request| match body {
            Some(body) => request.json(body),
            None => request,
        });
        let response = response.await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = response.bytes().await.map_err(Error::ResponseBodyError)?;
        let value = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes).map_err(|error| Error::InvalidResponsePayload(bytes, error))?
        };
        Ok(ResponseValue::new(value, status, headers))
    }

    /// As [`Client::call`], for an answer that is not JSON, or that arrives bit by bit. `prepare` may set headers and time limits.
    ///
    /// # Errors
    /// See [`Client::call`].
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        prepare: impl FnOnce(reqwest::RequestBuilder) -> reqwest::RequestBuilder,
    ) -> Result<reqwest::Response, Error<types::Problem>> {
        let operation =
            Operation::at(method, path).ok_or_else(|| Error::InvalidRequest(format!("the API has no operation {method} {path}")))?;
        let method = operation.method.parse().map_err(|_| Error::InvalidRequest(format!("{} is not a method", operation.method)))?;
        let request = self.client().request(method, format!("{}{path}", self.baseurl())).header("accept", "application/json");
        let response = self.execute(prepare(request).build()?).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(match ResponseValue::from_response(response).await {
            Ok(problem) => Error::ErrorResponse(problem),
            Err(error) => error,
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn post_whose_connection_broke_is_sent_again_with_the_same_key() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = connect(&format!("http://{}", listener.local_addr().unwrap()), None, &[]).unwrap();
        let server = tokio::spawn(async move {
            let mut keys = Vec::new();
            let body = "{\"path\": \"/login\", \"expiresInSeconds\": 60}";
            let answer = format!("HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            for answer in ["", &answer] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
                }
                let request = String::from_utf8(request).unwrap();
                keys.extend(request.lines().find(|line| line.starts_with("idempotency-key: ")).map(str::to_owned));
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            keys
        });
        let link = client.login_link_create().await.unwrap().into_inner();
        assert_eq!(link.path, "/login");
        let keys = server.await.unwrap();
        assert!(keys.len() == 2 && keys[0] == keys[1], "{keys:?}");
    }

    #[test]
    fn operation_of_a_path_is_the_one_with_the_fewest_parameters() {
        let id = |method, path| Operation::at(method, path).map(|operation| operation.id);
        assert_eq!(id("GET", "/v2/projects/p?limit=1"), Some("project_get"));
        assert_eq!(id("POST", "/v2/plans/x/apply"), Some("plan_apply"));
        assert_eq!(id("GET", "/v2/nowhere"), None);
        assert_eq!(id("PATCH", "/v2/projects/p"), None);
    }
}
