//! Follows placement's feed `fleet`.

use drover_api::ledger::FleetItem;
use drover_service::FeedReader;

use crate::app::FleetCopy;

/// Applies the batches of the feed. Never returns.
pub async fn run(fleet: FleetCopy, mut reader: FeedReader<FleetItem>) {
    loop {
        let batch = reader.next().await;
        fleet.follow(batch.reset, batch.items);
    }
}
