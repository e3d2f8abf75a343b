//! Deletes tombstones and receipts older than a week, and the fences kept in memory for them.

use std::time::Duration;

use drover_service::TaskHandle;

use crate::app::{App, KEPT};
use crate::store;

/// Runs at once and then every hour. Never returns.
pub async fn run(app: App, task: TaskHandle) {
    let mut tick = tokio::time::interval(Duration::from_secs(3600));
    loop {
        tick.tick().await;
        task.active();
        app.write(|book| book.fences.forget(KEPT));
        if let Err(error) = store::tidy(&app.store).await {
            tracing::warn!(%error, "old tombstones and receipts were not deleted; trying again in an hour");
        }
    }
}
