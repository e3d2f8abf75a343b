//! Workflows that the engine which inserts them runs without a claim.

use std::sync::Arc;
use std::time::Duration;

use drover_store::Store;
use drover_store::failpoint::Failpoints;
use drover_testkit::test_db;
use drover_workflow::testing::quick;
use drover_workflow::{Ctx, Engine, Outcome, Registry, Settings, Started, Step, StepResult, Steps, Workflow};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::fixture::{ended, store};

/// One remote step, and a local one.
struct One;

impl Workflow for One {
    const KIND: &'static str = "one";
    const VERSION: i32 = 1;
    type Environment = ();
    type Input = ();
    type State = ();

    fn steps() -> Steps<Self> {
        Steps::new().step(Step::remote("ask", ask)).step(Step::local("write", write))
    }
}

async fn ask(_: &mut Ctx<One>) -> StepResult {
    Ok(Outcome::next())
}

async fn write(ctx: &mut Ctx<One>, tx: &mut PgConnection) -> StepResult {
    sqlx::query("insert into effect (workflow, step) values ($1, 'write')").bind(ctx.id).execute(&mut *tx).await?;
    Ok(Outcome::next())
}

/// An engine with so many places that looks for due workflows at its start, whenever it is nudged, and at each poll.
async fn engine(store: &Store, concurrency: usize, poll: Duration) -> Engine {
    let settings = Settings { poll, lease: Duration::from_secs(3), concurrency, ..quick("here", &Failpoints::default()) };
    Engine::start(store.clone(), Registry::new().with::<One>(Arc::new(())), settings).await.unwrap()
}

const NEVER: Duration = Duration::from_secs(3600);

async fn start(engine: &Engine, store: &Store) -> Started {
    let mut tx = store.begin().await.unwrap();
    let started = engine.start_here_in_tx::<One>(&mut tx, Uuid::now_v7(), &()).await.unwrap();
    tx.commit().await.unwrap();
    started
}

/// Waits until these workflows are done, and asserts that each took effect once and no other did.
async fn done(engine: Engine, store: &Store, ids: &[Uuid]) {
    for id in ids {
        assert_eq!(ended(&engine, *id).await.status, "done");
    }
    let effects: i64 = sqlx::query_scalar("select count(*) from effect").fetch_one(&mut *store.acquire().await.unwrap()).await.unwrap();
    assert_eq!(usize::try_from(effects), Ok(ids.len()));
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workflow_that_is_started_here_runs_without_a_claim() {
    let db = test_db().await;
    let store = store(&db).await;
    let engine = engine(&store, 4, NEVER).await;
    let started = start(&engine, &store).await;
    let (worker, steps): (Option<String>, i64) = sqlx::query_as("select worker, (select count(*) from workflow_step) from workflow")
        .fetch_one(&mut *store.acquire().await.unwrap())
        .await
        .unwrap();
    assert_eq!((worker.as_deref(), steps), (Some("here"), 1), "it is claimed and begun");
    let id = started.run();
    done(engine, &store, &[id]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workflow_for_which_there_is_no_place_waits_for_a_claim() {
    let db = test_db().await;
    let store = store(&db).await;
    let engine = engine(&store, 1, NEVER).await;
    let (first, second) = (start(&engine, &store).await, start(&engine, &store).await);
    let second = second.run();
    let first = first.run();
    done(engine, &store, &[first, second]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workflow_that_is_not_run_after_its_commit_is_claimed_later() {
    let db = test_db().await;
    let store = store(&db).await;
    let engine = engine(&store, 4, Duration::from_millis(50)).await;
    let started = start(&engine, &store).await;
    let id = started.id;
    drop(started);
    done(engine, &store, &[id]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_is_rolled_back_leaves_nothing_and_takes_no_place() {
    let db = test_db().await;
    let store = store(&db).await;
    let engine = engine(&store, 1, NEVER).await;
    let mut tx = store.begin().await.unwrap();
    let started = engine.start_here_in_tx::<One>(&mut tx, Uuid::now_v7(), &()).await.unwrap();
    tx.rollback().await.unwrap();
    drop(started);
    let id = start(&engine, &store).await.run();
    done(engine, &store, &[id]).await;
}
