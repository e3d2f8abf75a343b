//! Background tasks: level-triggered, without input, woken by a signal or a period.

pub mod agents;
mod batch;
mod bounds;
pub mod claims;
pub mod clouds;
mod every;
mod extend;
pub mod follow;
mod hand_over;
pub mod observe;
mod reliefs;
pub mod retire;
pub mod sweep;
mod traffic;
mod wake;

use std::sync::Arc;

use drover_api::traffic::RouteReport;
use drover_service::{Common, FeedReader, OnFailure};
use tokio::sync::Mutex;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::Config;
use crate::app::App;
use crate::app::extension::Extension;

/// Starts all tasks; they run until the service ends. Each reads what it needs at every pass, so each may be restarted.
pub fn spawn(app: &App, common: &Common, config: &Config, woken: UnboundedReceiver<String>, reports: Vec<FeedReader<RouteReport>>) {
    let synchronizer = common.peer("resource-synchronizer", &common.peers.resource_synchronizer);
    let bindings = FeedReader::new(synchronizer, "/internal/feeds/bindings");
    common.readiness.heard("resource-synchronizer", bindings.contact());
    let (of, prometheus) = (app.clone(), config.prometheus.clone());
    common.spawn("observe", OnFailure::Restart, move |task| observe::run(of.clone(), prometheus.clone(), task));
    let of = app.clone();
    common.spawn("follow-bindings", OnFailure::Restart, move |task| follow::run(of.clone(), bindings.for_task(task)));
    let of = app.clone();
    common.spawn("retire", OnFailure::Restart, move |task| retire::run(of.clone(), task));
    let of = app.clone();
    common.spawn("sweep", OnFailure::Restart, move |task| sweep::run(of.clone(), task));
    let clusters = FeedReader::new(common.peer("cluster-manager", &common.peers.cluster_manager), "/internal/feeds/members");
    let (of, extension) = (app.clone(), Arc::<Mutex<Extension>>::default());
    let heard = extension.clone();
    common.spawn("follow-members", OnFailure::Restart, move |task| extend::follow(heard.clone(), clusters.for_task(task)));
    common.spawn("extend", OnFailure::Restart, move |task| extend::run(of.clone(), extension.clone(), task));
    let of = app.clone();
    common.spawn("clouds", OnFailure::Restart, move |task| clouds::run(of.clone(), task));
    let of = app.clone();
    common.spawn("hand-over", OnFailure::Restart, move |task| hand_over::run(of.clone(), task));
    let of = app.clone();
    common.spawn("publish-routes", OnFailure::Restart, move |task| traffic::publish(of.clone(), task));
    for (process, reader) in reports.into_iter().enumerate() {
        let of = app.clone();
        let name = format!("follow-traffic-{process}");
        common.spawn(name, OnFailure::Restart, move |task| traffic::follow(of.clone(), process, reader.for_task(task)));
    }
    let of = app.clone();
    common.spawn("agents", OnFailure::Restart, move |task| agents::run(of.clone(), task));
    let of = app.clone();
    common.spawn("claims", OnFailure::Restart, move |task| claims::run(of.clone(), task));
    let of = app.clone();
    common.spawn("reliefs", OnFailure::Restart, move |task| reliefs::run(of.clone(), task));
    let of = app.clone();
    common.spawn("bounds", OnFailure::Restart, move |task| bounds::run(of.clone(), task));
    let (engine, woken) = (app.engine.clone(), Arc::new(Mutex::new(woken)));
    common.spawn("wake-steps", OnFailure::Restart, move |task| wake::run(engine.clone(), woken.clone(), task));
}
