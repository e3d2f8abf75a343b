//! Documents whose project or deployment intent group is gone are collected. Nobody is harmed by one meanwhile: they carry the
//! parent's uuid, and a parent that was made again has another.

use std::time::Duration;

use drover_resources::purge_foreign;
use drover_service::{Problem, TaskHandle};

use crate::app::App;
use crate::resources::KINDS;
use crate::resources::rules::lookup;
use crate::store::side;

/// Every five minutes.
pub async fn run(app: App, task: TaskHandle) {
    let mut tick = tokio::time::interval(Duration::from_secs(300));
    // The first tick is at once, and then orchestrator may not be there yet.
    tick.tick().await;
    loop {
        tick.tick().await;
        task.active();
        if let Err(error) = collect(&app).await {
            tracing::warn!(%error, "orphaned documents were not collected, trying again later");
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
        tracing::info!(parent, purged, "documents of a parent that is gone were collected");
    }
    Ok(())
}

/// The foreign part of one of our paths.
fn parent_path(path: &str) -> Option<String> {
    let kind = KINDS.iter().find(|kind| matches!(kind.parent, drover_resources::Parent::Foreign(_)) && kind.within(path) == Some(path))?;
    let segments = kind.foreign()?.path.split('/').count();
    Some(path.split('/').take(segments).collect::<Vec<_>>().join("/"))
}
