//! How a member is spoken to: the layers that kube itself would choose, on connections of another size.
//!
//! There are five to seven connections to each member, watches above all, and a fleet has a thousand. As kube builds them each may keep
//! 400 KiB of what it has read, and all that were ever needed at once stay open for 90 s.

use std::time::Duration;

use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::{Client, Config};
use tower::{BoxError, ServiceBuilder};

/// Bytes of an answer that are read at once, and as many as its head may have.
const BUFFER: usize = 16 << 10;
/// Connections that nobody uses which are kept for the next request, and for how long.
const IDLE: (usize, Duration) = (4, Duration::from_secs(20));

/// A client for one member. Proxies and retries of the configuration do not count.
///
/// # Errors
/// A certificate or key that cannot be used.
pub fn client(config: &Config) -> Result<Client, kube::Error> {
    // Of the first client; for later ones it is there.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(IDLE.0)
        .pool_idle_timeout(IDLE.1)
        .http1_max_buf_size(BUFFER)
        .build(connector);
    let layers = ServiceBuilder::new().layer(config.base_uri_layer()).option_layer(config.auth_layer()?);
    let service = layers.map_err(BoxError::from).service(http);
    Ok(ClientBuilder::new(service, &config.default_namespace).build())
}
