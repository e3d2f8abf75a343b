//! Forgets what nobody can need any more: old tombstones and receipts.

use std::time::Duration;

use crate::app::App;
use crate::store;

/// Once an hour.
pub async fn run(app: App) {
    let mut tick = tokio::time::interval(Duration::from_secs(3600));
    loop {
        tick.tick().await;
        if let Err(error) = store::tidy(&app.store).await {
            tracing::warn!(%error, "old tombstones and receipts were not tidied away");
        }
    }
}
