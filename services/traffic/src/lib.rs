//! The data path of routes: users' requests to the pods of an app, wherever they run.
//!
//! It has no database and decides nothing of moves. Which copies of an app get requests, and with which weight, is told by orchestrator
//! (feed `routes`), where their pods are by resource-synchronizer (feed `endpoints`). What it does with that is in its own feed `traffic`.
//!
//! ```text
//! feeds ── Table (also on disk) ── Compiled ── Gate (HTTP), carry (TCP) ──▶ pods
//! ```
//! Invariants: the last table is served whatever else of Drover is down, also after a restart; a request is given to a second endpoint
//! only if the first never read from it, or if its method allows that; a port that a route has stays open through a change of process.

mod config;
mod disk;
pub mod failpoint;
mod follow;
pub mod handover;
mod http;
mod listeners;
mod probe;
mod report;
pub mod route;
pub mod state;
pub mod table;
mod tcp;
mod tls;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use drover_api::traffic::RouteReport;
use drover_proxy::serve::ListenerStage;
use drover_service::{Common, FeedHub, FeedReader, OnFailure, Running};
use prometheus_client::metrics::counter::Counter;
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;

pub use config::Config;
use disk::Disk;
use listeners::{Cap, Listeners};
use state::DataPath;
use tls::Certificates;

/// Idle connections stay open this long after their clients were asked to go elsewhere, because a request may be on its way.
const LATE: Duration = Duration::from_secs(5);

/// Starts a process of the data path. If another one uses the same directory, its ports are taken over.
///
/// # Errors
/// The directory cannot be used, or the address cannot be listened on.
pub async fn start(config: Config, common: Common) -> Result<Running> {
    let common = common.scoped("traffic");
    let disk = Disk::new(&config.dir).with_context(|| format!("cannot use {}", config.dir.display()))?;
    let from = config.dir.clone();
    let taken = tokio::task::spawn_blocking(move || handover::take(&from)).await?;
    let mut taken = taken.context("the process that has the ports does not hand them over")?;
    if taken.is_some() {
        failpoint::reached("traffic/take/taken");
    }
    let mut sockets = taken.as_mut().map(|taken| std::mem::take(&mut taken.sockets)).unwrap_or_default();

    let path = DataPath::new(disk.read());
    let certificates = Certificates::new(config.tls_dir.clone());
    let internal = sockets.remove(&handover::INTERNAL);
    let at = (config.address, config.reuse_port);
    let refused = Counter::default();
    let counted = refused.clone();
    common
        .metrics
        .register(|registry| registry.register("route_connections_refused", "Connections to routes closed because of a limit", counted));
    let cap = Cap::new(config.max_route_connections, config.max_route_connections_per_address, refused);
    let listeners = Listeners::new(path.clone(), certificates.clone(), at, cap, sockets)?;
    listeners.settle();

    let hub = FeedHub::<RouteReport>::new();
    follow(&common, &path, &disk);
    let (of, told) = ((path.clone(), listeners.clone()), hub.clone());
    common.spawn("report", OnFailure::Restart, move |task| report::run(of.0.clone(), of.1.clone(), told.clone(), task));
    let of = path.clone();
    common.spawn("probe", OnFailure::Restart, move |task| probe::run(of.clone(), task));
    let of = listeners.clone();
    common.spawn("listen", OnFailure::Restart, move |task| of.clone().follow(task));
    common.spawn("certificates", OnFailure::Restart, move |task| certificates.clone().follow(task));

    // The API has an end of its own: a process that was replaced leaves it to the next one, and goes on following the feeds.
    let api = Common { shutdown: common.shutdown.child_token(), ..common.clone() };
    let listener = match internal {
        Some(socket) => {
            socket.set_nonblocking(true)?;
            tokio::net::TcpListener::from_std(socket)?
        }
        None => drover_service::bind(config.listen, &api).await?,
    };
    // A copy, because tokio's socket is given to the server.
    let listener = listener.into_std()?;
    let internal = listener.try_clone()?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut running = drover_service::serve(listener, drover_service::router(routes(&hub), &api), &api);
    running.shutdown = common.shutdown.clone();

    if let Some(taken) = taken {
        tracing::info!("took over the ports of another process");
        // It is told by the end of the connection, too.
        let _ = taken.serves();
        failpoint::reached("traffic/take/served");
    }
    end(&common, &listeners);
    let (of, internal) = (listeners.clone(), Arc::new(internal));
    let sockets = move || {
        // The next process closes the ports of routes that it does not know, and it begins with the table on disk.
        if let Err(error) = disk.write(|| path.table().used()) {
            tracing::error!(file = %disk.file().display(), %error, "the table of routes cannot be stored for the next process");
        }
        let mut sockets = of.sockets()?;
        sockets.push((handover::INTERNAL, internal.try_clone()?));
        Ok(sockets)
    };
    match handover::listen(&config.dir) {
        Ok(control) => be_replaced(&common, &listeners, control, sockets, &api.shutdown, Duration::from_secs(config.drain_seconds)),
        // It serves all the same, for example if the path is too long for a Unix socket.
        Err(error) => tracing::warn!(%error, "the ports of this process cannot be handed over to a next one"),
    }
    Ok(running)
}

