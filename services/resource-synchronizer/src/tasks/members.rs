//! Follows the feed `members`: starts a worker for each member, tells it of changes, and stops it when the member is deregistered.
//!
//! Level-triggered: only the newest state of the feed counts.

use std::collections::HashMap;

use drover_api::members::Member;
use drover_scheduling::MemberKey;
use drover_service::{FeedReader, OnFailure};
use tokio::sync::watch;
use tokio_util::sync::DropGuard;

use crate::app::App;
use crate::names;
use crate::worker::Worker;

struct Running {
    member: watch::Sender<Member>,
    /// Stops its worker when it is dropped.
    _stop: DropGuard,
}

/// Runs until the service ends.
pub async fn follow_members(app: App, mut reader: FeedReader<Member>) {
    let mut workers: HashMap<MemberKey, Running> = HashMap::new();
    let mut first = true;
    loop {
        let batch = reader.next().await;
        let mut gone: Vec<MemberKey> = Vec::new();
        if batch.reset {
            gone.extend(workers.keys().filter(|key| !batch.items.iter().any(|(name, value)| *name == key.0 && value.is_some())).cloned());
        }
        for (key, value) in batch.items {
            let key = MemberKey(key);
            let Some(member) = value else {
                gone.push(key);
                continue;
            };
            match workers.get(&key) {
                // A cluster registered again under the same name is another member: it gets a new worker without the old state.
                Some(running) if running.member.borrow().id == member.id => {
                    running.member.send_replace(member);
                }
                _ => {
                    drop(workers.remove(&key));
                    workers.insert(key.clone(), start(&app, member));
                }
            }
        }
        for key in gone {
            if workers.remove(&key).is_some() {
                app.abandon(&key).await;
                tracing::info!(cluster.id = %key, "the member was deregistered");
            }
        }
        let networks = workers.values().filter_map(|running| names::network(&running.member.borrow())).collect();
        app.set_networks(networks).await;
        if std::mem::take(&mut first) {
            app.know_members().await;
        }
    }
}

fn start(app: &App, member: Member) -> Running {
    let (stop, name) = (app.common.shutdown.child_token(), format!("member/{}", member.key));
    let dirty = app.adopt(&member.key);
    let (sender, receiver) = watch::channel(member);
    let (of, stopped) = (app.clone(), stop.clone());
    app.common.spawn(name, OnFailure::RestartOneOfMany, move |task| {
        Worker::new(of.clone(), receiver.clone(), dirty.clone(), stopped.clone(), task).run()
    });
    Running { member: sender, _stop: stop.drop_guard() }
}
