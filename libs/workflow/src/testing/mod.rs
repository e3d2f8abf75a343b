//! Six properties that every workflow must have, as tests: a crate implements [`Fixture`] and gets them by [`generic_tests!`].
//!
//! ```ignore
//! struct Small { … }
//! #[async_trait] impl Fixture for Small { type Workflow = Relocate; type Ground = TestDb; … }
//! drover_workflow::generic_tests!(Small);
//! ```
//!
//! | property | what is injected | what must hold at the end |
//! |---|---|---|
//! | [`steps_succeed_when_repeated`] | the first run of every step ends in an error after its effect | done, as without errors |
//! | [`every_pass_succeeds_when_repeated`] | the same in each later pass of a step that is run several times (a wait step that has parked) | done, as without errors |
//! | [`crash_between_any_two_effects`] | the process dies before and after each effect and each journal write | another engine finishes it |
//! | [`failure_at_any_step_unwinds`] | each step up to the pivot fails for good, before its effect and after it | undone, nothing is left |
//! | [`undo_succeeds_when_repeated`] | every undo is repeated; the process dies at each point of the undo | undone, nothing is left |
//! | [`nothing_leaks`] | a cancel before each step up to the pivot | cancelled and undone, no child is left running |
//!
//! Each property first records the failpoints that a run without errors passes and then visits all of them, each in a test run of its own
//! with an environment of its own. Only the database is used again: making one takes longer than a test run. A property that does not hold
//! panics with the name of the failpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use drover_store::Store;
use drover_store::failpoint::{Action, Failpoints};
use futures::StreamExt;
use uuid::Uuid;

use crate::{Engine, Registry, Settings, Workflow, WorkflowView};

/// How long one test run may take. It only guards against hanging.
const TIMEOUT: Duration = Duration::from_secs(300);
/// How many test runs go on at the same time.
const AT_ONCE: usize = 4;

/// An environment in which a workflow can be run, and the checks of what it leaves there.
#[async_trait]
pub trait Fixture: Send + Sync + Sized + 'static {
    /// The workflow under test.
    type Workflow: Workflow;
    /// A database with its tables, which test runs use one after the other.
    type Ground: Send + Sync;

    /// A new database.
    async fn ground() -> Self::Ground;
    /// A new environment with fake peers on this database, in which nothing may be left of an earlier test run. Its engines have ended.
    async fn fresh(ground: &Self::Ground) -> Self;
    /// A store whose schema has the engine's tables.
    fn store(&self) -> Store;
    /// The kinds of the workflow and its children, with the environment of their steps.
    fn registry(&self) -> Registry;
    /// What the workflow is started with.
    fn input(&self) -> <Self::Workflow as Workflow>::Input;
    /// Checks that everything is as it must be after success.
    ///
    /// # Errors
    /// It is not; the text says what is wrong.
    async fn check_done(&self, view: &WorkflowView) -> Result<(), String>;
    /// Checks that everything is as it was before the start.
    ///
    /// # Errors
    /// It is not; the text says what is wrong.
    async fn check_undone(&self, view: &WorkflowView) -> Result<(), String>;
    /// Does what happens outside without the workflow's doing, such as copies getting ready. It is called repeatedly while the workflow runs.
    async fn outside(&self, _engine: &Engine) {}
}

/// Declares one `#[tokio::test]` for each property of this module.
#[macro_export]
macro_rules! generic_tests {
    ($fixture:ty) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn steps_succeed_when_repeated() {
            $crate::testing::steps_succeed_when_repeated::<$fixture>().await;
        }
        #[tokio::test(flavor = "multi_thread")]
        async fn every_pass_succeeds_when_repeated() {
            $crate::testing::every_pass_succeeds_when_repeated::<$fixture>().await;
        }
        #[tokio::test(flavor = "multi_thread")]
        async fn crash_between_any_two_effects() {
            $crate::testing::crash_between_any_two_effects::<$fixture>().await;
        }
        #[tokio::test(flavor = "multi_thread")]
        async fn failure_at_any_step_unwinds() {
            $crate::testing::failure_at_any_step_unwinds::<$fixture>().await;
        }
        #[tokio::test(flavor = "multi_thread")]
        async fn undo_succeeds_when_repeated() {
            $crate::testing::undo_succeeds_when_repeated::<$fixture>().await;
        }
        #[tokio::test(flavor = "multi_thread")]
        async fn nothing_leaks() {
            $crate::testing::nothing_leaks::<$fixture>().await;
        }
    };
}