fn follow(common: &Common, path: &Arc<DataPath>, disk: &Disk) {
    let orchestrator = common.peer("orchestrator", &common.peers.orchestrator);
    let synchronizer = common.peer("resource-synchronizer", &common.peers.resource_synchronizer);
    let routes = FeedReader::new(orchestrator, "/internal/feeds/routes");
    let endpoints = FeedReader::new(synchronizer, "/internal/feeds/endpoints");
    let of = path.clone();
    common.spawn("follow-routes", OnFailure::Restart, move |task| follow::routes(of.clone(), routes.for_task(task)));
    let of = path.clone();
    common.spawn("follow-endpoints", OnFailure::Restart, move |task| follow::endpoints(of.clone(), endpoints.for_task(task)));
    let (of, disk) = (path.clone(), disk.clone());
    common.spawn("store", OnFailure::Restart, move |task| follow::store(of.clone(), disk.clone(), task));
}

/// At the end of the process, connections that are idle are closed, and the others end their requests.
fn end(common: &Common, listeners: &Arc<Listeners>) {
    let (shutdown, listeners) = (common.shutdown.clone(), listeners.clone());
    // The end of the process waits for it.
    common.tracker.spawn(async move {
        shutdown.cancelled().await;
        listeners.give_away();
        listeners.advance(ListenerStage::Closing);
        listeners.ended().await;
    });
}

/// Gives the ports to the next process when it comes, and ends this one when its connections have ended.
fn be_replaced(
    common: &Common,
    listeners: &Arc<Listeners>,
    control: UnixListener,
    sockets: impl Fn() -> std::io::Result<Vec<(u16, TcpListener)>> + Clone + Send + 'static,
    api: &CancellationToken,
    drain: Duration,
) {
    let (listeners, api, shutdown) = (listeners.clone(), api.clone(), common.shutdown.clone());
    common.spawn_once("hand-over", move |_| async move {
        tokio::select! {
            given = handover::give(control, sockets) => given.context("the ports cannot be handed over")?,
            () = shutdown.cancelled() => return anyhow::Ok(()),
        }
        tracing::info!("another process has taken over the ports; connections may go on for {} s", drain.as_secs());
        api.cancel();
        listeners.give_away();
        tokio::time::sleep(LATE.min(drain)).await;
        listeners.advance(ListenerStage::Closing);
        let _ = tokio::time::timeout(drain, listeners.ended()).await;
        shutdown.cancel();
        Ok(())
    });
}

/// Routes of the process.
fn routes(hub: &FeedHub<RouteReport>) -> OpenApiRouter {
    OpenApiRouter::new().routes(hub.route("/internal/feeds/traffic", "traffic_feed"))
}

/// The OpenAPI document.
pub fn openapi() -> utoipa::openapi::OpenApi {
    drover_service::openapi::document("traffic", routes(&FeedHub::new()))
}
