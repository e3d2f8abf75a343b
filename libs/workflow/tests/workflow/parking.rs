//! Parked workflows: each is woken by its own keys only, by its deadline, and never forgotten.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drover_store::failpoint::{Action, Failpoints};
use drover_testkit::{eventually, test_db};
use drover_workflow::testing::quick;
use drover_workflow::{Ctx, Engine, Outcome, Registry, Settings, Step, StepError, StepResult, Steps, Workflow};
use uuid::Uuid;

use crate::fixture::{begin, ended, store};

const SECONDS: Duration = Duration::from_secs(120);

#[derive(Default)]
struct Doors {
    open: Mutex<HashSet<String>>,
    asked: Mutex<Vec<String>>,
}

struct Wait;
impl Workflow for Wait {
    const KIND: &'static str = "wait";
    const VERSION: i32 = 1;
    type Environment = Doors;
    /// The name of the door, and how many milliseconds to wait for it.
    type Input = (String, u64);
    type State = ();
    fn steps() -> Steps<Self> {
        Steps::new().step(Step::wait("door", door))
    }
}

async fn door(ctx: &mut Ctx<Wait>) -> StepResult {
    let (name, limit) = ctx.input.clone();
    let limit = Duration::from_millis(limit);
    ctx.environment.asked.lock().unwrap().push(name.clone());
    if ctx.environment.open.lock().unwrap().contains(&name) {
        return Ok(Outcome::next());
    }
    if ctx.waited() >= limit {
        return Err(StepError::fail("deadline", format!("{name} stayed shut")));
    }
    Ok(Outcome::park([format!("door:{name}")]).until(ctx.deadline(limit)))
}

/// An engine whose slow poll is longer than any test: only a wake-up or a deadline makes a parked workflow run again.
async fn engine_without_slow_poll(
    db: &drover_testkit::TestDb,
    doors: &Arc<Doors>,
    failpoints: &Failpoints,
) -> (Engine, drover_store::Store) {
    let store = store(db).await;
    let settings = Settings { slow_poll: Duration::from_secs(3600), ..quick("a", failpoints) };
    (Engine::start(store.clone(), Registry::new().with::<Wait>(doors.clone()), settings).await.unwrap(), store)
}

fn long(door: &str) -> (String, u64) {
    (door.to_owned(), 3_600_000)
}

/// Begins a workflow that has looked whether the door `d` is open, and pauses before the step ends or parks.
async fn begin_and_pause(engine: &Engine, store: &drover_store::Store, failpoints: &Failpoints) -> Uuid {
    failpoints.set("wait/door/do/after_effect", Action::Pause);
    let id = begin::<Wait>(engine, store, &long("d")).await;
    eventually(SECONDS, async || failpoints.is_paused("wait/door/do/after_effect").then_some(())).await;
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn wake_runs_only_the_workflow_parked_on_the_key() {
    let db = test_db().await;
    let doors = Arc::new(Doors::default());
    let (engine, store) = engine_without_slow_poll(&db, &doors, &Failpoints::default()).await;
    let last = begin::<Wait>(&engine, &store, &long("last")).await;
    sqlx::query("insert into workflow (id, kind, version, subject, input, state, step) select gen_random_uuid(), 'wait', 1, '', jsonb_build_array('d' || n, 3600000), 'null', 'door' from generate_series(1, 2000) n")
        .execute(&mut *store.acquire().await.unwrap())
        .await
        .unwrap();
    engine.nudge();
    eventually(Duration::from_secs(300), async || {
        let parked: i64 = sqlx::query_scalar("select count(*) from workflow where worker is null and wake_keys <> '{}' and run_at > now()")
            .fetch_one(&mut *store.acquire().await.unwrap())
            .await
            .unwrap();
        (parked == 2001).then_some(())
    })
    .await;
    doors.asked.lock().unwrap().clear();
    doors.open.lock().unwrap().insert("last".into());
    engine.wake("door:nobody");
    engine.wake("door:last");
    assert_eq!(ended(&engine, last).await.status, "done");
    assert_eq!(*doors.asked.lock().unwrap(), ["last"]);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wake_between_check_and_park_is_not_lost() {
    let db = test_db().await;
    let doors = Arc::new(Doors::default());
    let failpoints = Failpoints::default();
    let (engine, store) = engine_without_slow_poll(&db, &doors, &failpoints).await;
    let id = begin_and_pause(&engine, &store, &failpoints).await;
    doors.open.lock().unwrap().insert("d".into());
    engine.wake("door:d");
    failpoints.clear("wait/door/do/after_effect");
    assert_eq!(ended(&engine, id).await.status, "done");
    engine.stop().await;
}

/// An engine that claims only when it is told to.
async fn engine_without_polls(
    db: &drover_testkit::TestDb,
    doors: &Arc<Doors>,
    failpoints: &Failpoints,
    concurrency: usize,
) -> (Engine, drover_store::Store) {
    let store = store(db).await;
    let hour = Duration::from_secs(3600);
    let settings = Settings { poll: hour, slow_poll: hour, concurrency, ..quick("a", failpoints) };
    (Engine::start(store.clone(), Registry::new().with::<Wait>(doors.clone()), settings).await.unwrap(), store)
}

#[tokio::test(flavor = "multi_thread")]
async fn workflow_that_found_no_place_is_claimed_when_another_has_ended() {
    let db = test_db().await;
    let doors = Arc::new(Doors::default());
    let failpoints = Failpoints::default();
    let (engine, store) = engine_without_polls(&db, &doors, &failpoints, 1).await;
    doors.open.lock().unwrap().insert("d".into());
    let first = begin_and_pause(&engine, &store, &failpoints).await;
    let second = begin::<Wait>(&engine, &store, &long("d")).await;
    // Time to look, and to find no place.
    tokio::time::sleep(Duration::from_millis(100)).await;
    failpoints.clear("wait/door/do/after_effect");
    for id in [first, second] {
        assert_eq!(ended(&engine, id).await.status, "done");
    }
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workflow_that_another_engine_wakes_while_it_runs_is_continued_at_once() {
    let db = test_db().await;
    let doors = Arc::new(Doors::default());
    let failpoints = Failpoints::default();
    let (engine, store) = engine_without_polls(&db, &doors, &failpoints, 2).await;
    let id = begin_and_pause(&engine, &store, &failpoints).await;
    doors.open.lock().unwrap().insert("d".into());
    sqlx::query("update workflow set woken = true, run_at = now()").execute(&mut *store.acquire().await.unwrap()).await.unwrap();
    failpoints.clear("wait/door/do/after_effect");
    assert_eq!(ended(&engine, id).await.status, "done");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deadline_wakes_and_counts_from_the_first_pass() {
    let db = test_db().await;
    let doors = Arc::new(Doors::default());
    let (engine, store) = engine_without_slow_poll(&db, &doors, &Failpoints::default()).await;
    let id = begin::<Wait>(&engine, &store, &("shut".to_owned(), 300)).await;
    let view = ended(&engine, id).await;
    assert_eq!(view.failure.unwrap().code, "deadline");
    let step = &view.steps[0];
    let took = step.finished_at.unwrap().duration_since(*step.started_at.unwrap());
    assert!(took >= Duration::from_millis(300).try_into().unwrap(), "{took}");
    engine.stop().await;
}
