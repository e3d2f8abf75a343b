//! HTTP servers on free ports.

use std::net::SocketAddr;

use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A router served on loopback until the value is dropped.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    _stop: DropGuard,
}

impl HttpServer {
    /// Serves `router` on a free port.
    pub async fn start(router: axum::Router) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a loopback port is free");
        let address = listener.local_addr().expect("it was just bound");
        let stop = CancellationToken::new();
        tokio::spawn(axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned()).into_future());
        Self { address, _stop: stop.drop_guard() }
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of `path`, which must start with a slash.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}
