//! Running the tests of the charts of a group (hooks of the event `test`), in each member where its apps run.
//!
//! Nothing of the group changes: the hold only keeps its apps from being moved or updated meanwhile. A test that fails makes the operation
//! fail. Whoever cancels it, or asks for a shorter time, leaves the pods that run where they are, as Helm does.

use std::time::Duration;

use drover_api::bindings::{TestOrder, TestResult, TestRun};
use drover_api::scheduling::{DigRef, MemberKey};
use drover_store::Timestamp;
use drover_workflow::{Ctx, Outcome, Step, StepError, StepResult, Steps, Workflow};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use uuid::Uuid;

use super::readiness::after;
use super::{SYNCHRONIZER, now};
use crate::environment::{Environment, binding_key};
use crate::store::hold;

/// The input of a test.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub dig: DigRef,
    /// The copies whose charts have tests.
    pub copies: Vec<Tested>,
    /// Seconds after which tests that have not ended count as failed.
    pub timeout_s: u64,
}

/// A copy of an app that is tested.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tested {
    pub binding: Uuid,
    pub app: String,
    pub member: MemberKey,
}

/// The state of a test.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TestState {
    /// When the first order was sent.
    since: Option<Timestamp>,
}

/// The workflow that tests a group.
pub struct Test;

impl Workflow for Test {
    const KIND: &'static str = "test";
    const VERSION: i32 = 1;
    type Environment = Environment;
    type Input = Order;
    type State = TestState;

    fn subject(order: &Order) -> String {
        super::subject(&order.dig)
    }

    fn steps() -> Steps<Self> {
        Steps::new()
            // All copies at once: they are in members of their own, or in namespaces of their own.
            .step(Step::wait("run", run).at(SYNCHRONIZER).undo(leave_alone))
            .pivot(Step::local("conclude", conclude))
            .finally(Step::local("drop_hold", drop_hold))
    }
}

async fn run(ctx: &mut Ctx<Test>) -> StepResult {
    let fence = ctx.environment.fence(ctx.id, ctx.fence).await?;
    let begins = ctx.state.since.is_none();
    let until = after(*ctx.state.since.get_or_insert_with(now), Duration::from_secs(ctx.input.timeout_s));
    let (mut waiting, mut reasons, mut said) = (Vec::new(), Vec::new(), Vec::new());
    for copy in &ctx.input.copies {
        let known = ctx.environment.statuses.get(copy.binding).and_then(|status| status.tested.clone());
        let known = known.filter(|tested| tested.run == ctx.id);
        if begins || known.is_none() {
            ctx.environment.services.synchronizer.put_test(copy.binding, TestOrder { run: Some(ctx.id), fence }).await?;
        }
        match known {
            Some(tested) if tested.ended => reasons.extend(failures(copy, &tested)),
            under_way => {
                waiting.push(binding_key(copy.binding));
                said.push(format!("{} on {}: {}", copy.app, copy.member, doing(under_way.as_ref())));
            }
        }
    }
    if !waiting.is_empty() && now() < until {
        ctx.progress(said.join("; "));
        return Ok(Outcome::park(waiting).until(until));
    }
    if !waiting.is_empty() {
        reasons.extend(said.into_iter().map(|what| format!("{what}; it has not ended within {} s", ctx.input.timeout_s)));
    }
    if reasons.is_empty() {
        return Ok(Outcome::next());
    }
    Err(StepError::fail("test_failed", "not all tests of its charts have succeeded").reasons(reasons))
}

/// The tests of a copy that have failed, a sentence each.
fn failures(copy: &Tested, tested: &TestRun) -> Vec<String> {
    let failed = tested.tests.iter().filter(|test| test.result == TestResult::Failed);
    let why = |reason: &Option<String>| reason.clone().unwrap_or_else(|| "it ended with an error".to_owned());
    failed.map(|test| format!("{} on {}: test {}: {}", copy.app, copy.member, test.object, why(&test.reason))).collect()
}

fn doing(tested: Option<&TestRun>) -> String {
    let running = tested.and_then(|tested| tested.tests.iter().find(|test| test.result == TestResult::Running));
    running.map_or_else(|| "its tests are about to run".to_owned(), |test| format!("test {} runs", test.object))
}

/// Undo: the tests are no longer followed. A copy that is gone has none.
async fn leave_alone(ctx: &mut Ctx<Test>) -> StepResult {
    let fence = ctx.environment.fence(ctx.id, ctx.fence).await?;
    for copy in &ctx.input.copies {
        match ctx.environment.services.synchronizer.test(copy.binding).await {
            // What has ended stays to be read.
            Ok(Some(tested)) if tested.run == ctx.id && !tested.ended => {
                ctx.environment.services.synchronizer.put_test(copy.binding, TestOrder { run: None, fence }).await?;
            }
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Outcome::next())
}

async fn conclude(ctx: &mut Ctx<Test>, _: &mut PgConnection) -> StepResult {
    ctx.progress(match ctx.input.copies.is_empty() {
        true => "its charts have no tests",
        false => "all tests have succeeded",
    });
    Ok(Outcome::next())
}

async fn drop_hold(ctx: &mut Ctx<Test>, tx: &mut PgConnection) -> StepResult {
    hold::drop_all(tx, ctx.id).await?;
    Ok(Outcome::next())
}
