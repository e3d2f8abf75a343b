//! Requests to the hub, each on a connection of its own, and the connection that becomes a link.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context, anyhow};
use bytes::Bytes;
use drover_link::wire::{AGENT, HUB, LINK, PROTOCOL};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::state::Identity;

/// How long the hub may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// How long an answer may take; the hub itself waits for an operator for 20 s.
const ANSWER: Duration = Duration::from_secs(60);
/// Longer than any answer.
const LONGEST: usize = 64 << 10;
const LATE: &str = "no answer in time";

/// Why a request failed.
#[derive(Debug)]
pub enum AskError {
    /// The hub has refused it, with the code of a problem.
    Refused { code: String, detail: String },
    /// There was no answer. It may be repeated.
    Broken(anyhow::Error),
}

impl std::fmt::Display for AskError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused { code, detail } => write!(f, "Drover refuses ({code}): {detail}"),
            Self::Broken(error) => write!(f, "Drover does not answer: {error:#}"),
        }
    }
}

impl From<anyhow::Error> for AskError {
    fn from(error: anyhow::Error) -> Self {
        Self::Broken(error)
    }
}

/// Where the hub is, and the authority of its certificate; clones share both.
#[derive(Clone)]
pub struct Hub {
    address: String,
    roots: Arc<RwLock<Arc<RootCertStore>>>,
}

impl Hub {
    /// The hub at this address, whose certificate this authority has signed.
    ///
    /// # Errors
    /// The authority cannot be read.
    pub fn new(address: String, authority: &str) -> anyhow::Result<Self> {
        Ok(Self { address, roots: Arc::new(RwLock::new(Arc::new(roots(authority)?))) })
    }

    /// Believes this authority from now on, and no other.
    ///
    /// # Errors
    /// The authority cannot be read.
    pub fn believe(&self, authority: &str) -> anyhow::Result<()> {
        let roots = Arc::new(roots(authority)?);
        *self.roots.write().unwrap_or_else(PoisonError::into_inner) = roots;
        Ok(())
    }

    /// Sends a document and reads the answer.
    ///
    /// # Errors
    /// See [`AskError`].
    pub async fn ask<A: DeserializeOwned>(&self, identity: Option<&Identity>, path: &str, body: &impl Serialize) -> Result<A, AskError> {
        let request = Request::builder().method(Method::POST).uri(path).header(header::CONTENT_TYPE, "application/json");
        let request = request.body(Full::from(serde_json::to_vec(body).context("the request")?)).context("the request")?;
        let answer = async {
            let (status, body) = whole(self.send(identity, request).await?).await?;
            match status.is_success() {
                true => Ok(serde_json::from_slice(&body).context("the answer cannot be read")?),
                false => Err(refused(status, &body)),
            }
        };
        tokio::time::timeout(ANSWER, answer).await.context(LATE)?
    }

    /// A connection on which this agent answers from now on.
    ///
    /// # Errors
    /// See [`AskError`].
    pub async fn link(&self, identity: &Identity) -> Result<Upgraded, AskError> {
        let request = Request::get(LINK).header(header::CONNECTION, "Upgrade").header(header::UPGRADE, PROTOCOL);
        let request = request.body(Full::default()).context("the request")?;
        let answer = async {
            let answer = self.send(Some(identity), request).await?;
            if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
                return Ok(hyper::upgrade::on(answer).await.context("the connection broke off")?);
            }
            let (status, body) = whole(answer).await?;
            Err(refused(status, &body))
        };
        tokio::time::timeout(ANSWER, answer).await.context(LATE)?
    }

    async fn send(&self, identity: Option<&Identity>, mut request: Request<Full<Bytes>>) -> anyhow::Result<Response<Incoming>> {
        request.headers_mut().insert(header::HOST, http::HeaderValue::from_static(HUB));
        let name = format!("{AGENT}{}", env!("CARGO_PKG_VERSION"));
        request.headers_mut().insert(header::USER_AGENT, http::HeaderValue::from_str(&name)?);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13])?;
        let builder = builder.with_root_certificates(Arc::clone(&self.roots.read().unwrap_or_else(PoisonError::into_inner)));
        let mut tls = match identity {
            Some(own) => builder.with_client_auth_cert(own.chain.clone(), own.key.clone_key())?,
            None => builder.with_no_client_auth(),
        };
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let connected = async {
            let tcp = TcpStream::connect(&self.address).await.with_context(|| format!("cannot connect to {}", self.address))?;
            tcp.set_nodelay(true)?;
            let name = ServerName::try_from(HUB)?;
            anyhow::Ok(TlsConnector::from(Arc::new(tls)).connect(name, tcp).await?)
        };
        let connection = tokio::time::timeout(CONNECT, connected).await.context(LATE)??;
        let (mut sender, running) = http1::handshake(TokioIo::new(connection)).await?;
        // Ends with the answer, or hands the connection over to who gets it.
        tokio::spawn(running.with_upgrades());
        Ok(sender.send_request(request).await?)
    }
}

fn roots(authority: &str) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(authority.as_bytes()).context("the authority of Drover's certificate cannot be read")?;
    roots.add(root).context("the authority of Drover's certificate is no certificate of an authority")?;
    Ok(roots)
}

async fn whole(answer: Response<Incoming>) -> anyhow::Result<(StatusCode, Bytes)> {
    let status = answer.status();
    let body = Limited::new(answer.into_body(), LONGEST).collect().await.map_err(|error| anyhow!(error))?;
    Ok((status, body.to_bytes()))
}

fn refused(status: StatusCode, body: &[u8]) -> AskError {
    let problem: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |field: &str| problem[field].as_str().map(str::to_owned);
    match text("code") {
        Some(code) if status.is_client_error() => AskError::Refused { code, detail: text("detail").unwrap_or_default() },
        _ => AskError::Broken(anyhow!("it answers {status} {}", text("detail").unwrap_or_default())),
    }
}
