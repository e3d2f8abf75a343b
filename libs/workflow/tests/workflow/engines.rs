//! Several engines: a workflow is run by one of them at a time, whatever happens to the engines.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drover_service::Tasks;
use drover_store::Store;
use drover_store::failpoint::{Action, Failpoints};
use drover_testkit::{eventually, test_db};
use drover_workflow::testing::{Fixture, quick};
use drover_workflow::{Ctx, Engine, Outcome, Registry, Settings, Step, StepResult, Steps, Workflow};
use sqlx::PgConnection;
use tokio_util::sync::CancellationToken;

use crate::fixture::{Move, Moving, begin, ended, store};

const SECONDS: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn engine_paused_past_its_lease_cannot_write() {
    let (_ground, fixture) = Moving::alone().await;
    // Both the step and the heartbeat pause, as after SIGSTOP.
    let stopped = Failpoints::default();
    stopped.set("move/copy/do/after_effect", Action::Pause);
    let settings = Settings { lease: Duration::from_millis(300), ..quick("a", &stopped) };
    let a = Engine::start(fixture.store(), fixture.registry(), settings).await.unwrap();
    let id = begin::<Move>(&a, &fixture.store, &fixture.input()).await;
    eventually(SECONDS, async || stopped.is_paused("move/copy/do/after_effect").then_some(())).await;
    stopped.set("engine/heartbeat", Action::Pause);
    let first = a.get(id).await.unwrap().unwrap().fence;

    let held_up = Failpoints::default();
    held_up.set("move/cut_over/do/before", Action::Pause);
    let b = fixture.engine("b", &held_up).await;
    fixture.outside(&b).await;
    eventually(SECONDS, async || held_up.is_paused("move/cut_over/do/before").then_some(())).await;
    let taken_over = b.get(id).await.unwrap().unwrap();
    assert!(taken_over.fence > first, "the engine that takes over has a higher fence");

    // While the new engine is in the middle, the old one goes on and tries to journal its copy: nothing changes.
    stopped.clear("move/copy/do/after_effect");
    stopped.clear("engine/heartbeat");
    a.stop().await;
    let after = b.get(id).await.unwrap().unwrap();
    assert_eq!((after.revision, after.fence), (taken_over.revision, taken_over.fence));
    held_up.clear("move/cut_over/do/before");
    fixture.check_done(&ended(&b, id).await).await.unwrap();
    // A remote write of the old engine is refused by its fence.
    let copy = fixture.member.names().into_iter().find(|name| name.starts_with("copy-")).unwrap();
    assert!(fixture.member.put(&copy, first).is_err());
    b.stop().await;
}

