//! Listening, and an orderly end: no new requests are accepted, running ones finish, then the tasks end.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use clap::Args;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connections::accept;
use crate::{Common, OnFailure, Tasks, config};

/// A running service.
pub struct Running {
    /// Address it listens on.
    pub addr: SocketAddr,
    /// Cancel it to end the service.
    pub shutdown: CancellationToken,
    /// Its supervised tasks.
    pub tasks: Tasks,
    tracker: TaskTracker,
}

impl Running {
    /// Time limit for requests and tasks to end.
    const GRACE: Duration = Duration::from_secs(10);

    /// Waits until the service has ended, after [`Running::shutdown`] was cancelled.
    ///
    /// # Errors
    /// It ended because a task failed that cannot be restarted.
    pub async fn wait(self) -> anyhow::Result<()> {
        self.shutdown.cancelled().await;
        if tokio::time::timeout(Self::GRACE, self.tracker.wait()).await.is_err() {
            tracing::warn!(addr = %self.addr, tasks = self.tracker.len(), "some tasks did not end in time and are dropped");
        }
        self.tasks.fatal().map_or(Ok(()), |failure| Err(anyhow::anyhow!("{failure}")))
    }

    /// Ends it and waits.
    pub async fn stop(self) {
        self.shutdown.cancel();
        // A failed task has been logged.
        let _ = self.wait().await;
    }
}

/// Opens the listening socket, or takes the one that was reserved.
///
/// # Errors
/// The address is taken, or it is not a loopback address and there is no API token.
pub async fn bind(addr: SocketAddr, common: &Common) -> anyhow::Result<TcpListener> {
    if !addr.ip().is_loopback() && common.api_token.is_none() {
        anyhow::bail!(
            "{addr} is not a loopback address: set --api-token-file (or DROVER_API_TOKEN); without a token only loopback is served"
        );
    }
    let listener = match common.reserved.take(addr) {
        Some(open) => open.set_nonblocking(true).and_then(|()| TcpListener::from_std(open)),
        None => TcpListener::bind(addr).await,
    };
    listener.map_err(|error| anyhow::anyhow!("cannot listen on {addr}: {error}"))
}

/// Serves until the service's shutdown token is cancelled; the end waits for everything on `common.tracker`. A listener that fails
/// ends the process.
pub fn serve(listener: TcpListener, router: Router, common: &Common) -> Running {
    let addr = listener.local_addr().expect("a bound socket has an address");
    let (shutdown, tracker, tasks) = (common.shutdown.clone(), common.tracker.clone(), common.tasks.clone());
    let (stop, limits, metrics) = (shutdown.clone(), common.connections, common.metrics.clone());
    // Browsers would ask their users for a certificate.
    let tls = common.tls.as_ref().map(|tls| tls.server(common.service != "gateway").expect("the provider of cryptography knows TLS"));
    if let Some(tls) = common.tls.clone() {
        let ending = shutdown.clone();
        common.spawn("certificates", OnFailure::Restart, move |_| {
            let (tls, stop) = (tls.clone(), ending.clone());
            async move { tls.follow(stop).await }
        });
    }
    // Not stopped by the service's shutdown, because it ends gracefully then.
    tasks.spawn_once(&tracker, CancellationToken::new(), "http-server", move |_| async move {
        tokio::select! {
            result = accept(listener, router, limits, tls, &metrics, stop.clone()) => result,
            // A client that never ends its request does not delay the end any further.
            () = async { stop.cancelled().await; tokio::time::sleep(Duration::from_secs(5)).await } => Ok(()),
        }
    });
    tracker.close();
    tracing::info!(%addr, "{} is listening", common.service);
    Running { addr, shutdown, tasks, tracker }
}

/// The `main` function of a service: reads the settings, starts telemetry and the service, and ends it in order at SIGTERM and Ctrl-C.
/// Exit code 0 after a signal, 1 when the service cannot start or a task failed that cannot be restarted, 2 for wrong settings.
pub fn run<C: Args, F: Future<Output = anyhow::Result<Running>>>(service: &'static str, start: impl FnOnce(C, Common) -> F) -> ExitCode {
    let (settings, config) = config::parse::<C>(service);
    let runtime = tokio::runtime::Runtime::new().expect("the machine has threads and an event queue left");
    let result = runtime.block_on(async {
        let common = settings.common(service)?;
        let root = common.shutdown.clone();
        let telemetry = common.telemetry.clone();
        // Runs once and has no state: nothing to supervise.
        tokio::spawn(async move {
            signalled().await;
            root.cancel()
        });
        let ended = start(config, common).await?.wait().await;
        telemetry.flush().await;
        ended
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // There is no log yet when telemetry could not be started.
            if tracing::dispatcher::has_been_set() {
                tracing::error!("{service} failed: {error:#}");
            } else {
                eprintln!("{service} failed: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Resolves at the first SIGTERM or Ctrl-C.
pub async fn signalled() {
    use tokio::signal::unix::{SignalKind, signal};
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! { () = terminated => {}, _ = tokio::signal::ctrl_c() => {} }
}
