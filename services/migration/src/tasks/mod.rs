//! Background tasks: follow the fleet, look where apps suffer, record how plans end, delete orphaned documents and old plans.

mod follow;
mod orphans;
mod outcomes;
mod reliefs;

use drover_service::{Common, FeedReader, OnFailure};

use crate::app::App;

/// Starts the tasks and adds the readiness checks.
pub fn spawn(app: &App, common: &Common) {
    let placement = common.peer("placement", &common.peers.placement);
    let (fleet, reader) = (app.fleet.clone(), FeedReader::new(placement, "/internal/feeds/fleet"));
    common.spawn("follow-fleet", OnFailure::Restart, move |task| follow::run(fleet.clone(), reader.for_task(task)));
    let of = app.clone();
    common.spawn("orphans", OnFailure::Restart, move |task| orphans::run(of.clone(), task));
    let of = app.clone();
    common.spawn("plan-outcomes", OnFailure::Restart, move |task| outcomes::run(of.clone(), task));
    let of = app.clone();
    common.spawn("reliefs", OnFailure::Restart, move |task| reliefs::run(of.clone(), task));

    let store = app.store.clone();
    common.readiness.check("database", move || {
        let store = store.clone();
        async move { store.check().await.map_err(|error| error.to_string()) }
    });
    let fleet = app.fleet.clone();
    common.readiness.check("placement", move || {
        let ready = fleet.is_ready();
        async move { if ready { Ok(()) } else { Err("its ledger has not arrived yet".to_owned()) } }
    });
}
