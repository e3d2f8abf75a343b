//! The listener for agents of clusters that Drover cannot reach, and the check that its connections are still accepted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_link::keys::{self, Shown};
use drover_listener::{Limits, answer, http1};
use drover_service::{Common, TaskHandle};
use prometheus_client::metrics::counter::Counter;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tower_http::add_extension::AddExtension;

use super::link_metrics::LinkMetrics;
use crate::app::{App, OpenLinks, TakesAgents};
use crate::http::link_agents;

/// A cluster that was removed has no row any more, and another process may have revoked an agent.
const CHECK: Duration = Duration::from_secs(1);
/// Pause between two looks whether the authority is due.
const LOOK: Duration = Duration::from_secs(60);
/// Connections of one address that are not links yet: many clusters may be behind one NAT.
const PER_ADDRESS: usize = 1024;

/// Ends all links with the listener.
struct Ending(OpenLinks);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Serves agents until the service ends.
///
/// # Errors
/// The listener cannot be used any longer.
pub async fn listen(app: App, listener: TcpListener, agents: Arc<TakesAgents>, common: Common) -> anyhow::Result<()> {
    let _ending = Ending(app.links.clone());
    let limits = Limits { per_address: PER_ADDRESS, ..Limits::from(common.connections) };
    let (refused, stop) = (Counter::<u64>::default(), common.shutdown.clone());
    common.metrics.register(|registry| {
        registry.register("link_connections_refused", "Connections of agents closed because of a limit", refused.clone());
    });
    let (http, router) = (http1(limits), link_agents::router(app));
    let accepted = drover_listener::accept(listener, limits, &refused, stop.cancelled(), |stream, from| {
        let (http, router, stop, authority) = (http.clone(), router.clone(), stop.clone(), agents.authority());
        async move {
            let tls = match authority.listener() {
                Ok(tls) => TlsAcceptor::from(tls),
                Err(error) => return tracing::error!("the listener of links has no certificate: {error:#}"),
            };
            let handshake = tokio::time::timeout(limits.head, tls.accept(stream));
            match stop.run_until_cancelled(handshake).await {
                Some(Ok(Ok(stream))) => {
                    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| keys::read_certificate(chain.first()?).ok());
                    let service = AddExtension::<_, Option<Shown>>::new(router, shown);
                    if let Err(error) = answer(&http, stream, service, stop).await {
                        tracing::debug!(%error, ?from, "the connection of an agent broke off");
                    }
                }
                Some(Ok(Err(error))) => tracing::debug!(%error, ?from, "an agent and this service did not agree on TLS"),
                // It took too long, or the service ends.
                Some(Err(_)) | None => {}
            }
        }
    });
    Ok(accepted.await?)
}

/// Until the service ends, breaks connections whose agents are not accepted any more, shows how the others are, and replaces the authority
/// when it is time.
pub async fn check(app: App, metrics: LinkMetrics, task: TaskHandle) {
    let mut changes = app.links.changes();
    let mut looks = None;
    loop {
        task.active();
        changes.borrow_and_update();
        if let Err(error) = app.end_earlier_links(&app.links.members()).await {
            tracing::warn!(%error, "it cannot be checked whether links are still accepted");
        }
        let mut shown = Vec::new();
        for (key, id) in app.fleet.linked() {
            let health = app.links.health(id);
            app.fleet.set_link(&key, id, health.clone().map(Into::into).unwrap_or_default());
            shown.push((key, health));
        }
        metrics.show(&shown, app.agents.as_ref().map(|agents| agents.authority().until()));
        if looks.is_none_or(|at| Instant::now() >= at) {
            looks = Some(Instant::now() + LOOK);
            if let Err(error) = app.keep_authority().await {
                tracing::warn!("the authority of links is due and was not replaced: {error:#}");
            }
        }
        let _ = tokio::time::timeout(CHECK, changes.changed()).await;
    }
}
