//! A small workflow with every kind of step: hold, copy to a member, wait, a step that is always skipped, two children, pivot, remove the
//! old copy, release the hold.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use drover_store::failpoint::Failpoints;
use drover_store::{MigrationSet, Store, StoreConfig};
use drover_testkit::{TestDb, test_db, truncate};
use drover_workflow::testing::{Fixture, quick};
use drover_workflow::{Child, Ctx, Engine, Outcome, Registry, Step, StepError, StepResult, Steps, Workflow, WorkflowView};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use uuid::Uuid;

/// A simulated member: keeps things by name and refuses lower fences, as the resource synchronizer does.
#[derive(Default)]
pub struct Member {
    pub things: Mutex<BTreeMap<String, i64>>,
    pub refused: Mutex<Vec<String>>,
    pub ready: Mutex<bool>,
}

#[derive(Debug)]
pub struct StaleFence;
impl std::fmt::Display for StaleFence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("stale fence")
    }
}
impl std::error::Error for StaleFence {}

impl Member {
    pub fn put(&self, name: &str, fence: i64) -> Result<(), StaleFence> {
        let mut things = self.things.lock().unwrap();
        if things.get(name).is_some_and(|newer| *newer > fence) {
            self.refused.lock().unwrap().push(name.to_owned());
            return Err(StaleFence);
        }
        things.insert(name.to_owned(), fence);
        Ok(())
    }

    pub fn remove(&self, name: &str) {
        self.things.lock().unwrap().remove(name);
    }

    pub fn names(&self) -> Vec<String> {
        self.things.lock().unwrap().keys().cloned().collect()
    }
}

pub struct Move;

#[derive(Serialize, Deserialize, Default)]
pub struct Progress {
    pub copied: Option<String>,
}

#[derive(Serialize, Deserialize, Clone)]
pub struct Order {
    pub thing: String,
}

impl Workflow for Move {
    const KIND: &'static str = "move";
    const VERSION: i32 = 1;
    type Environment = Member;
    type Input = Order;
    type State = Progress;

    fn subject(order: &Order) -> String {
        order.thing.clone()
    }

    fn steps() -> Steps<Self> {
        Steps::new()
            // First, so that no other workflow moves the same thing meanwhile.
            .step(Step::local("hold", hold).undo_local(let_go))
            .step(Step::remote("copy", copy).undo(remove_copy))
            .step(Step::wait("ready", ready))
            // Always skipped, without a trace in the journal.
            .step(Step::remote("copy_anew", copy_anew).when(|_, state: &Progress| state.copied.is_none()))
            .step(
                Step::children("extras", spawn_extras, collect_extras)
                    .when(|_, state: &Progress| state.copied.is_some())
                    .undo(remove_extras),
            )
            .pivot(Step::local("cut_over", cut_over))
            // After the pivot, because the old copy serves until then.
            .step(Step::remote("remove_old", remove_old))
            .finally(Step::local("let_go", let_go))
    }
}

async fn hold(ctx: &mut Ctx<Move>, tx: &mut PgConnection) -> StepResult {
    sqlx::query("insert into held (thing, workflow) values ($1, $2)").bind(&ctx.input.thing).bind(ctx.id).execute(&mut *tx).await?;
    count(ctx.id, "hold", tx).await
}

async fn let_go(ctx: &mut Ctx<Move>, tx: &mut PgConnection) -> StepResult {
    sqlx::query("delete from held where workflow = $1").bind(ctx.id).execute(tx).await?;
    Ok(Outcome::next())
}

/// Inserts a row each time that a local step is committed.
async fn count(id: Uuid, step: &str, tx: &mut PgConnection) -> StepResult {
    sqlx::query("insert into effect (workflow, step) values ($1, $2)").bind(id).bind(step).execute(tx).await?;
    Ok(Outcome::next())
}

async fn copy(ctx: &mut Ctx<Move>) -> StepResult {
    let name = format!("copy-{}", ctx.derived_id("copy"));
    ctx.environment.put(&name, ctx.fence)?;
    ctx.state.copied = Some(name.clone());
    Outcome::output(name)
}

