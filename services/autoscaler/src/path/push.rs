//! Pushes what was measured to the decider (the agent): every second, and at once for a first request.
//!
//! A failed push is not repeated, because requests in progress are in the next one. Invariant: one push at a time, so that they arrive in order.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use drover_autoscaling::kpa::RequestReport;
use http::{HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::Key;
use super::token::Token;
use crate::wire::{Push, Standing};

/// Time limit of a push; after it the next one is due.
const LIMIT: Duration = Duration::from_secs(2);
/// Shorter than agents keep unused connections.
const IDLE: Duration = Duration::from_secs(20);
/// Maximum size of an answer in bytes; an answer is a few numbers.
const ANSWER: usize = 64 << 10;

/// The answer of an agent.
#[derive(Clone, Debug)]
pub struct PushAnswer {
    pub status: StatusCode,
    /// Content type, if there is one.
    pub kind: Option<HeaderValue>,
    pub body: Bytes,
}

/// Sends pushes to agents.
#[derive(Clone, Debug)]
pub struct PushClient(Client<HttpConnector, Full<Bytes>>);

impl Default for PushClient {
    fn default() -> Self {
        Self(Client::builder(TokioExecutor::new()).pool_idle_timeout(IDLE).pool_timer(TokioTimer::new()).build_http())
    }
}

impl PushClient {
    /// Sends a push with the caller's authorization.
    ///
    /// # Errors
    /// If there is no answer in time.
    pub async fn send(&self, to: Uri, authorization: Option<HeaderValue>, push: &Push) -> Result<PushAnswer> {
        let mut request = Request::post(to).header(header::CONTENT_TYPE, "application/json").body(Full::from(serde_json::to_vec(push)?))?;
        if let Some(authorization) = authorization {
            request.headers_mut().insert(header::AUTHORIZATION, authorization);
        }
        let answered = async {
            let response = self.0.request(request).await.context("the decider cannot be reached")?;
            let (status, kind) = (response.status(), response.headers().get(header::CONTENT_TYPE).cloned());
            let body = Limited::new(response.into_body(), ANSWER).collect().await.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
            Ok(PushAnswer { status, kind, body })
        };
        tokio::time::timeout(LIMIT, answered).await.context("the decider does not answer")?
    }
}

/// A client of the decider for one reporter.
#[derive(Clone, Debug)]
pub struct DeciderClient {
    to: Uri,
    reporter: String,
    token: Token,
    post: PushClient,
}

impl DeciderClient {
    /// `base` is the agent, such as `http://drover-autoscaler.kube-system:9465`; `reporter` is this pod's name; `token` identifies its account.
    ///
    /// # Errors
    /// If `base` is not the http address of an agent.
    pub fn new(base: &str, reporter: String, token: Token) -> Result<Self> {
        let to = format!("{}/v1/statistics", base.trim_end_matches('/'));
        let to = Uri::try_from(&to).with_context(|| format!("{to} is not an address, use http://HOST:PORT"))?;
        if to.scheme_str() != Some("http") || to.authority().is_none() {
            bail!("{to} is not the address of an agent, use http://HOST:PORT");
        }
        Ok(Self { to, reporter, token, post: PushClient::default() })
    }

    /// Pushes a report; the answer is the state of the target.
    ///
    /// # Errors
    /// If the decider cannot be reached or refuses the push.
    pub async fn push(&self, key: &Key, report: RequestReport) -> Result<Standing> {
        let push = Push {
            namespace: key.namespace.clone(),
            policy: key.policy.clone(),
            reporter: self.reporter.clone(),
            requests: Some(report),
            values: Default::default(),
        };
        let PushAnswer { status, body, .. } = self.post.send(self.to.clone(), self.token.authorization().await, &push).await?;
        if !status.is_success() {
            bail!("the decider answers {status}: {}", String::from_utf8_lossy(&body));
        }
        serde_json::from_slice(&body).context("the decider's answer cannot be read")
    }
}

/// Logs once that pushing fails, and once that it works again.
#[derive(Debug, Default)]
pub struct OutageLog(bool);

impl OutageLog {
    /// Notes the result of a push.
    pub fn note<T>(&mut self, result: &Result<T>) {
        match result {
            Ok(_) if self.0 => tracing::info!("the decider accepts statistics again"),
            Err(error) if !self.0 => tracing::warn!("statistics cannot be pushed: {error:#}"),
            _ => {}
        }
        self.0 = result.is_err();
    }
}