/// Settings with short times, for tests.
pub fn quick(name: &str, failpoints: &Failpoints) -> Settings {
    Settings {
        lease: Duration::from_secs(5),
        poll: Duration::from_millis(25),
        slow_poll: Duration::from_millis(100),
        backoff: Duration::from_millis(5),
        longest_backoff: Duration::from_millis(50),
        grace: Duration::from_secs(5),
        failpoints: failpoints.clone(),
        ..Settings::new(name)
    }
}

/// Every step is repeated once after its effect, because its first run ends in an error: the end is the same as without.
pub async fn steps_succeed_when_repeated<F: Fixture>() {
    let grounds = Grounds::<F>::default();
    let points = record(&grounds).await;
    let run = TestRun::fresh(&grounds).await;
    for point in points.iter().filter(|point| point.ends_with("/do/after_effect")) {
        run.failpoints.set(point, Action::ErrorOnce);
    }
    let view = run.to_end().await;
    run.expect_done(&view, "every effect repeated").await;
}

/// A wait step is run several times (passes), and each pass may have effects. For each pass after the first there is a test run in which that pass
/// ends in an error after its effects: the effects stay, the state that the pass wrote is lost, and the repetition may find the outside changed.
/// The end must be the same. First passes are left to [`steps_succeed_when_repeated`].
///
/// What this finds: a wait step that picks an alternative, has an effect there, and keeps its choice only in the state. Repeated, it may pick
/// another alternative, and the first effect is never undone. Such a choice must be a step of its own, journaled before the effect.
pub async fn every_pass_succeeds_when_repeated<F: Fixture>() {
    let grounds = &Grounds::<F>::default();
    let mut passes: BTreeMap<String, usize> = BTreeMap::new();
    for point in record_passes(grounds).await.into_iter().filter(|point| point.ends_with("/do/after_effect")) {
        *passes.entry(point).or_default() += 1;
    }
    let later = passes.into_iter().flat_map(|(point, count)| (2..=count).map(move |pass| (point.clone(), pass)));
    let visit = |(point, pass): (String, usize)| async move {
        let run = TestRun::fresh(grounds).await;
        run.failpoints.set(&point, Action::ErrorOnPass(pass));
        let view = run.to_end().await;
        run.expect_done(&view, &format!("{point}, pass {pass}")).await;
    };
    futures::stream::iter(later).map(visit).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}

/// The process dies at every failpoint, before and after each effect and each journal write: another start of the engine finishes.
pub async fn crash_between_any_two_effects<F: Fixture>() {
    let grounds = &Grounds::<F>::default();
    let points = record(grounds).await;
    each(points, |point| async move {
        let run = TestRun::fresh(grounds).await;
        run.failpoints.set(&point, Action::Halt);
        let view = run.run_over_crash(&point).await;
        run.expect_done(&view, &point).await;
    })
    .await;
}

/// Every step up to the pivot fails for good, before its effect and after it: everything is undone.
pub async fn failure_at_any_step_unwinds<F: Fixture>() {
    let grounds = &Grounds::<F>::default();
    let points = before_pivot::<F>().into_iter().flat_map(|step| ["before", "after_effect"].map(|point| point_of::<F>(step, "do", point)));
    each(points, |point| async move {
        let run = TestRun::fresh(grounds).await;
        run.failpoints.set(&point, Action::Fatal);
        let view = run.to_end().await;
        assert!(!run.failpoints.is_armed(&point), "{point} was not passed");
        run.expect_undone(&view, &point).await;
    })
    .await;
}

