//! Background tasks. Level-triggered: each reads the current state when it is woken, by a signal or periodically.

mod agent_metrics;
mod gauges;
mod link_metrics;
mod links;
mod metrics;
mod reports;
mod storage;
mod watch;
mod workers;

use agent_metrics::AgentMetrics;
use drover_service::{Common, OnFailure};
use link_metrics::LinkMetrics;
use tokio::net::TcpListener;

use crate::app::App;

/// Starts the background tasks. Agents of clusters are taken from `agents`.
pub fn spawn(app: &App, common: &Common, agents: Option<TcpListener>) {
    if let (Some(listener), Some(taken)) = (agents, &app.agents) {
        let (of, taken, own) = (app.clone(), taken.clone(), common.clone());
        common.spawn_once("agents-of-clusters", move |_| links::listen(of, listener, taken, own));
        let (of, metrics) = (app.clone(), LinkMetrics::register(common));
        common.spawn("links", OnFailure::Restart, move |task| links::check(of.clone(), metrics.clone(), task));
    }
    let (app, of, metrics) = (app.clone(), common.clone(), AgentMetrics::register(common));
    common.spawn("follow-registrations", OnFailure::Restart, move |task| workers::run(app.clone(), of.clone(), metrics.clone(), task));
}
