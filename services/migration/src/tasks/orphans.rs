//! Deletes documents whose project or deployment intent group no longer exists. Until then they have no effect: they refer to the parent's
//! UUID, and a parent that is made again gets a new one.

use std::time::Duration;

use drover_resources::purge_foreign;
use drover_service::{Problem, TaskHandle};

use crate::app::App;
use crate::resources::KINDS;
use crate::resources::rules::lookup;
use crate::store::side;

/// Deletes orphaned documents every five minutes. Never returns.
pub async fn run(app: App, task: TaskHandle) {
    let mut tick = tokio::time::interval(Duration::from_secs(300));
    // The first tick is immediate, when orchestrator may not have started yet.
    tick.tick().await;
    loop {
        tick.tick().await;
        task.active();
        if let Err(error) = collect(&app).await {
            tracing::warn!(%error, "orphaned documents could not be deleted; the next attempt is in five minutes");
        }
    }
}

async fn collect(app: &App) -> Result<(), Problem> {
    for (id, path) in side::foreign_parents(&app.store).await? {
        let Some(parent) = parent_path(&path) else { continue };
        if lookup(&app.orchestrator, &parent).await? == Some(id) {
            continue;
        }
        let mut tx = app.store.begin().await?;
        let purged = purge_foreign(&mut tx, id).await?;
        tx.commit().await.map_err(Problem::internal)?;
        tracing::info!(parent, purged, "documents of a deleted parent were deleted");
    }
    Ok(())
}

/// The parent's part of a path.
fn parent_path(path: &str) -> Option<String> {
    let kind = KINDS.iter().find(|kind| matches!(kind.parent, drover_resources::Parent::Foreign(_)) && kind.within(path) == Some(path))?;
    let segments = kind.foreign()?.path.split('/').count();
    Some(path.split('/').take(segments).collect::<Vec<_>>().join("/"))
}
