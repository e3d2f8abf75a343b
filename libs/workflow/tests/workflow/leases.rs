//! An engine under load keeps its lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use drover_store::failpoint::Failpoints;
use drover_store::{Store, StoreConfig, Timestamp};
use drover_testkit::{eventually, test_db};
use drover_workflow::testing::quick;
use drover_workflow::{Ctx, Engine, Outcome, Registry, Settings, Step, StepResult, Steps, Workflow};
use sqlx::PgConnection;
use tokio_util::sync::CancellationToken;

use crate::fixture::{connect, store};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Counts the steps that hold a transaction, and lets all of them go at once.
#[derive(Default)]
struct Gate {
    inside: AtomicU32,
    open: CancellationToken,
}

/// One local step, which holds its transaction and so a connection of the pool until the gate opens.
struct LongTransaction;

impl Workflow for LongTransaction {
    const KIND: &'static str = "long_transaction";
    const VERSION: i32 = 1;
    type Environment = Gate;
    type Input = ();
    type State = ();

    fn steps() -> Steps<Self> {
        Steps::new().step(Step::local("hold", hold))
    }
}

async fn hold(ctx: &mut Ctx<LongTransaction>, tx: &mut PgConnection) -> StepResult {
    sqlx::query("insert into effect (workflow, step) values ($1, 'hold')").bind(ctx.id).execute(&mut *tx).await?;
    ctx.environment.inside.fetch_add(1, Ordering::Relaxed);
    ctx.environment.open.cancelled().await;
    Ok(Outcome::next())
}

async fn lease_until(observer: &Store) -> Timestamp {
    sqlx::query_scalar("select lease_until from worker where name = 'busy'")
        .fetch_one(&mut *observer.acquire().await.unwrap())
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_is_renewed_while_steps_hold_all_connections_of_the_pool() {
    const WORKFLOWS: i64 = 64;
    let db = test_db().await;
    // A pool of its own: what the test asks does not queue behind the steps.
    let observer = store(&db).await;
    let config = StoreConfig { idle_transaction_timeout: Duration::from_secs(120), ..StoreConfig::new("orchestrator", db.url.clone()) };
    let busy = connect(&config).await;
    let gate = Arc::new(Gate::default());
    let settings = Settings { lease: Duration::from_secs(3), concurrency: 64, ..quick("busy", &Failpoints::default()) };
    let engine = Engine::start(busy.clone(), Registry::new().with::<LongTransaction>(gate.clone()), settings.clone()).await.unwrap();
    let mut tx = observer.begin().await.unwrap();
    for _ in 0..WORKFLOWS {
        engine.start_in_tx::<LongTransaction>(&mut tx, uuid::Uuid::now_v7(), &()).await.unwrap();
    }
    tx.commit().await.unwrap();
    engine.nudge();
    eventually(TIMEOUT, async || (gate.inside.load(Ordering::Relaxed) == config.max_connections).then_some(())).await;

    // Every connection of the pool is taken, and stays so for more than two leases: without renewals it would be over.
    let before = lease_until(&observer).await;
    eventually(TIMEOUT, async || {
        let extended: Duration = lease_until(&observer).await.duration_since(*before).try_into().unwrap();
        (extended > settings.lease * 2).then_some(())
    })
    .await;
    assert_eq!(gate.inside.load(Ordering::Relaxed), config.max_connections, "a connection was free");

    gate.open.cancel();
    eventually(TIMEOUT, async || {
        let left: i64 = sqlx::query_scalar("select count(*) from workflow where ended_at is null")
            .fetch_one(&mut *observer.acquire().await.unwrap())
            .await
            .unwrap();
        (left == 0).then_some(())
    })
    .await;
    let effects: i64 = sqlx::query_scalar("select count(*) from effect").fetch_one(&mut *observer.acquire().await.unwrap()).await.unwrap();
    assert_eq!(effects, WORKFLOWS, "each step took effect once");
    engine.stop().await;
}
