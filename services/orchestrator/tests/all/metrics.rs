//! Metrics of operations: each end is counted exactly once.

use std::time::Duration;

use drover_api::scheduling::DigRef;
use drover_orchestrator::workflows::Terminate;
use drover_orchestrator::workflows::terminate::Order;
use drover_testkit::eventually;
use uuid::Uuid;

use crate::support::Stack;

/// Enough changes at once to overrun a channel of 1024.
const OPERATIONS: i64 = 600;

async fn start_terminations(stack: &Stack) {
    let mut tx = stack.app.store.begin().await.unwrap();
    let sql = "insert into resource (id, kind, path, name, metadata, spec)
        select gen_random_uuid(), 'deployment-intent-group', '/v2/g' || i, 'g' || i, '{}', '{}' from generate_series(1, $1) i
        returning id, name";
    let groups: Vec<(Uuid, String)> = sqlx::query_as(sql).bind(OPERATIONS).fetch_all(&mut *tx).await.unwrap();
    for (id, name) in groups {
        let dig = DigRef { id, project: "p".into(), composite_app: "c".into(), version: "v1".into(), name };
        let order = Order { dig, revision: 1, after: Default::default(), delete_volumes: false };
        assert!(stack.app.engine.start_in_tx::<Terminate>(&mut tx, Uuid::now_v7(), &order).await.unwrap());
    }
    tx.commit().await.unwrap();
    stack.app.engine.nudge();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operation_metrics_count_every_end_once() {
    let stack = Stack::undocumented().await;
    start_terminations(&stack).await;
    let count_running = "select count(*) from workflow where ended_at is null";
    eventually(Duration::from_secs(600), async || {
        // The workflows may have all connections.
        let mut connection = stack.app.store.acquire().await.ok()?;
        let running: i64 = sqlx::query_scalar(count_running).fetch_one(&mut *connection).await.unwrap();
        (running == 0).then_some(())
    })
    .await;
    let lines = ["drover_operations_total", "drover_operation_seconds_count"]
        .map(|name| format!("{name}{{kind=\"terminate\",state=\"done\"}} {OPERATIONS}"));
    let mut text = String::new();
    let counted = tokio::time::timeout(Duration::from_secs(60), async {
        while !lines.iter().all(|line| text.lines().any(|found| found == line)) {
            text = stack.call("GET", "/metrics", None).await.body.as_str().unwrap().to_owned();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    if counted.await.is_err() {
        let found: Vec<&str> = text.lines().filter(|line| line.starts_with("drover_operation")).collect();
        panic!("{found:#?}");
    }
}
