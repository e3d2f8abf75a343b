//! Forgets what nobody can need any more: old tombstones and receipts, and the fences that memory keeps of them.

use std::time::Duration;

use crate::app::{App, KEPT};
use crate::store;

/// Once an hour.
pub async fn run(app: App) {
    let mut tick = tokio::time::interval(Duration::from_secs(3600));
    loop {
        tick.tick().await;
        app.write(|book| book.fences.forget(KEPT));
        if let Err(error) = store::tidy(&app.store).await {
            tracing::warn!(%error, "old tombstones and receipts were not tidied away");
        }
    }
}
