//! Follows placement's ledger.

use drover_api::ledger::FleetItem;
use drover_service::FeedReader;

use crate::app::FleetCopy;

/// For ever.
pub async fn run(fleet: FleetCopy, mut reader: FeedReader<FleetItem>) {
    loop {
        let batch = reader.next().await;
        fleet.follow(batch.reset, batch.items);
    }
}