/// The commit of a step's end does not wait for the disk, so a crash of Postgres can lose it while the engine that wrote it runs on.
#[tokio::test(flavor = "multi_thread")]
async fn step_whose_end_postgres_has_lost_is_done_again() {
    let (_ground, fixture) = Moving::alone().await;
    let failpoints = Failpoints::default();
    failpoints.set("move/ready/do/before", Action::Pause);
    let engine = fixture.engine("a", &failpoints).await;
    let id = begin::<Move>(&engine, &fixture.store, &fixture.input()).await;
    eventually(SECONDS, async || failpoints.is_paused("move/ready/do/before").then_some(())).await;

    // What the row and the journal are without the end of `copy`.
    let mut tx = fixture.store.begin().await.unwrap();
    for lost in [
        "update workflow set seq = seq - 1, step = 'copy', state = 'null', revision = revision - 1 where id = $1 and step = 'ready'",
        "update workflow_step set status = 'started', output = null, finished_at = null where workflow_id = $1 and name = 'copy' and status = 'done'",
    ] {
        assert_eq!(sqlx::query(lost).bind(id).execute(&mut *tx).await.unwrap().rows_affected(), 1);
    }
    tx.commit().await.unwrap();
    failpoints.record();
    failpoints.clear("move/ready/do/before");

    fixture.outside(&engine).await;
    fixture.check_done(&ended(&engine, id).await).await.unwrap();
    assert!(failpoints.recorded().contains(&"move/copy/do/after_effect".to_owned()), "the step was not done again");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_takes_its_workflows_back_before_the_lease_ends() {
    let (_ground, fixture) = Moving::alone().await;
    let failpoints = Failpoints::default();
    failpoints.set("move/copy/do/before", Action::Pause);
    // The lease is far longer than the test, so only the name can be the reason that the workflow goes on.
    let settings = || Settings { lease: Duration::from_secs(3600), ..quick("orchestrator-0", &failpoints) };
    let engine = Engine::start(fixture.store(), fixture.registry(), settings()).await.unwrap();
    let id = begin::<Move>(&engine, &fixture.store, &fixture.input()).await;
    eventually(SECONDS, async || failpoints.is_paused("move/copy/do/before").then_some(())).await;
    let first = engine.get(id).await.unwrap().unwrap().fence;
    engine.kill().await;
    failpoints.clear("move/copy/do/before");

    let again = Engine::start(fixture.store(), fixture.registry(), settings()).await.unwrap();
    fixture.outside(&again).await;
    let view = ended(&again, id).await;
    assert!(view.fence > first);
    fixture.check_done(&view).await.unwrap();
    again.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_gives_workflows_back_before_the_lease_ends() {
    let (_ground, fixture) = Moving::alone().await;
    let failpoints = Failpoints::default();
    let settings = Settings { lease: Duration::from_secs(3600), ..quick("a", &failpoints) };
    let a = Engine::start(fixture.store(), fixture.registry(), settings).await.unwrap();
    failpoints.set("move/hold/do/before", Action::Pause);
    let id = begin::<Move>(&a, &fixture.store, &fixture.input()).await;
    eventually(SECONDS, async || failpoints.is_paused("move/hold/do/before").then_some(())).await;
    let stopping = tokio::spawn({
        let a = a.clone();
        async move { a.stop().await }
    });
    failpoints.clear("move/hold/do/before");
    stopping.await.unwrap();
    let b = fixture.engine("b", &Failpoints::default()).await;
    fixture.outside(&b).await;
    fixture.check_done(&ended(&b, id).await).await.unwrap();
    b.stop().await;
}

struct Five;
impl Workflow for Five {
    const KIND: &'static str = "five";
    const VERSION: i32 = 1;
    type Environment = ();
    type Input = ();
    type State = i32;
    fn steps() -> Steps<Self> {
        Steps::new()
            .step(Step::local("one", write))
            .step(Step::local("two", write))
            .step(Step::remote("three", nothing))
            .step(Step::local("four", write))
            .step(Step::local("five", write))
    }
}

async fn write(ctx: &mut Ctx<Five>, tx: &mut PgConnection) -> StepResult {
    ctx.state += 1;
    sqlx::query("insert into effect (workflow, step) values ($1, $2)").bind(ctx.id).bind(ctx.state.to_string()).execute(&mut *tx).await?;
    Ok(Outcome::next())
}

async fn nothing(ctx: &mut Ctx<Five>) -> StepResult {
    tokio::task::yield_now().await;
    ctx.progress("three");
    Ok(Outcome::next())
}

async fn five(store: &Store, name: &str) -> Engine {
    let settings = Settings { lease: Duration::from_secs(2), concurrency: 4, ..quick(name, &Failpoints::default()) };
    Engine::start(store.clone(), Registry::new().with::<Five>(Arc::new(())), settings).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn local_effects_happen_once_when_engines_are_killed() {
    const WORKFLOWS: i64 = 150;
    let db = test_db().await;
    let store = store(&db).await;
    let starter = five(&store, "starter").await;
    let mut tx = store.begin().await.unwrap();
    for _ in 0..WORKFLOWS {
        starter.start_in_tx::<Five>(&mut tx, uuid::Uuid::now_v7(), &()).await.unwrap();
    }
    tx.commit().await.unwrap();
    let all_ended = async || {
        let left: i64 = sqlx::query_scalar("select count(*) from workflow where ended_at is null")
            .fetch_one(&mut *store.acquire().await.unwrap())
            .await
            .unwrap();
        left == 0
    };
    // Three engines are killed again and again at random moments; some come back under another name.
    let mut kills = 0;
    let mut engines = vec![starter, five(&store, "one").await, five(&store, "two").await];
    let deadline = std::time::Instant::now() + Duration::from_secs(300);
    while !all_ended().await {
        assert!(std::time::Instant::now() < deadline, "the workflows do not end");
        let pause = Duration::from_micros(uuid::Uuid::new_v4().as_u128() as u64 % 10_000);
        tokio::time::sleep(pause).await;
        let name = ["starter", "one", "two", "other"][kills % 4];
        engines.remove(0).kill().await;
        engines.push(five(&store, name).await);
        kills += 1;
    }
    for engine in engines {
        engine.stop().await;
    }
    assert!(kills > 3, "too few engines died to show anything: {kills}");
    let (effects, distinct): (i64, i64) = sqlx::query_as("select count(*), count(distinct (workflow, step)) from effect")
        .fetch_one(&mut *store.acquire().await.unwrap())
        .await
        .unwrap();
    assert_eq!((effects, distinct), (WORKFLOWS * 4, WORKFLOWS * 4));
    let done: i64 = sqlx::query_scalar("select count(*) from workflow where status = 'done'")
        .fetch_one(&mut *store.acquire().await.unwrap())
        .await
        .unwrap();
    assert_eq!(done, WORKFLOWS);
}

#[tokio::test(flavor = "multi_thread")]
async fn later_engine_replaces_an_earlier_one_of_the_same_name() {
    let db = test_db().await;
    let store = store(&db).await;
    let earlier = five(&store, "same").await;
    let later = five(&store, "same").await;
    let id = begin::<Five>(&earlier, &store, &()).await;
    ended(&later, id).await;
    let incarnation: uuid::Uuid = sqlx::query_scalar("select incarnation from workflow where id = $1")
        .bind(id)
        .fetch_one(&mut *store.acquire().await.unwrap())
        .await
        .unwrap();
    let named: uuid::Uuid = sqlx::query_scalar("select incarnation from worker where name = 'same'")
        .fetch_one(&mut *store.acquire().await.unwrap())
        .await
        .unwrap();
    assert_eq!(incarnation, named);
    later.stop().await;
    earlier.stop().await;
}

/// Not a test: an engine in another process for the tests below. It works until it is killed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "started by other tests"]
async fn another_process() {
    let Ok(url) = std::env::var("WORKFLOW_TEST_URL") else { return };
    let config = drover_store::StoreConfig {
        idle_transaction_timeout: Duration::from_secs(1),
        ..drover_store::StoreConfig::new("orchestrator", url.into())
    };
    let store = Store::connect(&config, &[]).await.unwrap();
    let settings = Settings { lease: Duration::from_millis(600), ..quick("another", &Failpoints::of_process()) };
    let _engine = Engine::start(store, Registry::new().with::<Five>(Arc::new(())), settings).await.unwrap();
    std::future::pending::<()>().await;
}

struct Another(std::process::Child);

impl Another {
    fn start(url: &secrecy::SecretString, failpoints: &str, markers: &std::path::Path) -> Self {
        use secrecy::ExposeSecret;
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "engines::another_process", "--ignored"]);
        command.env("WORKFLOW_TEST_URL", url.expose_secret()).env("DROVER_FAILPOINTS", failpoints).env("DROVER_FAILPOINTS_DIR", markers);
        Self(command.stdout(std::process::Stdio::null()).spawn().unwrap())
    }

    fn signal(&self, signal: &str) {
        let status = std::process::Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Another {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workflow_of_a_killed_process_is_finished_by_another() {
    let db = test_db().await;
    let store = store(&db).await;
    for point in ["do_before", "do_after_effect", "do_after_journal"] {
        let markers = tempfile::tempdir().unwrap();
        let name = format!("five/four/{}", point.replacen('_', "/", 1));
        let another = Another::start(&db.url, &format!("{name}=pause"), markers.path());
        let idle = Engine::start(store.clone(), Registry::new(), quick("starter", &Failpoints::default())).await.unwrap();
        let id = begin::<Five>(&idle, &store, &()).await;
        let marker = markers.path().join(format!("five_four_{point}"));
        eventually(SECONDS, async || marker.exists().then_some(())).await;
        another.signal("-KILL");
        let successor = five(&store, "another").await;
        assert_eq!(ended(&successor, id).await.status, "done");
        let effects: i64 = sqlx::query_scalar("select count(*) from effect where workflow = $1")
            .bind(id)
            .fetch_one(&mut *store.acquire().await.unwrap())
            .await
            .unwrap();
        assert_eq!(effects, 4, "{point}");
        successor.stop().await;
        idle.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn process_stopped_past_its_lease_changes_nothing_when_it_continues() {
    let db = test_db().await;
    let store = store(&db).await;
    let markers = tempfile::tempdir().unwrap();
    // SIGSTOP comes at any moment in the middle of many workflows.
    let another = Another::start(&db.url, "", markers.path());
    let idle = Engine::start(store.clone(), Registry::new(), quick("starter", &Failpoints::default())).await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..40 {
        ids.push(begin::<Five>(&idle, &store, &()).await);
    }
    let journaled = async || {
        let rows: i64 =
            sqlx::query_scalar("select count(*) from workflow_step").fetch_one(&mut *store.acquire().await.unwrap()).await.unwrap();
        (rows > 20).then_some(())
    };
    eventually(SECONDS, journaled).await;
    another.signal("-STOP");
    let successor = five(&store, "successor").await;
    for id in &ids {
        assert_eq!(ended(&successor, *id).await.status, "done");
    }
    let image = async || {
        let steps: String = sqlx::query_scalar("select md5(string_agg(s::text, '' order by workflow_id, seq)) from workflow_step s")
            .fetch_one(&mut *store.acquire().await.unwrap())
            .await
            .unwrap();
        let effects: i64 = sqlx::query_scalar("select count(*) from effect").fetch_one(&mut *store.acquire().await.unwrap()).await.unwrap();
        (steps, effects)
    };
    let before = image().await;
    assert_eq!(before.1, 40 * 4);
    another.signal("-CONT");
    // When it continues it renews its lease, and its drivers try to go on with the workflows that they had.
    eventually(SECONDS, async || {
        let awake: Option<bool> = sqlx::query_scalar("select lease_until > now() from worker where name = 'another'")
            .fetch_one(&mut *store.acquire().await.unwrap())
            .await
            .unwrap();
        awake.filter(|awake| *awake)
    })
    .await;
    let mine = begin::<Five>(&successor, &store, &()).await;
    ended(&successor, mine).await;
    sqlx::query("delete from effect where workflow = $1").bind(mine).execute(&mut *store.acquire().await.unwrap()).await.unwrap();
    sqlx::query("delete from workflow_step where workflow_id = $1").bind(mine).execute(&mut *store.acquire().await.unwrap()).await.unwrap();
    assert_eq!(image().await, before);
    successor.stop().await;
    idle.stop().await;
}

static PANICS: AtomicBool = AtomicBool::new(true);

/// Its condition, which the engine asks outside of any step, panics once.
struct Panicking;
impl Workflow for Panicking {
    const KIND: &'static str = "panicking";
    const VERSION: i32 = 1;
    type Environment = ();
    type Input = ();
    type State = ();
    fn steps() -> Steps<Self> {
        let conditional = Step::remote("conditional", async |_: &mut Ctx<Self>| Ok(Outcome::next())).when(|(), ()| {
            assert!(!PANICS.swap(false, Ordering::SeqCst), "a condition that panics");
            true
        });
        Steps::new().step(conditional).step(Step::remote("last", async |_: &mut Ctx<Self>| Ok(Outcome::next())))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workflow_is_driven_again_after_its_driver_panicked() {
    let db = test_db().await;
    let store = store(&db).await;
    let registry = Registry::new().with::<Panicking>(Arc::new(()));
    let engine = Engine::start(store.clone(), registry, quick("a", &Failpoints::default())).await.unwrap();
    let id = begin::<Panicking>(&engine, &store, &()).await;
    let view = ended(&engine, id).await;
    assert_eq!(view.status, "done");
    assert!(!PANICS.load(Ordering::SeqCst));
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn engine_whose_name_is_taken_ends_its_process() {
    let (_ground, fixture) = Moving::alone().await;
    let shutdown = CancellationToken::new();
    let tasks = Tasks::new(shutdown.clone());
    let settings = Settings { tasks: tasks.clone(), lease: Duration::from_secs(2), ..quick("orchestrator-0", &Failpoints::default()) };
    let first = Engine::start(fixture.store(), fixture.registry(), settings).await.unwrap();
    assert_eq!((tasks.unready(), tasks.fatal()), (Vec::new(), None));
    let second = fixture.engine("orchestrator-0", &Failpoints::default()).await;
    tokio::time::timeout(SECONDS, shutdown.cancelled()).await.expect("the process is asked to end");
    let why = tasks.fatal().unwrap_or_default();
    assert!(why.contains("orchestrator-0") && why.contains("--instance"), "{why}");
    assert!(!tasks.unready().is_empty(), "/readyz fails until the process has ended");
    first.stop().await;
    // The lease of the second one was not given back by the first.
    let id = begin::<Move>(&second, &fixture.store, &fixture.input()).await;
    fixture.outside(&second).await;
    fixture.check_done(&ended(&second, id).await).await.unwrap();
    second.stop().await;
}