async fn remove_copy(ctx: &mut Ctx<Move>) -> StepResult {
    // The name is not taken from the state: the step may have been started and its end never journaled.
    ctx.environment.remove(&format!("copy-{}", ctx.derived_id("copy")));
    Ok(Outcome::next())
}

async fn ready(ctx: &mut Ctx<Move>) -> StepResult {
    if *ctx.environment.ready.lock().unwrap() {
        return Ok(Outcome::next());
    }
    ctx.progress("the copy is not ready yet");
    Ok(Outcome::park(["member"]).until(ctx.deadline(Duration::from_secs(60))))
}

async fn copy_anew(_: &mut Ctx<Move>) -> StepResult {
    Err(StepError::fail("not_due", "there is a copy"))
}

async fn spawn_extras(ctx: &mut Ctx<Move>, _: &mut PgConnection) -> Result<Vec<Child>, StepError> {
    (0..2).map(|n| Child::new::<Extra>(ctx.derived_id(&format!("extra-{n}")), &n)).collect()
}

async fn collect_extras(ctx: &mut Ctx<Move>, tx: &mut PgConnection) -> StepResult {
    if let Some(failed) = ctx.children.iter().find(|child| !child.done) {
        return Err(StepError::fail("extra_failed", "an extra failed").reasons([failed.failure.clone()]));
    }
    count(ctx.id, "extras", tx).await
}

async fn remove_extras(ctx: &mut Ctx<Move>) -> StepResult {
    // Children that are done have not undone themselves.
    for child in &ctx.children {
        ctx.environment.remove(&format!("extra-{}", child.id));
    }
    Ok(Outcome::next())
}

async fn cut_over(ctx: &mut Ctx<Move>, tx: &mut PgConnection) -> StepResult {
    sqlx::query("insert into moved (thing) values ($1)").bind(&ctx.input.thing).execute(&mut *tx).await?;
    count(ctx.id, "cut_over", tx).await
}

async fn remove_old(ctx: &mut Ctx<Move>) -> StepResult {
    ctx.environment.remove("old");
    Ok(Outcome::next())
}

pub struct Extra;

impl Workflow for Extra {
    const KIND: &'static str = "extra";
    const VERSION: i32 = 1;
    type Environment = Member;
    type Input = i32;
    type State = ();

    fn steps() -> Steps<Self> {
        Steps::new().step(Step::remote("put_extra", put_extra).undo(remove_extra)).step(Step::local("note_extra", note_extra))
    }
}

async fn put_extra(ctx: &mut Ctx<Extra>) -> StepResult {
    ctx.environment.put(&format!("extra-{}", ctx.id), ctx.fence)?;
    Ok(Outcome::next())
}

async fn remove_extra(ctx: &mut Ctx<Extra>) -> StepResult {
    ctx.environment.remove(&format!("extra-{}", ctx.id));
    Ok(Outcome::next())
}

async fn note_extra(ctx: &mut Ctx<Extra>, tx: &mut PgConnection) -> StepResult {
    count(ctx.id, "note_extra", tx).await
}

/// A database with the tables of the engine and of the workflows here.
pub struct Ground {
    pub db: TestDb,
    pub store: Store,
}

impl Ground {
    pub async fn new() -> Self {
        let db = test_db().await;
        Self { store: store(&db).await, db }
    }
}

/// A store and a member for one [`Move`].
pub struct Moving {
    pub store: Store,
    pub member: Arc<Member>,
}

pub async fn store(db: &TestDb) -> Store {
    connect(&StoreConfig::new("orchestrator", db.url.clone())).await
}

/// A store with the tables of the engine and of the workflows here.
pub async fn connect(config: &StoreConfig) -> Store {
    const TABLES: &str = "create table held (thing text primary key, workflow uuid); create table moved (thing text primary key); create table effect (workflow uuid, step text)";
    let tables = Migration::new(1, "test".into(), MigrationType::Simple, sqlx::SqlSafeStr::into_sql_str(TABLES), false);
    let sets = [drover_workflow::migrations(), MigrationSet::new("test", Migrator::with_migrations(vec![tables]))];
    Store::connect(config, &sets).await.unwrap()
}

