//! The ports of routes: opened and closed as the table says, or taken over from another process.
//!
//! Invariant: a port stays open as long as a route has it, whatever else of the table changes. When another process has taken the ports
//! over, this one accepts nothing more, and its connections end by themselves.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use drover_api::traffic::RouteProtocol;
use drover_listener::{Limits, OpenConnection, OpenConnections};
use drover_proxy::serve::{ListenerStage, connection};
use drover_service::TaskHandle;
use prometheus_client::metrics::counter::Counter;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::http::Gate;
use crate::state::DataPath;
use crate::tcp;
use crate::tls::Certificates;

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: u32 = 1024;
/// Pause before a port that could not be opened is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// Pause after a failed accept (for example, when no file descriptor is left).
const BREATH: Duration = Duration::from_millis(100);
/// Time for the handshake of TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The ports of a process.
pub struct Listeners {
    path: Arc<DataPath>,
    certificates: Arc<Certificates>,
    acceptor: TlsAcceptor,
    address: IpAddr,
    reuse_port: bool,
    ports: Mutex<Ports>,
    stage: watch::Sender<ListenerStage>,
    /// The connections of clients.
    connections: TaskTracker,
    cap: Cap,
}

/// How many connections of clients there may be.
#[derive(Debug)]
pub struct Cap {
    open: OpenConnections,
    limits: Limits,
    refused: Counter,
}

impl Cap {
    /// This many in all ports together, and this many of one address; those that are refused are counted.
    pub fn new(total: usize, per_address: Option<usize>, refused: Counter) -> Self {
        let limits = Limits { total, per_address: per_address.unwrap_or(usize::MAX), ..Limits::default() };
        Self { open: OpenConnections::default(), limits, refused }
    }

    fn take(&self, client: SocketAddr) -> Option<OpenConnection> {
        let place = self.open.take(Some(client.ip()), self.limits);
        if place.is_none() && self.refused.inc() == 0 {
            tracing::warn!(%client, "a connection to a route was closed because of a limit of connections; further ones are only counted");
        }
        place
    }
}

#[derive(Default)]
struct Ports {
    open: BTreeMap<u16, OpenPort>,
    /// Sockets from another process, until the ports are opened for the first time.
    taken_over: BTreeMap<u16, std::net::TcpListener>,
    problems: BTreeMap<u16, String>,
    given_away: bool,
}

struct OpenPort {
    socket: std::net::TcpListener,
    protocol: RouteProtocol,
    /// Dropping it ends the accepting, not the connections.
    _accepting: AbortOnDropHandle<()>,
}

