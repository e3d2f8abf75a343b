//! One worker per registered member: started when it appears, started anew when its kubeconfig changes, ended when it goes.

use std::collections::HashMap;
use std::time::Duration;

use drover_scheduling::MemberKey;
use drover_service::Common;
use drover_store::{StoreError, StoreResult};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use super::watch;
use crate::app::App;
use crate::store::registered::{self, Registered};

/// Nobody rang, but a worker may have died.
const PERIOD: Duration = Duration::from_secs(10);

struct Worker {
    of: (Uuid, Option<i64>),
    task: JoinHandle<()>,
    _stop: DropGuard,
}

/// Until the service ends.
pub async fn run(app: App, common: Common) {
    let mut workers: HashMap<MemberKey, Worker> = HashMap::new();
    let mut failing = false;
    loop {
        match all(&app).await {
            Ok(members) => {
                failing = false;
                settle(&app, &common, &mut workers, members).await;
            }
            Err(error) => {
                if !failing {
                    tracing::warn!(%error, "the members cannot be read, trying on");
                }
                failing = true;
            }
        }
        let pause = if failing { Duration::from_secs(1) } else { PERIOD };
        let _ = tokio::time::timeout(pause, app.changed.notified()).await;
    }
}

async fn all(app: &App) -> StoreResult<Vec<Registered>> {
    let mut db = app.store.pool().acquire().await.map_err(StoreError::from)?;
    registered::all(&mut db).await
}

async fn settle(app: &App, common: &Common, workers: &mut HashMap<MemberKey, Worker>, members: Vec<Registered>) {
    let gone: Vec<MemberKey> = workers.keys().filter(|key| members.iter().all(|member| member.key() != **key)).cloned().collect();
    for key in gone {
        workers.remove(&key);
        app.clients.forget(&key).await;
        app.fleet.forget(&key);
    }
    for member in members {
        let (key, of) = (member.key(), (member.id, member.credential));
        app.fleet.register(member.clone());
        if workers.get(&key).is_some_and(|worker| worker.of == of && !worker.task.is_finished()) {
            continue;
        }
        let stop = CancellationToken::new();
        let task = common.tracker.spawn({
            let (app, stop, end) = (app.clone(), stop.clone(), common.shutdown.clone());
            async move {
                tokio::select! { () = stop.cancelled() => {}, () = end.cancelled() => {}, () = watch::run(app, member) => {} }
            }
        });
        workers.insert(key, Worker { of, task, _stop: stop.drop_guard() });
    }
}
