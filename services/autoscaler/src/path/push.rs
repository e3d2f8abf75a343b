//! Tells the decider what was measured: each second, and at once when a first request came.
//!
//! A push that fails is not repeated: what is under way is in the next one. Invariant: one push at a time, so that they arrive in order.

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

/// A decider that takes longer is not there; the next push is due.
const LIMIT: Duration = Duration::from_secs(2);
/// An answer is a few numbers.
const ANSWER: usize = 64 << 10;

/// What was answered.
#[derive(Clone, Debug)]
pub struct Answered {
    /// Its status.
    pub status: StatusCode,
    /// Its type, if it says one.
    pub kind: Option<HeaderValue>,
    /// Its body.
    pub body: Bytes,
}

/// Carries pushes to agents.
#[derive(Clone, Debug)]
pub struct Post(Client<HttpConnector, Full<Bytes>>);

impl Default for Post {
    fn default() -> Self {
        Self(Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build_http())
    }
}

impl Post {
    /// Sends a push, in the name of whom `authorization` is.
    ///
    /// # Errors
    /// There is no answer in time.
    pub async fn send(&self, to: Uri, authorization: Option<HeaderValue>, push: &Push) -> Result<Answered> {
        let mut request = Request::post(to).header(header::CONTENT_TYPE, "application/json").body(Full::from(serde_json::to_vec(push)?))?;
        if let Some(authorization) = authorization {
            request.headers_mut().insert(header::AUTHORIZATION, authorization);
        }
        let answered = async {
            let response = self.0.request(request).await.context("the decider cannot be reached")?;
            let (status, kind) = (response.status(), response.headers().get(header::CONTENT_TYPE).cloned());
            let body = Limited::new(response.into_body(), ANSWER).collect().await.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
            Ok(Answered { status, kind, body })
        };
        tokio::time::timeout(LIMIT, answered).await.context("the decider does not answer")?
    }
}

/// Where to, and in whose name.
#[derive(Clone, Debug)]
pub struct Decider {
    to: Uri,
    reporter: String,
    token: Token,
    post: Post,
}

impl Decider {
    /// `base` is the agent, such as `http://drover-autoscaler.kube-system:9465`; `reporter` this pod's name; `token` what shows whose it is.
    ///
    /// # Errors
    /// It is no address.
    pub fn new(base: &str, reporter: String, token: Token) -> Result<Self> {
        let to = format!("{}/v1/statistics", base.trim_end_matches('/'));
        let to = Uri::try_from(&to).with_context(|| format!("{to} is no address, say http://HOST:PORT"))?;
        if to.scheme_str() != Some("http") || to.authority().is_none() {
            bail!("{to} is no address of an agent, say http://HOST:PORT");
        }
        Ok(Self { to, reporter, token, post: Post::default() })
    }

    /// Pushes a report; the answer says how the target stands.
    ///
    /// # Errors
    /// The decider cannot be reached or does not take it.
    pub async fn push(&self, key: &Key, report: RequestReport) -> Result<Standing> {
        let push = Push {
            namespace: key.namespace.clone(),
            policy: key.policy.clone(),
            reporter: self.reporter.clone(),
            requests: Some(report),
            values: Default::default(),
        };
        let Answered { status, body, .. } = self.post.send(self.to.clone(), self.token.authorization().await, &push).await?;
        if !status.is_success() {
            bail!("the decider answers {status}: {}", String::from_utf8_lossy(&body));
        }
        serde_json::from_slice(&body).context("the decider's answer cannot be read")
    }
}

/// Says once that pushing fails, and once that it works again.
#[derive(Debug, Default)]
pub struct Outage(bool);

impl Outage {
    /// Takes note of a push.
    pub fn note<T>(&mut self, result: &Result<T>) {
        match result {
            Ok(_) if self.0 => tracing::info!("the decider takes statistics again"),
            Err(error) if !self.0 => tracing::warn!("statistics are not taken: {error:#}"),
            _ => {}
        }
        self.0 = result.is_err();
    }
}
