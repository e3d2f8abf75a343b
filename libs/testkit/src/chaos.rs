//! A TCP proxy whose connections can be cut, for use between a service and Postgres or between two services.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

#[derive(Clone, Copy, Debug)]
struct ProxyState {
    cut: bool,
    upstream: SocketAddr,
}

/// Forwards connections until they are cut. Dropping it closes all of them.
#[derive(Debug)]
pub struct ChaosProxy {
    address: SocketAddr,
    state: watch::Sender<ProxyState>,
    refused: Arc<AtomicU64>,
    _stop: DropGuard,
}

impl ChaosProxy {
    /// Listens on a free loopback port and forwards to `upstream`.
    pub async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a loopback port is free");
        let address = listener.local_addr().expect("it was just bound");
        let (state, seen) = watch::channel(ProxyState { cut: false, upstream });
        let refused = Arc::<AtomicU64>::default();
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(accept(listener, seen, refused.clone())));
        Self { address, state, refused, _stop: stop.drop_guard() }
    }

    /// The address to connect to instead of the upstream.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes every connection at once and refuses new ones.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.cut = true);
    }

    /// Lets connections through again.
    pub fn restore(&self) {
        self.state.send_modify(|state| state.cut = false);
    }

    /// Forwards new connections to another upstream (a server that came back on another port).
    pub fn retarget(&self, upstream: SocketAddr) {
        self.state.send_modify(|state| state.upstream = upstream);
    }

    /// How many connections were refused so far, because the proxy was cut or the upstream did not listen. It grows when a client has noticed.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, state: watch::Receiver<ProxyState>, refused: Arc<AtomicU64>) {
    // Dropping the set with this future aborts its tasks.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((mut client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let mut state = state.clone();
        let ProxyState { cut, upstream } = *state.borrow();
        if cut {
            refused.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let refused = refused.clone();
        connections.spawn(async move {
            let Ok(mut server) = TcpStream::connect(upstream).await else {
                refused.fetch_add(1, Ordering::Relaxed);
                return;
            };
            tokio::select! {
                _ = copy_bidirectional(&mut client, &mut server) => {}
                _ = state.wait_for(|state| state.cut) => {}
            }
        });
    }
}
