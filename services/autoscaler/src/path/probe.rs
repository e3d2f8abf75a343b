//! Whether an app is ready: it accepts connections, or answers on a path.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::net::TcpStream;

/// A probe that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(1);

/// How to probe.
#[derive(Clone, Debug)]
pub struct Probe {
    path: Option<String>,
    client: Client<HttpConnector, Empty<Bytes>>,
}

impl Probe {
    /// Probes with a GET of `path`, or by connecting only.
    pub fn new(path: Option<String>) -> Self {
        Self { path, client: Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build_http() }
    }

    /// A probe of another path that shares the connections.
    pub fn with_path(&self, path: String) -> Self {
        Self { path: Some(path), client: self.client.clone() }
    }

    /// Probes once.
    ///
    /// # Errors
    /// If the app is not ready, with the reason.
    pub async fn ask(&self, app: SocketAddr) -> Result<(), String> {
        tokio::time::timeout(LIMIT, self.once(app)).await.map_err(|_| format!("no answer within {LIMIT:?}"))?
    }

    async fn once(&self, app: SocketAddr) -> Result<(), String> {
        let Some(path) = &self.path else {
            return TcpStream::connect(app).await.map(drop).map_err(|error| error.to_string());
        };
        let uri = Uri::try_from(format!("http://{app}{path}")).map_err(|error| error.to_string())?;
        let request =
            Request::get(uri).header(header::USER_AGENT, "kube-probe/drover").body(Empty::new()).map_err(|error| error.to_string())?;
        let response = self.client.request(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        if status.is_success() || status.is_redirection() { Ok(()) } else { Err(format!("{path} answers {status}")) }
    }
}
