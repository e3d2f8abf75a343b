//! Instantiation, termination, and the tests of charts.

use std::collections::BTreeMap;

use async_trait::async_trait;
use drover_api::scheduling::{AppRequest, DigRef};
use drover_orchestrator::store::binding::Binding;
use drover_orchestrator::store::deployment::DeploymentState;
use drover_orchestrator::workflows::{Delivery, Instantiate, Terminate, Test, instantiate, terminate, test};
use drover_workflow::WorkflowView;
use serde_json::json;

use super::{CaseFixture, Moves, WorkflowCase};
use crate::base::{Base, rendered, request};

struct Instantiation(Moves);

#[async_trait]
impl WorkflowCase for Instantiation {
    type Workflow = Instantiate;

    async fn on(base: Base) -> Self {
        Self(Moves::on(base).await)
    }
    fn base(&self) -> &Base {
        &self.0.base
    }
    fn input(&self) -> instantiate::Order {
        let delivery =
            |request: AppRequest| Delivery { digest: rendered("newcomer-new").digest, namespace: "default".into(), after: vec![], request };
        instantiate::Order {
            dig: self.0.newcomer.clone(),
            revision: 2,
            apps: vec![delivery(request("n", 900, &["a"]))],
            plan: None,
            changed: vec![],
        }
    }
    async fn check_done(&self, _: &WorkflowView) -> Result<(), String> {
        let Moves { base, victim, newcomer, .. } = &self.0;
        if base.state(newcomer).await.0 != DeploymentState::Instantiated {
            return Err("not instantiated".into());
        }
        base.expect(&[victim, newcomer], &["n@a held", "v@b held"], &["n@a current", "v@b current"], &["n@a", "v@b"]).await
    }
    async fn check_undone(&self) -> Result<(), String> {
        let Moves { base, victim, newcomer, .. } = &self.0;
        if base.state(newcomer).await.0 != DeploymentState::Approved {
            return Err("no longer approved".into());
        }
        // Whether the victim was moved depends on the failed step: past the child's pivot the move stands.
        let stays = base.expect(&[victim, newcomer], &["v@a held"], &["v@a current"], &["v@a"]).await;
        let moved = base.expect(&[victim, newcomer], &["v@b held"], &["v@b current"], &["v@b"]).await;
        stays.or(moved)
    }
}

mod instantiation {
    drover_workflow::generic_tests!(super::CaseFixture<super::Instantiation>);
}

struct Termination {
    base: Base,
    dig: DigRef,
}

#[async_trait]
impl WorkflowCase for Termination {
    type Workflow = Terminate;

    async fn on(base: Base) -> Self {
        let dig = base.group("shop", DeploymentState::Instantiated).await;
        base.serving(&dig, request("web", 300, &["a"]), "a").await;
        base.serving(&dig, request("db", 300, &["b"]), "b").await;
        base.fakes.members.keep("db", "Namespace/shop stays");
        Self { base, dig }
    }
    fn base(&self) -> &Base {
        &self.base
    }
    fn input(&self) -> terminate::Order {
        terminate::Order { dig: self.dig.clone(), revision: 1, after: BTreeMap::new(), delete_volumes: false }
    }
    async fn check_done(&self, view: &WorkflowView) -> Result<(), String> {
        if self.base.state(&self.dig).await.0 != DeploymentState::Terminated {
            return Err("not terminated".into());
        }
        let kept = &view.state["removal"]["kept"];
        if *kept != json!(["on onprem+b: Namespace/shop stays"]) {
            return Err(format!("what stays is reported as {kept}"));
        }
        self.base.expect(&[&self.dig], &[], &[], &[]).await
    }
    async fn check_undone(&self) -> Result<(), String> {
        self.base.expect(&[&self.dig], &["db@b held", "web@a held"], &["db@b current", "web@a current"], &["db@b", "web@a"]).await
    }
}

/// Its first step is its pivot, so there is no undo to test.
mod termination {
    use drover_workflow::testing;

    type Termination = super::CaseFixture<super::Termination>;

    #[tokio::test(flavor = "multi_thread")]
    async fn steps_succeed_when_repeated() {
        testing::steps_succeed_when_repeated::<Termination>().await;
    }
    #[tokio::test(flavor = "multi_thread")]
    async fn every_pass_succeeds_when_repeated() {
        testing::every_pass_succeeds_when_repeated::<Termination>().await;
    }
    #[tokio::test(flavor = "multi_thread")]
    async fn crash_between_any_two_effects() {
        testing::crash_between_any_two_effects::<Termination>().await;
    }
    #[tokio::test(flavor = "multi_thread")]
    async fn failure_at_any_step_unwinds() {
        testing::failure_at_any_step_unwinds::<Termination>().await;
    }
    #[tokio::test(flavor = "multi_thread")]
    async fn nothing_leaks() {
        testing::nothing_leaks::<Termination>().await;
    }
}

struct Testing {
    base: Base,
    dig: DigRef,
    copies: Vec<Binding>,
}

impl Testing {
    async fn is_as_before(&self) -> Result<(), String> {
        self.base.expect(&[&self.dig], &["db@b held", "web@a held"], &["db@b current", "web@a current"], &["db@b", "web@a"]).await
    }
}

#[async_trait]
impl WorkflowCase for Testing {
    type Workflow = Test;

    async fn on(base: Base) -> Self {
        let dig = base.group("shop", DeploymentState::Instantiated).await;
        let web = base.serving(&dig, request("web", 300, &["a"]), "a").await;
        let db = base.serving(&dig, request("db", 300, &["b"]), "b").await;
        Self { base, dig, copies: vec![web, db] }
    }
    fn base(&self) -> &Base {
        &self.base
    }
    fn input(&self) -> test::Order {
        let tested = |copy: &Binding| test::Tested { binding: copy.id, app: copy.app.clone(), member: copy.member.clone() };
        test::Order { dig: self.dig.clone(), copies: self.copies.iter().map(tested).collect(), timeout_s: 60 }
    }
    async fn check_done(&self, view: &WorkflowView) -> Result<(), String> {
        let runs = self.base.fakes.members.statuses().into_iter().filter_map(|status| status.tested);
        let ended = runs.filter(|tested| tested.ended && tested.run == view.id).count();
        if ended != 2 {
            return Err(format!("{ended} of 2 copies were tested"));
        }
        self.is_as_before().await
    }
    async fn check_undone(&self) -> Result<(), String> {
        self.is_as_before().await
    }
}

mod testing_charts {
    drover_workflow::generic_tests!(super::CaseFixture<super::Testing>);
}