#[async_trait]
impl Fixture for Moving {
    type Workflow = Move;
    type Ground = Ground;

    async fn ground() -> Ground {
        Ground::new().await
    }

    async fn fresh(ground: &Ground) -> Self {
        truncate(&ground.store).await;
        let member = Arc::new(Member::default());
        member.put("old", 0).unwrap();
        Self { store: ground.store.clone(), member }
    }

    fn store(&self) -> Store {
        self.store.clone()
    }

    fn registry(&self) -> Registry {
        Registry::new().with::<Move>(self.member.clone()).with::<Extra>(self.member.clone())
    }

    fn input(&self) -> Order {
        Order { thing: "shop/cart".into() }
    }

    async fn check_done(&self, view: &WorkflowView) -> Result<(), String> {
        let names = self.member.names();
        let copies = names.iter().filter(|name| name.starts_with("copy-")).count();
        let extras = names.iter().filter(|name| name.starts_with("extra-")).count();
        if (names.len(), copies, extras) != (3, 1, 2) {
            return Err(format!("the member has {names:?}"));
        }
        let steps: Vec<(String, i64)> = sqlx::query_as("select step, count(*) from effect group by step order by step")
            .fetch_all(&mut *self.store.acquire().await.unwrap())
            .await
            .unwrap();
        let once = [("cut_over", 1), ("extras", 1), ("hold", 1), ("note_extra", 2)];
        if steps != once.map(|(step, count)| (step.to_owned(), count)) {
            return Err(format!("local effects: {steps:?}"));
        }
        if view.steps.iter().any(|step| step.status != "done") {
            return Err("a step is not done".into());
        }
        self.counts(0, 1).await
    }

    async fn check_undone(&self, _: &WorkflowView) -> Result<(), String> {
        let names = self.member.names();
        if names != ["old"] {
            return Err(format!("the member has {names:?}"));
        }
        self.counts(0, 0).await
    }

    async fn outside(&self, engine: &Engine) {
        if !std::mem::replace(&mut *self.member.ready.lock().unwrap(), true) {
            engine.wake("member");
        }
    }
}

impl Moving {
    /// One on a new database, which exists as long as the ground does.
    pub async fn alone() -> (Ground, Self) {
        let ground = Ground::new().await;
        let moving = Self::fresh(&ground).await;
        (ground, moving)
    }

    async fn counts(&self, held: i64, moved: i64) -> Result<(), String> {
        let found: (i64, i64) = sqlx::query_as("select (select count(*) from held), (select count(*) from moved)")
            .fetch_one(&mut *self.store.acquire().await.unwrap())
            .await
            .unwrap();
        if found == (held, moved) { Ok(()) } else { Err(format!("held and moved: {found:?}")) }
    }

    pub async fn engine(&self, name: &str, failpoints: &Failpoints) -> Engine {
        Engine::start(self.store(), self.registry(), quick(name, failpoints)).await.unwrap()
    }
}

/// Starts a workflow; the engine runs it in the background.
pub async fn begin<W: Workflow>(engine: &Engine, store: &Store, input: &W::Input) -> Uuid {
    let id = Uuid::now_v7();
    let mut tx = store.begin().await.unwrap();
    assert!(engine.start_in_tx::<W>(&mut tx, id, input).await.unwrap());
    assert!(!engine.start_in_tx::<W>(&mut tx, id, input).await.unwrap(), "the same id starts nothing");
    tx.commit().await.unwrap();
    engine.nudge();
    id
}

/// Waits until the workflow has ended.
pub async fn ended(engine: &Engine, id: Uuid) -> WorkflowView {
    let view = engine.wait(id, Duration::from_secs(180)).await.unwrap().unwrap();
    assert!(view.ended(), "{view:#?}");
    view
}
