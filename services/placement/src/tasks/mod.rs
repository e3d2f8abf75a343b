//! Background tasks: following the members, expiring capacity, tidying the log.

mod follow;
mod tidy;

use drover_service::{Common, FeedReader, OnFailure};

use crate::app::App;

/// Starts the background tasks and registers the readiness checks.
pub fn spawn(app: &App, common: &Common) {
    let peer = common.peer("cluster-manager", &common.peers.cluster_manager);
    let (of, members) = (app.clone(), FeedReader::new(peer.clone(), "/internal/feeds/members"));
    common.spawn("follow-members", OnFailure::Restart, move |task| follow::members(of.clone(), members.for_task(task)));
    let (of, capacity) = (app.clone(), FeedReader::new(peer, "/internal/feeds/capacity"));
    common.spawn("follow-capacity", OnFailure::Restart, move |task| follow::capacity(of.clone(), capacity.for_task(task)));
    let of = app.clone();
    common.spawn("expire-capacity", OnFailure::Restart, move |task| follow::ages(of.clone(), task));
    let of = app.clone();
    common.spawn("tidy", OnFailure::Restart, move |task| tidy::run(of.clone(), task));

    let store = app.store.clone();
    common.readiness.check("database", move || {
        let store = store.clone();
        async move { store.check().await.map_err(|error| error.to_string()) }
    });
    let app = app.clone();
    common.readiness.check("cluster-manager", move || {
        let known = app.read(|book| book.knows_members());
        async move { if known { Ok(()) } else { Err("the list of members has not been received yet".to_owned()) } }
    });
}
