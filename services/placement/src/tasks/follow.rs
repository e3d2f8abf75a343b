//! Follows cluster-manager: which members there are, what room they have. Tells the fleet of both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use drover_api::ledger::FleetItem;
use drover_api::members::Member;
use drover_scheduling::{Capacity, MemberKey};
use drover_service::FeedReader;
use tokio::sync::Notify;

use crate::app::App;

/// Follows the feed `members`.
pub async fn members(app: App, mut reader: FeedReader<Member>, changed: Arc<Notify>) {
    loop {
        let batch = reader.next().await;
        app.write(|book| book.follow_members(batch.reset, batch.items));
        changed.notify_one();
    }
}

/// Follows the feed `capacity`.
pub async fn capacity(app: App, mut reader: FeedReader<Capacity>) {
    loop {
        let batch = reader.next().await;
        let items: Vec<(MemberKey, Option<Arc<Capacity>>)> =
            batch.items.into_iter().map(|(key, capacity)| (MemberKey(key), capacity.map(Arc::new))).collect();
        let missing = app.follow_capacity(batch.reset, &items);
        for key in missing {
            app.fleet.publish(format!("capacity/{key}"), None);
        }
        for (key, capacity) in items {
            app.fleet.publish(format!("capacity/{key}"), capacity.map(FleetItem::Capacity));
        }
    }
}

/// Tells the fleet which members there are, at once when they change, and takes back what is too old to be knowledge: a reader
/// that starts then must not take it for new.
pub async fn members_and_ages(app: App, changed: Arc<Notify>) {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut told: BTreeSet<MemberKey> = BTreeSet::new();
    loop {
        tokio::select! { _ = tick.tick() => {}, () = changed.notified() => {} }
        let (members, stale) = app.write(|book| {
            book.settle_members();
            let members: BTreeMap<_, _> = book.ledger.rooms().filter_map(|room| Some((room.key.clone(), room.member.clone()?))).collect();
            let old = |key: &&MemberKey| book.age_ms(key).is_none_or(|age| age > Capacity::FRESH_MS);
            let stale: Vec<MemberKey> = members.keys().filter(old).cloned().collect();
            (members, stale)
        });
        for gone in told.iter().filter(|key| !members.contains_key(*key)) {
            app.fleet.publish(format!("member/{gone}"), None);
        }
        told = members.keys().cloned().collect();
        for (key, member) in members {
            app.fleet.publish_if_changed(format!("member/{key}"), Some(FleetItem::Member(member)));
        }
        for key in stale {
            app.fleet.publish_if_changed(format!("capacity/{key}"), None);
        }
    }
}
