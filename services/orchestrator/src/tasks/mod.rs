//! Background tasks: level-triggered, without input, woken by a signal or a period.

mod batch;
pub mod follow;
pub mod observe;
pub mod retire;
pub mod sweep;
mod wake;

use drover_service::{Common, FeedReader};

use tokio::sync::mpsc::UnboundedReceiver;

use crate::Config;
use crate::app::App;

/// Starts all tasks; they run until the service ends.
pub fn spawn(app: &App, common: &Common, config: &Config, woken: UnboundedReceiver<String>) {
    let synchronizer = common.peer("resource-synchronizer", &common.peers.resource_synchronizer);
    let bindings = FeedReader::new(synchronizer, "/internal/feeds/bindings");
    common.readiness.heard("resource-synchronizer", bindings.contact());
    common.spawn(follow::run(app.clone(), bindings));
    common.spawn(observe::run(app.clone(), config.prometheus.clone()));
    common.spawn(retire::run(app.clone()));
    common.spawn(sweep::run(app.clone()));
    common.spawn(wake::run(app.engine.clone(), woken));
}
