//! Follows the synchronizer's feed `bindings`: keeps its last word on each binding and wakes whoever is parked on it.

use drover_api::bindings::{BindingStatus, Phase};
use drover_service::FeedReader;
use uuid::Uuid;

use crate::app::App;
use crate::world::binding_key;

/// Runs for ever; the reader repeats itself.
pub async fn run(app: App, mut reader: FeedReader<BindingStatus>) {
    loop {
        let batch = reader.next().await;
        // After a reset everything is told anew; who is no longer told of may have changed too.
        let forgotten = if batch.reset { app.world.statuses.reset() } else { Vec::new() };
        take(&app, batch.items);
        for id in forgotten {
            app.engine.wake(&binding_key(id));
        }
    }
}

/// Takes in what the synchronizer says.
pub fn take(app: &App, items: Vec<(String, Option<BindingStatus>)>) {
    for (key, status) in items {
        let Ok(id) = key.parse::<Uuid>() else { continue };
        let gone = status.as_ref().is_none_or(|status| status.phase == Phase::Gone);
        app.world.statuses.set(id, status);
        app.engine.wake(&binding_key(id));
        if gone {
            app.retire.ring();
        }
    }
}
