//! Follows the feeds `routes` and `endpoints`, and stores the table.
//!
//! Level-triggered: only the newest state of each feed counts. What a service does not tell is kept: a synchronizer that starts anew has
//! not listed its members yet, and a copy that no route has any more is forgotten anyway.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use drover_api::traffic::{CopyEndpoints, RouteTable};
use drover_service::{FeedReader, TaskHandle};
use tokio::sync::watch;

use crate::disk::Disk;
use crate::failpoint::reached;
use crate::state::DataPath;

/// Changes within this time are stored together.
const PERIOD: Duration = Duration::from_millis(200);

/// Follows the routes; never returns.
pub async fn routes(path: Arc<DataPath>, mut reader: FeedReader<RouteTable>) {
    loop {
        let batch = reader.next().await;
        reached("traffic/routes/before");
        path.change(|table| {
            if batch.reset {
                table.routes.clear();
            }
            // What a gateway carries is not for this one.
            batch.merge_into(&mut table.routes, |route| route.gateway.is_none());
        });
        reached("traffic/routes/after");
    }
}

/// Follows the endpoints; never returns.
pub async fn endpoints(path: Arc<DataPath>, mut reader: FeedReader<CopyEndpoints>) {
    loop {
        let batch = reader.next().await;
        reached("traffic/endpoints/before");
        path.change(|table| batch.merge_into(&mut table.endpoints, |_| true));
    }
}

/// Stores the table whenever it has changed; never returns.
pub async fn store(path: Arc<DataPath>, disk: Disk, task: TaskHandle) {
    let mut changes: watch::Receiver<u64> = path.changes();
    let mut stored = None;
    loop {
        task.active();
        if stored.as_ref() != Some(&path.table().used()) {
            let (of, to) = (path.clone(), disk.clone());
            // Not on a thread that carries requests: a busy disk may take its time.
            let written = tokio::task::spawn_blocking(move || to.write(|| of.table().used())).await;
            match written.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
                Ok(table) => stored = Some(table),
                Err(error) => tracing::error!(file = %disk.file().display(), %error, "the table of routes cannot be stored"),
            }
        }
        tokio::time::sleep(PERIOD).await;
        // Also tried again if the disk was full.
        let _ = tokio::time::timeout(Duration::from_secs(30), changes.changed()).await;
    }
}