/// Every undo is repeated once after its effect; and the process dies at every failpoint of the undo: everything is undone.
pub async fn undo_succeeds_when_repeated<F: Fixture>() {
    let Some(last) = before_pivot::<F>().last().copied() else { return };
    let turn = point_of::<F>(last, "do", "before");
    let grounds = &Grounds::<F>::default();

    let run = TestRun::fresh(grounds).await;
    run.failpoints.record();
    run.failpoints.set(&turn, Action::Fatal);
    let view = run.to_end().await;
    let undo_points: BTreeSet<String> = run.failpoints.recorded().into_iter().filter(|point| point.contains("/undo/")).collect();
    run.expect_undone(&view, "an undo without errors").await;

    let run = TestRun::fresh(grounds).await;
    run.failpoints.set(&turn, Action::Fatal);
    for point in undo_points.iter().filter(|point| point.ends_with("/after_effect")) {
        run.failpoints.set(point, Action::ErrorOnce);
    }
    let view = run.to_end().await;
    run.expect_undone(&view, "every undo repeated").await;

    each(undo_points, |point| {
        let turn = turn.clone();
        async move {
            let run = TestRun::fresh(grounds).await;
            run.failpoints.set(&turn, Action::Fatal);
            run.failpoints.set(&point, Action::Halt);
            let view = run.run_over_crash(&point).await;
            run.expect_undone(&view, &point).await;
        }
    })
    .await;
}

/// The workflow is cancelled before every step up to the pivot: everything is undone, and all of its children have ended.
pub async fn nothing_leaks<F: Fixture>() {
    let grounds = &Grounds::<F>::default();
    let points = before_pivot::<F>().into_iter().map(|step| point_of::<F>(step, "do", "before"));
    each(points, |point| async move {
        let run = TestRun::fresh(grounds).await;
        run.failpoints.set(&point, Action::Pause);
        let engine = run.engine().await;
        run.start(&engine).await;
        run.during(&engine, until(|| run.failpoints.is_paused(&point)), &point).await;
        engine.cancel(run.id).await.unwrap_or_else(|error| panic!("{point}: cancel is refused: {error}"));
        run.failpoints.clear(&point);
        let view = run.end(&engine, &point).await;
        engine.stop().await;
        assert_eq!(view.status, "cancelled", "{point}: {view:#?}");
        run.expect_undone(&view, &point).await;
    })
    .await;
}

fn point_of<F: Fixture>(step: &str, direction: &str, point: &str) -> String {
    format!("{}/{step}/{direction}/{point}", F::Workflow::KIND)
}

/// The steps that can fail with an undo: up to and including the pivot, or all if there is none.
fn before_pivot<F: Fixture>() -> Vec<&'static str> {
    let steps = F::Workflow::steps();
    let count = steps.pivot.map_or(steps.steps.len(), |pivot| pivot + 1);
    steps.steps.iter().take(count).map(|step| step.name).collect()
}

/// The failpoints of a run without errors, which must succeed.
async fn record<F: Fixture>(grounds: &Grounds<F>) -> BTreeSet<String> {
    record_passes(grounds).await.into_iter().collect()
}

/// The failpoints of a run without errors in order, each as often as it was passed.
async fn record_passes<F: Fixture>(grounds: &Grounds<F>) -> Vec<String> {
    let run = TestRun::fresh(grounds).await;
    run.failpoints.record();
    let view = run.to_end().await;
    let passed = run.failpoints.recorded();
    run.expect_done(&view, "a run without errors").await;
    passed.into_iter().filter(|point| point != "engine/heartbeat").collect()
}

