//! The generic properties of `drover_workflow::testing` for each workflow of this service.

mod lifecycle;
mod moving;
mod updating;

use async_trait::async_trait;
use drover_api::plans::PlanSubject;
use drover_api::scheduling::{Amounts, Claim, DigRef, Move, Plan};
use drover_orchestrator::store::binding::Binding;
use drover_orchestrator::store::deployment::DeploymentState;
use drover_orchestrator::workflows::{Grow, Instantiate, Relocate, Terminate, Test, Update};
use drover_store::Store;
use drover_workflow::testing::Fixture;
use drover_workflow::{Engine, Registry, Workflow, WorkflowView};
use serde_json::json;
use uuid::Uuid;

use crate::base::{Base, Ground, member, request};

/// The part of a fixture that differs between workflows.
#[async_trait]
trait WorkflowCase: Send + Sync + Sized + 'static {
    type Workflow: Workflow;

    async fn on(base: Base) -> Self;
    fn base(&self) -> &Base;
    fn input(&self) -> <Self::Workflow as Workflow>::Input;
    async fn check_done(&self, view: &WorkflowView) -> Result<(), String>;
    async fn check_undone(&self) -> Result<(), String>;
}

struct CaseFixture<C>(C);

#[async_trait]
impl<C: WorkflowCase> Fixture for CaseFixture<C> {
    type Workflow = C::Workflow;
    type Ground = Ground;

    async fn ground() -> Ground {
        Ground::new().await
    }
    async fn fresh(ground: &Ground) -> Self {
        Self(C::on(Base::on(ground).await).await)
    }
    fn store(&self) -> Store {
        self.0.base().environment.store.clone()
    }
    fn registry(&self) -> Registry {
        self.0.base().registry()
    }
    fn input(&self) -> <C::Workflow as Workflow>::Input {
        self.0.input()
    }
    async fn check_done(&self, view: &WorkflowView) -> Result<(), String> {
        self.0.check_done(view).await
    }
    async fn check_undone(&self, _: &WorkflowView) -> Result<(), String> {
        self.0.check_undone().await
    }
    async fn outside(&self, engine: &Engine) {
        self.0.base().outside(engine);
    }
}

/// A newcomer for `a`, and a victim that moves from `a` to `b` for it.
struct Moves {
    base: Base,
    victim: DigRef,
    newcomer: DigRef,
    old: Binding,
    plan: Uuid,
}

impl Moves {
    async fn on(base: Base) -> Self {
        let victim = base.group("victim", DeploymentState::Instantiated).await;
        let newcomer = base.group("newcomer", DeploymentState::Approved).await;
        let old = base.serving(&victim, request("v", 600, &["a", "b", "c", "d"]), "a").await;
        let plan = base.fakes.plans.propose(PlanSubject::Newcomer(newcomer.clone()), plan_to_b(&old, "n"));
        let again = old.clone();
        base.fakes.plans.then(move || plan_to_b(&again, "n"));
        Self { base, victim, newcomer, old, plan }
    }
}

pub fn move_to_b(old: &Binding) -> Move {
    Move {
        claim: old.id,
        dig: old.dig.clone(),
        app: old.app.clone(),
        from: old.member.clone(),
        to: member("b"),
        alternatives: vec![member("c")],
        pods: vec![],
        frees: Amounts::default(),
        reason: "least busy".into(),
    }
}

/// The plan that makes room on `a` for this app.
fn plan_to_b(old: &Binding, newcomer: &str) -> Plan {
    let newcomer =
        json!([{"app": newcomer, "groups": [{"placement": {"binding": Uuid::nil(), "member": "onprem+a", "pods": []}, "considered": []}]}]);
    Plan { waves: vec![vec![move_to_b(old)]], newcomer: serde_json::from_value(newcomer).unwrap(), ..Plan::default() }
}

fn claim_of(base: &Base, app: &str) -> Result<Claim, String> {
    base.fakes.ledger.all().into_iter().find(|claim| claim.request.app == app).ok_or_else(|| format!("{app} has no claim"))
}

/// Operations show the kinds.
#[test]
fn workflow_kinds_are_stable() {
    let kinds = [Instantiate::KIND, Relocate::KIND, Terminate::KIND, Test::KIND, Update::KIND, Grow::KIND];
    assert_eq!(kinds, ["instantiate", "relocate", "terminate", "test", "update", "grow"]);
}
