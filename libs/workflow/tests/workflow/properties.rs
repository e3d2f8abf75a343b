//! The generic properties: they hold for a correct workflow, and they find a defect in one that is not.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use drover_store::Store;
use drover_testkit::truncate;
use drover_workflow::testing::{self, Fixture};
use drover_workflow::{Ctx, Outcome, Registry, Step, StepResult, Steps, Workflow, WorkflowView};

use crate::fixture::Ground;

drover_workflow::generic_tests!(crate::fixture::Moving);

/// Two places for a copy. The first one is full when it is asked for the first time, and has room later.
struct Places {
    first_is_full: AtomicBool,
    copies: Mutex<BTreeSet<&'static str>>,
}

/// A workflow with a defect: its wait step chooses a place and puts a copy there, and only the state says which.
struct Forgetful;

impl Workflow for Forgetful {
    const KIND: &'static str = "forgetful";
    const VERSION: i32 = 1;
    type Environment = Places;
    type Input = ();
    /// Whether the first pass is over, in which nothing is chosen.
    type State = bool;

    fn steps() -> Steps<Self> {
        Steps::new().step(Step::wait("choose", choose))
    }
}

async fn choose(ctx: &mut Ctx<Forgetful>) -> StepResult {
    if !std::mem::replace(&mut ctx.state, true) {
        return Ok(Outcome::park(["place"]));
    }
    let full = ctx.environment.first_is_full.swap(false, Ordering::Relaxed);
    ctx.environment.copies.lock().unwrap().insert(if full { "second" } else { "first" });
    Ok(Outcome::next())
}

struct Forgetting {
    store: Store,
    places: Arc<Places>,
}

#[async_trait]
impl Fixture for Forgetting {
    type Workflow = Forgetful;
    type Ground = Ground;

    async fn ground() -> Ground {
        Ground::new().await
    }

    async fn fresh(ground: &Ground) -> Self {
        truncate(&ground.store).await;
        let places = Places { first_is_full: AtomicBool::new(true), copies: Mutex::default() };
        Self { store: ground.store.clone(), places: Arc::new(places) }
    }

    fn store(&self) -> Store {
        self.store.clone()
    }

    fn registry(&self) -> Registry {
        Registry::new().with::<Forgetful>(self.places.clone())
    }

    fn input(&self) {}

    async fn check_done(&self, _: &WorkflowView) -> Result<(), String> {
        let copies = self.places.copies.lock().unwrap();
        if copies.len() == 1 { Ok(()) } else { Err(format!("{} copies", copies.len())) }
    }

    async fn check_undone(&self, _: &WorkflowView) -> Result<(), String> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_first_pass_does_not_show_the_defect_of_a_later_one() {
    testing::steps_succeed_when_repeated::<Forgetting>().await;
}

#[tokio::test(flavor = "multi_thread")]
#[should_panic(expected = "forgetful/choose/do/after_effect, pass 2: 2 copies")]
async fn repeated_later_pass_finds_a_wait_step_that_forgets_its_choice() {
    testing::every_pass_succeeds_when_repeated::<Forgetting>().await;
}
