//! A TCP proxy that can be cut: between a service and Postgres, or between two services.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Forwards connections until cut. Dropping it ends everything.
#[derive(Debug)]
pub struct ChaosProxy {
    address: SocketAddr,
    cut: watch::Sender<bool>,
    _stop: DropGuard,
}

impl ChaosProxy {
    /// Listens on a free loopback port and forwards to `upstream`.
    pub async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a loopback port is free");
        let address = listener.local_addr().expect("it was just bound");
        let (cut, state) = watch::channel(false);
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(accept(listener, upstream, state)));
        Self { address, cut, _stop: stop.drop_guard() }
    }

    /// Where to connect instead of the upstream.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Breaks every connection in mid-sentence and refuses new ones.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Lets connections through again.
    pub fn restore(&self) {
        self.cut.send_replace(false);
    }
}

async fn accept(listener: TcpListener, upstream: SocketAddr, state: watch::Receiver<bool>) {
    // Aborts its tasks when this future is dropped.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((mut client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let mut state = state.clone();
        if *state.borrow() {
            continue;
        }
        connections.spawn(async move {
            let Ok(mut server) = TcpStream::connect(upstream).await else {
                return;
            };
            tokio::select! {
                _ = copy_bidirectional(&mut client, &mut server) => {}
                _ = state.wait_for(|cut| *cut) => {}
            }
        });
    }
}
