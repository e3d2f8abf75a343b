//! Background tasks. Level-triggered: each reads the current state when it is woken, by a signal or periodically.

mod agent_metrics;
mod metrics;
mod reports;
mod storage;
mod watch;
mod workers;

use agent_metrics::AgentMetrics;
use drover_service::{Common, OnFailure};

use crate::app::App;

/// Starts the background tasks.
pub fn spawn(app: &App, common: &Common) {
    let (app, of, metrics) = (app.clone(), common.clone(), AgentMetrics::register(common));
    common.spawn("follow-registrations", OnFailure::Restart, move |task| workers::run(app.clone(), of.clone(), metrics.clone(), task));
}
