//! The HTTP client of a member: the layers that kube itself would use, on connections with smaller buffers.
//!
//! At rest there are five to seven connections to each member, most of them watches, and a fleet has a thousand members. A connection as kube
//! builds it may keep a read buffer of 400 KiB, and unused connections stay open for 90 s.

use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, Write};
use hyper_rustls::builderstates::WantsProtocols1;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::{Client, Config};
use rustls::client::Resumption;
use tower::filter::FilterLayer;
use tower::{BoxError, Service, ServiceBuilder};

use crate::acting;
use crate::reach::{PermittedResolver, Reach};

/// Read buffer of a connection in bytes, which is also the largest head of an answer.
const BUFFER: usize = 8 << 10;
/// How many unused connections are kept for later requests. A new one costs both sides a TLS handshake, so these are as many as the bindings of a
/// member that resource-synchronizer writes at once (`WRITES` of its worker).
const IDLE: usize = 16;
/// How long an unused connection is kept.
const IDLE_FOR: Duration = Duration::from_secs(20);

/// How many TLS sessions are kept for resumption.
const SESSIONS: usize = 4;

/// Connects to addresses within `reach`.
pub fn direct(reach: Reach) -> HttpConnector<PermittedResolver> {
    let mut tcp = HttpConnector::new_with_resolver(PermittedResolver::new(reach));
    tcp.enforce_http(false);
    tcp
}

/// A client for one member, whose API server is reached by `way`. Proxies and retries in the configuration are ignored.
///
/// # Errors
/// When a certificate or key cannot be used.
pub fn client<W>(config: &Config, way: W) -> Result<Client, kube::Error>
where
    W: Service<Uri, Response: Connection + Read + Write + Send + Unpin + 'static, Error: Into<BoxError>, Future: Send + 'static>
        + Clone
        + Send
        + Sync
        + 'static,
{
    // Fails for every client but the first, because the provider is installed then.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut connector = TimeoutConnector::new(tls(config)?.enable_http1().wrap_connector(way));
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(IDLE)
        .pool_idle_timeout(IDLE_FOR)
        .http1_max_buf_size(BUFFER)
        .build(connector);
    let acts_as = config.auth_info.impersonate.clone();
    let one_name = FilterLayer::new(move |request| acting::one_name(acts_as.as_deref(), request));
    // The last one adds the impersonation headers: without them a credential would act with all its own rights.
    let layers = ServiceBuilder::new()
        .layer(one_name)
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?);
    let service = layers.map_err(BoxError::from).service(http);
    Ok(ClientBuilder::new(service, &config.default_namespace).build())
}

/// Like kube's own, but with fewer sessions: rustls reserves memory for the sessions of 256 servers, and this client has one server.
fn tls(config: &Config) -> Result<HttpsConnectorBuilder<WantsProtocols1>, kube::Error> {
    let mut tls = config.rustls_client_config()?;
    tls.resumption = Resumption::in_memory_sessions(SESSIONS);
    let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    let Some(name) = &config.tls_server_name else { return Ok(https) };
    let name = name.clone().try_into().map_err(|error| kube::Error::Service(Box::new(error)))?;
    Ok(https.with_server_name_resolver(FixedServerNameResolver::new(name)))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use crate::clients::connect;
    use crate::kubeconfig::vet;
    use crate::reach::Reach;

    #[tokio::test]
    async fn client_sends_whom_the_kubeconfig_acts_as() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let vetted = vet(&format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: 'http://{}'}}}}]\n\
             users: [{{name: u, user: {{token: t, as: jane, as-uid: '7', as-groups: [dev, ops], as-user-extra: {{scope: [view]}}}}}}]\n",
            listener.local_addr().unwrap()
        ));
        let client = connect(&vetted.unwrap(), Reach::Anywhere).await.unwrap();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
            String::from_utf8(head).unwrap().to_ascii_lowercase()
        };
        let (head, answer) = tokio::join!(server, client.request_text(http::Request::get("/version").body(Vec::new()).unwrap()));
        answer.unwrap();
        for header in [
            "impersonate-user: jane",
            "impersonate-uid: 7",
            "impersonate-group: dev",
            "impersonate-group: ops",
            "impersonate-extra-scope: view",
        ] {
            assert!(head.contains(&format!("\r\n{header}\r\n")), "{header} is not in {head}");
        }
    }
}
