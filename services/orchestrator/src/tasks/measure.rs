//! Counts operations as they end, and how long they took. What ended while this process was not there is not counted.

use std::collections::VecDeque;

use drover_service::metrics::Metrics;
use drover_store::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::broadcast::error::RecvError;
use uuid::Uuid;

use crate::app::App;

/// An end may be told more than once; so many are remembered.
const REMEMBERED: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    kind: String,
    state: String,
}

/// Runs for ever.
pub async fn run(app: App, metrics: Metrics) {
    let operations = Family::<Ended, Counter>::default();
    let seconds = Family::<Ended, Histogram, fn() -> Histogram>::new_with_constructor(|| {
        Histogram::new([0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0])
    });
    metrics.register(|registry| {
        registry.register("operations", "Operations that ended, by kind and how", operations.clone());
        registry.register("operation_seconds", "Seconds from an operation's start to its end", seconds.clone());
    });
    let mut events = app.engine.events();
    let mut counted: VecDeque<Uuid> = VecDeque::new();
    loop {
        let id = match events.recv().await {
            Ok(id) if !counted.contains(&id) => id,
            Ok(_) | Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => return,
        };
        let sql = "select kind, status, created_at, ended_at from workflow where id = $1 and ended_at is not null";
        let row: Result<Option<(String, String, Timestamp, Timestamp)>, _> =
            sqlx::query_as(sql).bind(id).fetch_optional(app.store.pool()).await;
        if let Ok(Some((kind, state, created, ended))) = row {
            let labels = Ended { kind, state };
            operations.get_or_create(&labels).inc();
            seconds.get_or_create(&labels).observe(ended.duration_since(*created).as_secs_f64());
            counted.push_back(id);
            if counted.len() > REMEMBERED {
                counted.pop_front();
            }
        }
    }
}
