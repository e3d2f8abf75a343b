//! What goes on without being asked: following the members, telling the fleet, tidying the log.

mod follow;
mod tidy;

use drover_service::{Common, FeedReader};

use crate::app::App;

/// Starts them.
pub fn spawn(app: &App, common: &Common) {
    let peer = common.peer("cluster-manager", &common.peers.cluster_manager);
    common.spawn(follow::members(app.clone(), FeedReader::new(peer.clone(), "/internal/feeds/members")));
    common.spawn(follow::capacity(app.clone(), FeedReader::new(peer, "/internal/feeds/capacity")));
    common.spawn(follow::ages(app.clone()));
    common.spawn(tidy::run(app.clone()));

    let store = app.store.clone();
    common.readiness.check("database", move || {
        let store = store.clone();
        async move { store.check().await.map_err(|error| error.to_string()) }
    });
    let app = app.clone();
    common.readiness.check("cluster-manager", move || {
        let known = app.read(|book| book.knows_members());
        async move { if known { Ok(()) } else { Err("it has not said yet which members there are".to_owned()) } }
    });
}