async fn each<Fut: Future<Output = ()>>(points: impl IntoIterator<Item = String>, visit: impl Fn(String) -> Fut) {
    let points: Vec<String> = points.into_iter().collect();
    assert!(!points.is_empty(), "there are no failpoints to visit");
    futures::stream::iter(points).map(visit).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The databases of a property that no test run uses at the moment. There are never more than test runs at the same time.
struct Grounds<F: Fixture>(Mutex<Vec<F::Ground>>);

impl<F: Fixture> Default for Grounds<F> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<F: Fixture> Grounds<F> {
    fn free(&self) -> std::sync::MutexGuard<'_, Vec<F::Ground>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A workflow in an environment of its own, with failpoints of its own. [`TestRun::expect_done`] and [`TestRun::expect_undone`] end it: its
/// engines have ended by then, and others may use its database. That of a run that fails is not used again, as its engine may still write.
struct TestRun<'a, F: Fixture> {
    fixture: F,
    ground: F::Ground,
    grounds: &'a Grounds<F>,
    failpoints: Failpoints,
    id: Uuid,
}

impl<'a, F: Fixture> TestRun<'a, F> {
    async fn fresh(grounds: &'a Grounds<F>) -> Self {
        let free = grounds.free().pop();
        let ground = match free {
            Some(ground) => ground,
            None => F::ground().await,
        };
        Self { fixture: F::fresh(&ground).await, ground, grounds, failpoints: Failpoints::default(), id: Uuid::now_v7() }
    }

    async fn engine(&self) -> Engine {
        let settings = quick("engine-under-test", &self.failpoints);
        Engine::start(self.fixture.store(), self.fixture.registry(), settings)
            .await
            .unwrap_or_else(|error| panic!("the engine does not start: {error}"))
    }

    async fn start(&self, engine: &Engine) {
        let store = self.fixture.store();
        let mut tx = store.begin().await.expect("the test database answers");
        let started = engine.start_here_in_tx::<F::Workflow>(&mut tx, self.id, &self.fixture.input()).await;
        let started = started.expect("the workflow can be started");
        tx.commit().await.expect("the test database answers");
        started.run();
    }

    async fn to_end(&self) -> WorkflowView {
        let engine = self.engine().await;
        self.start(&engine).await;
        let view = self.end(&engine, "").await;
        engine.stop().await;
        view
    }

    async fn run_over_crash(&self, point: &str) -> WorkflowView {
        let engine = self.engine().await;
        self.start(&engine).await;
        self.during(&engine, until(|| !self.failpoints.is_armed(point)), point).await;
        engine.kill().await;
        let successor = self.engine().await;
        let view = self.end(&successor, point).await;
        successor.stop().await;
        view
    }

    async fn end(&self, engine: &Engine, point: &str) -> WorkflowView {
        let ended = async {
            match engine.wait(self.id, TIMEOUT).await {
                Ok(Some(view)) => view,
                Ok(None) => panic!("{point}: there is no such workflow"),
                Err(error) => panic!("{point}: {error}"),
            }
        };
        let view = self.during(engine, ended, point).await;
        assert!(view.ended(), "{point}: the workflow does not end: {view:#?}");
        view
    }

    /// Keeps calling [`Fixture::outside`] until `condition` is met.
    async fn during<T>(&self, engine: &Engine, condition: impl Future<Output = T>, point: &str) -> T {
        let outside = async {
            loop {
                self.fixture.outside(engine).await;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            met = condition => met,
            () = outside => unreachable!("the loop never ends"),
            () = tokio::time::sleep(TIMEOUT) => {
                let view = engine.get(self.id).await;
                panic!("{point}: the condition was not met in time: {view:#?}");
            }
        }
    }

    async fn expect_done(self, view: &WorkflowView, point: &str) {
        assert_eq!(view.status, "done", "{point}: {view:#?}");
        self.fixture.check_done(view).await.unwrap_or_else(|error| panic!("{point}: {error}\n{view:#?}"));
        self.expect_all_ended(point).await;
    }

    async fn expect_undone(self, view: &WorkflowView, point: &str) {
        assert!(matches!(view.status.as_str(), "failed" | "cancelled"), "{point}: {view:#?}");
        self.fixture.check_undone(view).await.unwrap_or_else(|error| panic!("{point}: {error}\n{view:#?}"));
        self.expect_all_ended(point).await;
    }

    async fn expect_all_ended(self, point: &str) {
        let left: i64 = sqlx::query_scalar("select count(*) from workflow where ended_at is null")
            .fetch_one(&mut *self.fixture.store().acquire().await.expect("the test database answers"))
            .await
            .expect("the test database answers");
        assert_eq!(left, 0, "{point}: workflows are left running");
        self.grounds.free().push(self.ground);
    }
}
