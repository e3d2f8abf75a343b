//! Follows the feed `members`: a worker for each, told of changes, stopped when the member is gone.
//!
//! Level-triggered: whatever the feed says now is what there is.

use std::collections::HashMap;

use drover_api::members::Member;
use drover_scheduling::MemberKey;
use drover_service::FeedReader;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::worker::Worker;

struct Running {
    member: watch::Sender<Member>,
    stop: CancellationToken,
}

/// Runs until the service ends.
pub async fn follow_members(app: App, mut reader: FeedReader<Member>) {
    let mut workers: HashMap<MemberKey, Running> = HashMap::new();
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
                // A cluster registered again under the same name is another one: it gets a worker without memories.
                Some(running) if running.member.borrow().id == member.id => {
                    running.member.send_replace(member);
                }
                other => {
                    if let Some(old) = other {
                        old.stop.cancel();
                    }
                    workers.insert(key, start(&app, member));
                }
            }
        }
        for key in gone {
            if let Some(running) = workers.remove(&key) {
                running.stop.cancel();
                app.abandon(&key).await;
                tracing::info!(cluster.id = %key, "the member is gone");
            }
        }
    }
}

fn start(app: &App, member: Member) -> Running {
    let stop = app.common.shutdown.child_token();
    let dirty = app.adopt(&member.key);
    let (sender, receiver) = watch::channel(member);
    let worker = Worker::new(app.clone(), receiver, dirty, stop.clone());
    app.common.spawn(worker.run());
    Running { member: sender, stop }
}