impl Listeners {
    /// No port is open yet; those in `taken_over` are open already and are used when a route has them.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn new(
        path: Arc<DataPath>,
        certificates: Arc<Certificates>,
        (address, reuse_port): (IpAddr, bool),
        cap: Cap,
        taken_over: BTreeMap<u16, std::net::TcpListener>,
    ) -> Result<Arc<Self>> {
        let acceptor = certificates.acceptor()?;
        let ports = Mutex::new(Ports { taken_over, ..Ports::default() });
        let (stage, connections) = (watch::Sender::default(), TaskTracker::new());
        Ok(Arc::new(Self { path, certificates, acceptor, address, reuse_port, ports, stage, connections, cap }))
    }

    /// Opens and closes ports for ever.
    pub async fn follow(self: Arc<Self>, task: TaskHandle) {
        let mut changes = self.path.changes();
        loop {
            task.active();
            self.settle();
            // A port that is in use may become free.
            let _ = timeout(RETRY, changes.changed()).await;
        }
    }

    /// Opens the ports that the table has, and closes others.
    pub fn settle(self: &Arc<Self>) {
        let compiled = self.path.compiled();
        let mut ports = self.ports();
        if ports.given_away {
            return;
        }
        ports.open.retain(|port, open| compiled.ports.get(port).is_some_and(|wanted| wanted.protocol == open.protocol));
        ports.problems.retain(|port, _| compiled.ports.contains_key(port));
        for (port, wanted) in &compiled.ports {
            if ports.open.contains_key(port) {
                continue;
            }
            let opened = match ports.taken_over.remove(port) {
                Some(socket) => Ok(socket),
                None => self.open(*port),
            };
            match opened.and_then(|socket| self.accept(*port, wanted.protocol, socket)) {
                Ok(open) => {
                    ports.problems.remove(port);
                    ports.open.insert(*port, open);
                    tracing::info!(port, protocol = wanted.protocol.as_str(), "a port of routes is open");
                }
                Err(error) => {
                    let text = format!("port {port} cannot be opened on {}: {error:#}", self.address);
                    if ports.problems.insert(*port, text.clone()).as_ref() != Some(&text) {
                        tracing::warn!("{text}");
                    }
                }
            }
        }
        // Nobody would accept on the others.
        ports.taken_over.clear();
    }

    /// Completes when no client is connected any more, after nothing more was accepted.
    pub async fn ended(&self) {
        self.connections.close();
        self.connections.wait().await;
    }

    fn open(&self, port: u16) -> Result<std::net::TcpListener> {
        let socket = if self.address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        if self.reuse_port {
            socket.set_reuseport(true)?;
        }
        socket.bind(SocketAddr::new(self.address, port))?;
        Ok(socket.listen(BACKLOG)?.into_std()?)
    }

    fn accept(self: &Arc<Self>, port: u16, protocol: RouteProtocol, socket: std::net::TcpListener) -> Result<OpenPort> {
        let copy = socket.try_clone().context("the socket cannot be shared")?;
        copy.set_nonblocking(true)?;
        let listener = TcpListener::from_std(copy)?;
        let accepting = AbortOnDropHandle::new(tokio::spawn(self.clone().accepting(listener, port, protocol)));
        Ok(OpenPort { socket, protocol, _accepting: accepting })
    }

    async fn accepting(self: Arc<Self>, listener: TcpListener, port: u16, protocol: RouteProtocol) {
        let gate = Arc::new(Gate { path: self.path.clone(), port, secure: protocol == RouteProtocol::Https });
        loop {
            match listener.accept().await {
                Ok((stream, client)) => {
                    let Some(place) = self.cap.take(client) else {
                        if protocol == RouteProtocol::Http {
                            drover_listener::refuse::<TcpListener>(&stream);
                        }
                        continue;
                    };
                    let (of, gate) = (self.clone(), gate.clone());
                    self.connections.spawn(async move {
                        of.serve(stream, client, protocol, gate).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(port, %error, "cannot accept a connection");
                    tokio::time::sleep(BREATH).await;
                }
            }
        }
    }

    async fn serve(&self, stream: TcpStream, client: SocketAddr, protocol: RouteProtocol, gate: Arc<Gate>) {
        let _ = stream.set_nodelay(true); // without it requests are slower, but not wrong
        match protocol {
            RouteProtocol::Tcp => tcp::carry(&self.path, gate.port, stream).await,
            RouteProtocol::Http => connection(stream, client, gate, self.stage.subscribe()).await,
            RouteProtocol::Https => {
                if let Ok(Ok(stream)) = timeout(HANDSHAKE, self.acceptor.accept(stream)).await {
                    connection(stream, client, gate, self.stage.subscribe()).await;
                }
            }
        }
    }

    /// Why clients cannot connect to a port, or get no certificate for a host; none: they can.
    pub fn problem(&self, port: u16, protocol: RouteProtocol, host: Option<&str>) -> Option<String> {
        let missing = || (protocol == RouteProtocol::Https).then(|| self.certificates.missing(host)).flatten();
        self.ports().problems.get(&port).cloned().or_else(missing)
    }

    /// Copies of the sockets that are open, for another process.
    ///
    /// # Errors
    /// A socket cannot be copied.
    pub fn sockets(&self) -> std::io::Result<Vec<(u16, std::net::TcpListener)>> {
        self.ports().open.iter().map(|(port, open)| Ok((*port, open.socket.try_clone()?))).collect()
    }

    /// Another process accepts now: this one accepts nothing more, and asks its clients to go there.
    pub fn give_away(&self) {
        let mut ports = self.ports();
        ports.given_away = true;
        ports.open.clear();
        drop(ports);
        self.advance(ListenerStage::Leaving);
    }

    /// Moves all connections on to a later stage.
    pub fn advance(&self, to: ListenerStage) {
        self.stage.send_if_modified(|stage| *stage < to && std::mem::replace(stage, to) < to);
    }

    fn ports(&self) -> MutexGuard<'_, Ports> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
