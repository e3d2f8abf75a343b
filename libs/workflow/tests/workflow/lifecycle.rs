//! A single workflow: cancel, failure before and after the pivot, rounds, panics, unknown versions, watching.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use drover_store::failpoint::{Action, Failpoints};
use drover_testkit::{ChaosProxy, eventually, test_db};
use drover_workflow::testing::{Fixture, quick};
use drover_workflow::{CancelError, Ctx, Engine, ListFilter, Outcome, Registry, Step, StepError, StepResult, Steps, Workflow};
use futures::StreamExt;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::fixture::{Extra, Move, Moving, begin, ended, store};

const SECONDS: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn cancel_undoes_before_the_pivot_and_is_refused_after_it() {
    let (_ground, fixture) = Moving::alone().await;
    let failpoints = Failpoints::default();
    let engine = fixture.engine("a", &failpoints).await;
    assert!(matches!(engine.cancel(Uuid::now_v7()).await, Err(CancelError::NotFound)));

    // While it waits for a copy that does not get ready.
    let id = begin::<Move>(&engine, &fixture.store, &fixture.input()).await;
    eventually(SECONDS, async || engine.get(id).await.unwrap().unwrap().message.filter(|message| message.contains("not ready"))).await;
    engine.cancel(id).await.unwrap();
    let view = ended(&engine, id).await;
    assert_eq!((view.status.as_str(), view.failure.clone().unwrap().code.as_str()), ("cancelled", "cancelled"));
    let undone: Vec<_> = view.steps.iter().map(|step| (step.name.as_str(), step.status.as_str())).collect();
    assert_eq!(undone, [("hold", "undone"), ("copy", "undone"), ("ready", "undone")]);
    fixture.check_undone(&view).await.unwrap();
    assert!(matches!(engine.cancel(id).await, Err(CancelError::Ended)));

    // Children are undone first: one of them is paused in the middle, and the parent waits for it.
    failpoints.set("extra/note_extra/do/before", Action::Pause);
    let id = begin::<Move>(&engine, &fixture.store, &fixture.input()).await;
    fixture.outside(&engine).await;
    eventually(SECONDS, async || failpoints.is_paused("extra/note_extra/do/before").then_some(())).await;
    engine.cancel(id).await.unwrap();
    eventually(SECONDS, async || engine.get(id).await.unwrap().filter(|view| view.status == "undoing")).await;
    assert!(fixture.member.names().iter().any(|name| name.starts_with("copy-")), "the parent waits for its children");
    failpoints.clear("extra/note_extra/do/before");
    let view = ended(&engine, id).await;
    assert_eq!(view.status, "cancelled");
    fixture.check_undone(&view).await.unwrap();
    let children = engine.list(&ListFilter { parent: Some(id), limit: 10, ..ListFilter::default() }).await.unwrap();
    assert!(children.len() == 2 && children.iter().all(|child| child.ended()), "{children:#?}");
    let oldest_first: Vec<_> = children.iter().rev().map(|child| child.id).collect();
    let (parent, of_family) = engine.family(id).await.unwrap().unwrap();
    for read in [of_family, engine.children(&[id]).await.unwrap()] {
        assert_eq!(read.iter().map(|child| child.id).collect::<Vec<_>>(), oldest_first);
        assert!(read.iter().all(|child| child.parent_id == Some(id) && child.steps.is_empty()), "{read:#?}");
    }
    assert!(parent.id == id && !parent.steps.is_empty(), "{parent:#?}");

    failpoints.set("move/remove_old/do/before", Action::Pause);
    let id = begin::<Move>(&engine, &fixture.store, &fixture.input()).await;
    eventually(SECONDS, async || failpoints.is_paused("move/remove_old/do/before").then_some(())).await;
    assert!(matches!(engine.cancel(id).await, Err(CancelError::PastThePivot)));
    failpoints.clear("move/remove_old/do/before");
    assert_eq!(ended(&engine, id).await.status, "done");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_after_the_pivot_keeps_effects_and_runs_final_steps() {
    let (_ground, fixture) = Moving::alone().await;
    let failpoints = Failpoints::default();
    failpoints.set("move/remove_old/do/before", Action::Fatal);
    let engine = fixture.engine("a", &failpoints).await;
    let id = begin::<Move>(&engine, &fixture.store, &fixture.input()).await;
    fixture.outside(&engine).await;
    let view = ended(&engine, id).await;
    assert_eq!((view.status.as_str(), view.past_pivot, view.failure.clone().unwrap().code.as_str()), ("failed", true, "injected"));
    let steps: Vec<_> = view.steps.iter().map(|step| (step.name.as_str(), step.status.as_str())).collect();
    assert_eq!(steps[4..], [("cut_over", "done"), ("remove_old", "failed"), ("let_go", "done")]);
    let (held, moved): (i64, i64) = sqlx::query_as("select (select count(*) from held), (select count(*) from moved)")
        .fetch_one(&mut *fixture.store.acquire().await.unwrap())
        .await
        .unwrap();
    assert_eq!((held, moved), (0, 1), "what was moved stays moved, and nothing is held");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_child_is_an_outcome_for_its_parent() {
    let (_ground, fixture) = Moving::alone().await;
    let failpoints = Failpoints::default();
    failpoints.set("extra/put_extra/do/after_effect", Action::Fatal);
    let engine = fixture.engine("a", &failpoints).await;
    let id = begin::<Move>(&engine, &fixture.store, &fixture.input()).await;
    fixture.outside(&engine).await;
    let view = ended(&engine, id).await;
    let failure = view.failure.clone().unwrap();
    assert_eq!((view.status.as_str(), failure.code.as_str()), ("failed", "extra_failed"));
    assert_eq!(failure.reasons[0]["code"], "injected");
    fixture.check_undone(&view).await.unwrap();
    engine.stop().await;
}

struct Rounds;
impl Workflow for Rounds {
    const KIND: &'static str = "rounds";
    const VERSION: i32 = 1;
    type Environment = AtomicI32;
    type Input = i32;
    type State = Vec<i32>;
    fn steps() -> Steps<Self> {
        Steps::new().step(Step::local("plan", plan)).step(Step::remote("try", attempt).attempts(3))
    }
}

async fn plan(ctx: &mut Ctx<Rounds>, _: &mut PgConnection) -> StepResult {
    ctx.state.push(ctx.round);
    Ok(Outcome::next())
}

async fn attempt(ctx: &mut Ctx<Rounds>) -> StepResult {
    ctx.environment.fetch_add(1, Ordering::Relaxed);
    match ctx.input {
        // Works in the third round.
        1 if ctx.round == 3 => Outcome::output("at last"),
        1 => Ok(Outcome::Repeat("plan")),
        2 if ctx.round == 3 => Err(StepError::fail("victim_busy", "three times busy")),
        2 => Ok(Outcome::Repeat("plan")),
        3 => panic!("a bug"),
        _ => Ok(Outcome::Repeat("nowhere")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rounds_are_journaled_and_bounded_and_panics_are_errors() {
    let db = test_db().await;
    let store = store(&db).await;
    let tries = Arc::new(AtomicI32::new(0));
    let engine =
        Engine::start(store.clone(), Registry::new().with::<Rounds>(tries.clone()), quick("a", &Failpoints::default())).await.unwrap();

    let view = ended(&engine, begin::<Rounds>(&engine, &store, &1).await).await;
    let rounds: Vec<_> = view.steps.iter().map(|step| (step.name.as_str(), step.round)).collect();
    assert_eq!((view.status.as_str(), rounds), ("done", vec![("plan", 1), ("try", 1), ("plan", 2), ("try", 2), ("plan", 3), ("try", 3)]));
    assert_eq!(view.state, serde_json::json!([1, 2, 3]));
    assert_eq!(view.steps[5].output, Some("at last".into()));

    let view = ended(&engine, begin::<Rounds>(&engine, &store, &2).await).await;
    assert_eq!((view.status.as_str(), view.failure.unwrap().code.as_str(), view.steps.len()), ("failed", "victim_busy", 6));

    tries.store(0, Ordering::Relaxed);
    let view = ended(&engine, begin::<Rounds>(&engine, &store, &3).await).await;
    assert_eq!((view.failure.unwrap().code.as_str(), tries.load(Ordering::Relaxed)), ("step_failed", 3));

    let view = ended(&engine, begin::<Rounds>(&engine, &store, &4).await).await;
    assert_eq!(view.failure.unwrap().code, "bad_repeat");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_version_is_refused_until_an_engine_knows_it() {
    let (_ground, fixture) = Moving::alone().await;
    let failpoints = Failpoints::default();
    let newer =
        Engine::start(fixture.store(), Registry::new().with::<Extra>(fixture.member.clone()), quick("newer", &failpoints)).await.unwrap();
    let id = begin::<Move>(&newer, &fixture.store, &fixture.input()).await;
    let view = eventually(SECONDS, async || newer.get(id).await.unwrap().filter(|view| view.status == "refused")).await;
    assert!(view.steps.is_empty() && !view.ended());
    assert_eq!(newer.list(&ListFilter { status: Some("refused".into()), limit: 5, ..ListFilter::default() }).await.unwrap().len(), 1);
    // The engine still runs the kinds that it knows.
    assert_eq!(ended(&newer, begin::<Extra>(&newer, &fixture.store, &0).await).await.status, "done");

    let older = fixture.engine("older", &failpoints).await;
    fixture.outside(&older).await;
    assert_eq!(ended(&older, id).await.status, "done");
    older.stop().await;
    newer.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_shows_every_change_and_the_end() {
    let (_ground, fixture) = Moving::alone().await;
    let engine = fixture.engine("a", &Failpoints::default()).await;
    let id = begin::<Move>(&engine, &fixture.store, &fixture.input()).await;
    // The second engine does not run the workflow and gets no events of it, so its watcher follows by polling.
    let distant = Engine::start(fixture.store(), Registry::new(), quick("b", &Failpoints::default())).await.unwrap();
    for watcher in [&engine, &distant] {
        let first = watcher.watch(id).next().await.unwrap().unwrap();
        assert_eq!((first.subject.as_str(), first.ended()), ("shop/cart", false));
    }
    let pending = eventually(SECONDS, async || engine.get(id).await.unwrap().filter(|view| view.message.is_some())).await;
    let stages: Vec<_> = pending.steps.iter().map(|step| (step.name.as_str(), step.status.as_str())).collect();
    assert_eq!(stages[..3], [("hold", "done"), ("copy", "done"), ("ready", "started")]);
    assert_eq!(
        stages[3..],
        [("copy_anew", "pending"), ("extras", "pending"), ("cut_over", "pending"), ("remove_old", "pending"), ("let_go", "pending")]
    );
    let watching = tokio::spawn(distant.watch(id).map(Result::unwrap).collect::<Vec<_>>());
    fixture.outside(&engine).await;
    let seen = tokio::time::timeout(SECONDS, watching).await.unwrap().unwrap();
    assert_eq!(seen.last().unwrap().status, "done");
    assert!(seen.windows(2).all(|pair| pair[0].revision < pair[1].revision));

    // Pages list the newest first, without gaps or duplicates.
    let mut filter = ListFilter { limit: 2, ..ListFilter::default() };
    let mut listed = Vec::new();
    loop {
        let page = engine.list(&filter).await.unwrap();
        let Some(last) = page.last() else { break };
        filter.after = Some((last.created_at, last.id));
        listed.extend(page.iter().map(|view| view.id));
    }
    assert_eq!(listed.len(), 3);
    assert_eq!(listed.iter().collect::<std::collections::HashSet<_>>().len(), 3);
    let roots =
        engine.list(&ListFilter { roots: true, subject: Some("shop/cart".into()), limit: 10, ..ListFilter::default() }).await.unwrap();
    assert_eq!(roots.iter().map(|view| view.id).collect::<Vec<_>>(), [id]);
    engine.stop().await;
    distant.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_database_connection_only_delays_a_workflow() {
    let (ground, fixture) = Moving::alone().await;
    let proxy = ChaosProxy::start(ground.db.address()).await;
    let config = drover_store::StoreConfig {
        acquire_timeout: Duration::from_millis(200),
        ..drover_store::StoreConfig::new("orchestrator", ground.db.url_through(proxy.address()))
    };
    // On a slow machine the first attempts may take longer than that.
    let distant = eventually(SECONDS, async || drover_store::Store::connect(&config, &[]).await.ok()).await;
    let failpoints = Failpoints::default();
    failpoints.set("move/copy/do/after_effect", Action::Pause);
    let start = async || Engine::start(distant.clone(), fixture.registry(), quick("a", &failpoints)).await.ok();
    let engine = eventually(SECONDS, start).await;
    let id = begin::<Move>(&engine, &fixture.store, &fixture.input()).await;
    eventually(SECONDS, async || failpoints.is_paused("move/copy/do/after_effect").then_some(())).await;
    // The effect is made, but the journal cannot be written.
    proxy.cut();
    failpoints.clear("move/copy/do/after_effect");
    eventually(SECONDS, async || (engine.get(id).await.is_err()).then_some(())).await;
    fixture.outside(&engine).await;
    proxy.restore();
    let view = eventually(SECONDS, async || engine.get(id).await.ok().flatten().filter(|view| view.ended())).await;
    fixture.check_done(&view).await.unwrap();
    engine.stop().await;
}
