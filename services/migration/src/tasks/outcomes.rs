//! Records how plans end, and deletes old plans.

use std::time::{Duration, Instant};

use drover_service::TaskHandle;

use crate::app::App;

/// Shortest time between two passes while plans are open. A change of the fleet starts one: the moves of a plan change the fleet.
const AT_MOST_EVERY: Duration = Duration::from_secs(1);
/// Longest time between two passes while plans are open.
const AT_LEAST_EVERY: Duration = Duration::from_secs(10);
/// Interval of deleting old plans, and of looking for open ones that this process did not store.
const HOUR: Duration = Duration::from_secs(3_600);

/// Records the ends of plans. Never returns.
pub async fn run(app: App, task: TaskHandle) {
    let mut changes = app.fleet.changes();
    let mut pruned: Option<Instant> = None;
    loop {
        task.active();
        let open = app.settle_plans().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the ends of plans could not be recorded; the next attempt is soon");
            1
        });
        if pruned.is_none_or(|at| at.elapsed() >= HOUR) {
            match app.prune_plans().await {
                Ok(0) => {}
                Ok(count) => tracing::info!(count, "old plans were deleted"),
                Err(error) => tracing::warn!(%error, "old plans could not be deleted; the next attempt is in an hour"),
            }
            pruned = Some(Instant::now());
        }
        if open == 0 {
            let _ = tokio::time::timeout(HOUR, app.open_plans.notified()).await;
        }
        tokio::time::sleep(AT_MOST_EVERY).await;
        if open > 0 {
            let _ = tokio::time::timeout(AT_LEAST_EVERY, changes.changed()).await;
        }
    }
}
