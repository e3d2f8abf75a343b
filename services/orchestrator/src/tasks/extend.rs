//! Brings apps that run on every cluster of a selection to clusters that were added to it.

use std::sync::Arc;
use std::time::Duration;

use drover_api::members::Member;
use drover_service::{FeedReader, TaskHandle};
use tokio::sync::Mutex;

use crate::app::App;
use crate::app::extension::Extension;

/// Time between two passes.
const PERIOD: Duration = Duration::from_secs(5);

/// Follows the clusters, so that passes know when a selection may have grown; never returns.
pub async fn follow(extension: Arc<Mutex<Extension>>, mut reader: FeedReader<Member>) {
    loop {
        let batch = reader.next().await;
        extension.lock().await.clusters_changed(batch.reset, batch.items);
    }
}

/// Makes a pass every [`PERIOD`]; never returns.
pub async fn run(app: App, extension: Arc<Mutex<Extension>>, task: TaskHandle) {
    loop {
        tokio::time::sleep(PERIOD).await;
        task.active();
        if let Err(error) = app.extend(&mut *extension.lock().await).await {
            tracing::debug!(error = %drover_service::problem::chain(&error), "apps could not be brought to new clusters, will retry");
        }
    }
}
