//! One worker per registered member: started when it appears, started anew when its kubeconfig changes, ended when it goes. A worker
//! that panics is restarted by its supervisor (`drover_service::tasks`).

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use drover_scheduling::MemberKey;
use drover_service::{Common, OnFailure, TaskHandle};
use drover_store::StoreResult;
use tokio_util::sync::DropGuard;
use uuid::Uuid;

use super::agent_metrics::AgentMetrics;
use super::watch;
use crate::app::App;
use crate::resources::agent::AGENT;
use crate::store::registered::{self, Registered};

/// The members are read again after this time without a signal, in case another process registered one.
const PERIOD: Duration = Duration::from_secs(10);

struct Worker {
    /// Id of the member and version of its kubeconfig.
    of: (Uuid, Option<i64>),
    _stop: DropGuard,
}

/// Runs until the service ends. When it is restarted, the workers are, too: their guards are dropped.
pub async fn run(app: App, common: Common, metrics: AgentMetrics, task: TaskHandle) {
    let mut workers: HashMap<MemberKey, Worker> = HashMap::new();
    let mut failing = false;
    loop {
        task.active();
        metrics.show(&app.fleet.reports());
        match all(&app).await {
            Ok(members) => {
                failing = false;
                settle(&app, &common, &mut workers, members).await;
            }
            Err(error) => {
                if !failing {
                    tracing::warn!(%error, "the members cannot be read; trying again");
                }
                failing = true;
            }
        }
        let pause = if failing { Duration::from_secs(1) } else { PERIOD };
        let _ = tokio::time::timeout(pause, app.changed.notified()).await;
    }
}

async fn all(app: &App) -> StoreResult<Vec<Registered>> {
    let mut db = app.store.acquire().await?;
    let agents = sqlx::query_scalar("select exists (select from resource where kind = $1)").bind(AGENT.name).fetch_one(&mut *db).await?;
    app.fleet.reads_reports.store(agents, Ordering::Relaxed);
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
        if workers.get(&key).is_some_and(|worker| worker.of == of) {
            continue;
        }
        let (stop, app) = (common.shutdown.child_token(), app.clone());
        common.tasks.spawn(&common.tracker, stop.clone(), format!("member/{key}"), OnFailure::RestartOneOfMany, move |task| {
            watch::run(app.clone(), member.clone(), task)
        });
        workers.insert(key, Worker { of, _stop: stop.drop_guard() });
    }
}
