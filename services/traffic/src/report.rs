//! The feed `traffic`: how this process carries out each route.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use drover_api::traffic::RouteReport;
use drover_service::{FeedHub, TaskHandle};
use tokio::time::timeout;
use uuid::Uuid;

use crate::listeners::Listeners;
use crate::route::Route;
use crate::state::DataPath;

/// Counts are told at most this often.
const PERIOD: Duration = Duration::from_millis(200);

/// Publishes for ever.
pub async fn run(path: Arc<DataPath>, listeners: Arc<Listeners>, hub: FeedHub<RouteReport>, task: TaskHandle) {
    let mut told: BTreeSet<Uuid> = BTreeSet::new();
    let mut changes = path.changes();
    loop {
        task.active();
        let compiled = path.compiled();
        let mut now = BTreeSet::new();
        let mut publish = |route: &Route, problem: Option<String>| {
            let backends = route.backends.iter().map(|backend| backend.report()).collect();
            hub.publish_if_changed(route.id.to_string(), Some(RouteReport { route: route.id, problem, backends }));
            now.insert(route.id);
        };
        for route in compiled.routes() {
            publish(route, listeners.problem(route.port, route.protocol, route.host.as_deref()));
        }
        for (route, reason) in compiled.refused.values() {
            publish(route, Some(reason.clone()));
        }
        for gone in told.difference(&now) {
            hub.publish(gone.to_string(), None);
        }
        told = now;
        tokio::time::sleep(PERIOD / 4).await;
        let _ = timeout(PERIOD, changes.changed()).await;
    }
}
