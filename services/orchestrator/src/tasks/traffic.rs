//! Publishes routes whenever something of them may have changed, and takes in what the processes of the data path report.

use std::time::Duration;

use drover_api::traffic::RouteReport;
use drover_service::{FeedReader, TaskHandle};
use tokio::time::timeout;

use crate::app::App;
use crate::app::routes::Targets;
use crate::environment::route_key;

/// How often routes are published without being asked for: steps of another process of this service do not ask this one.
const PERIOD: Duration = Duration::from_secs(1);

/// Publishes; never returns.
pub async fn publish(app: App, task: TaskHandle) {
    let mut targets = Targets::default();
    let mut failing = false;
    loop {
        task.active();
        let published = app.publish_routes(&mut targets).await;
        // A failure that goes on is a warning only once.
        if let Err(error) = &published
            && !failing
        {
            tracing::warn!(error = %drover_service::problem::chain(error), "routes could not be published, will retry");
        }
        failing = published.is_err();
        let _ = timeout(PERIOD, app.environment.traffic.nudged()).await;
    }
}

/// Follows the feed of one process of the data path; never returns.
pub async fn follow(app: App, process: usize, mut reader: FeedReader<RouteReport>) {
    loop {
        let batch = reader.next().await;
        for route in app.environment.traffic.take(process, batch.reset, batch.items) {
            app.engine.wake(&route_key(route));
        }
    }
}
