//! Follows the feeds of cluster-manager: the members and their capacity.

use std::sync::Arc;
use std::time::Duration;

use drover_api::members::Member;
use drover_scheduling::{Capacity, MemberKey};
use drover_service::{FeedReader, TaskHandle};

use crate::app::App;

/// Follows the feed `members`. Never returns.
pub async fn members(app: App, mut reader: FeedReader<Member>) {
    loop {
        let batch = reader.next().await;
        app.follow_members(batch.reset, batch.items);
    }
}

/// Follows the feed `capacity`. Never returns.
pub async fn capacity(app: App, mut reader: FeedReader<Capacity>) {
    loop {
        let batch = reader.next().await;
        let items = batch.items.into_iter().map(|(key, capacity)| (MemberKey(key), capacity.map(Arc::new)));
        app.follow_capacity(batch.reset, items.collect());
    }
}

/// Expires outdated capacity, every second.
pub async fn ages(app: App, task: TaskHandle) {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tick.tick().await;
        task.active();
        app.expire_capacity();
    }
}
