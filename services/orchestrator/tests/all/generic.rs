//! The generic properties of `drover_workflow::testing` for each workflow of this service.

use std::collections::BTreeMap;

use async_trait::async_trait;
use drover_api::plans::PlanSubject;
use drover_api::scheduling::{Amounts, AppRequest, Claim, DigRef, Move, Plan, StatefulPods};
use drover_orchestrator::store::binding::Binding;
use drover_orchestrator::store::deployment::DeploymentState;
use drover_orchestrator::workflows::{
    Delivery, Grow, Instantiate, Relocate, Terminate, Test, Update, grow, instantiate, relocate, terminate, test, update,
};
use drover_store::Store;
use drover_workflow::testing::Fixture;
use drover_workflow::{Engine, Registry, Workflow, WorkflowView};
use serde_json::json;
use uuid::Uuid;

use crate::base::{Base, member, rendered, request};
use crate::fakes::Behaviour;

/// The part of a fixture that differs between workflows.
#[async_trait]
trait WorkflowCase: Send + Sync + Sized + 'static {
    type Workflow: Workflow;

    async fn fresh() -> Self;
    fn base(&self) -> &Base;
    fn input(&self) -> <Self::Workflow as Workflow>::Input;
    async fn check_done(&self, view: &WorkflowView) -> Result<(), String>;
    async fn check_undone(&self) -> Result<(), String>;
}

struct CaseFixture<C>(C);

#[async_trait]
impl<C: WorkflowCase> Fixture for CaseFixture<C> {
    type Workflow = C::Workflow;

    async fn fresh() -> Self {
        Self(C::fresh().await)
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
    async fn new() -> Self {
        let base = Base::fresh().await;
        let victim = base.group("victim", DeploymentState::Instantiated).await;
        let newcomer = base.group("newcomer", DeploymentState::Approved).await;
        let old = base.serving(&victim, request("v", 600, &["a", "b", "c", "d"]), "a").await;
        let plan = base.fakes.plans.propose(PlanSubject::Newcomer(newcomer.clone()), plan_to_b(&old));
        let again = old.clone();
        base.fakes.plans.then(move || plan_to_b(&again));
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

fn plan_to_b(old: &Binding) -> Plan {
    let newcomer =
        json!([{"app": "n", "groups": [{"placement": {"binding": Uuid::nil(), "member": "onprem+a", "pods": []}, "considered": []}]}]);
    Plan { waves: vec![vec![move_to_b(old)]], newcomer: serde_json::from_value(newcomer).unwrap(), ..Plan::default() }
}

fn claim_of(base: &Base, app: &str) -> Result<Claim, String> {
    base.fakes.ledger.all().into_iter().find(|claim| claim.request.app == app).ok_or_else(|| format!("{app} has no claim"))
}

struct Relocation(Moves);

impl Relocation {
    fn order(moves: &Moves) -> relocate::Order {
        let newcomer = relocate::Newcomer {
            dig: moves.newcomer.clone(),
            apps: vec![request("n", 900, &["a"])],
            places: vec![("n".into(), member("a"))],
            operation: Uuid::nil(),
        };
        relocate::Order {
            plan: moves.plan,
            subject: "newcomer".into(),
            moves: vec![move_to_b(&moves.old)],
            order: vec![],
            newcomer: Some(newcomer),
        }
    }
}

#[async_trait]
impl WorkflowCase for Relocation {
    type Workflow = Relocate;

    async fn fresh() -> Self {
        Self(Moves::new().await)
    }
    fn base(&self) -> &Base {
        &self.0.base
    }
    fn input(&self) -> relocate::Order {
        Self::order(&self.0)
    }
    async fn check_done(&self, view: &WorkflowView) -> Result<(), String> {
        let Moves { base, victim, newcomer, .. } = &self.0;
        let claim = claim_of(base, "n")?;
        if claim.id != relocate::binding_id(view.id, "n", &member("a")) {
            return Err("the newcomer's claim and its binding have different ids".into());
        }
        base.expect(&[victim, newcomer], &["n@a held", "v@b held"], &["v@b current"], &["v@b"]).await?;
        let history = base.fakes.members.history();
        if history == ["present v@b", "absent v@a"] { Ok(()) } else { Err(format!("break before make: {history:?}")) }
    }
    async fn check_undone(&self) -> Result<(), String> {
        let Moves { base, victim, newcomer, .. } = &self.0;
        base.expect(&[victim, newcomer], &["v@a held"], &["v@a current"], &["v@a"]).await
    }
}

mod relocation {
    drover_workflow::generic_tests!(super::CaseFixture<super::Relocation>);
}

/// A victim of two pods with volumes.
struct Stateful(Moves);

#[async_trait]
impl WorkflowCase for Stateful {
    type Workflow = Relocate;

    async fn fresh() -> Self {
        let base = Base::fresh().await;
        let victim = base.group("victim", DeploymentState::Instantiated).await;
        let newcomer = base.group("newcomer", DeploymentState::Approved).await;
        let mut asks = request("v", 600, &["a", "b", "c", "d"]);
        let pods = StatefulPods { namespace: "default".into(), set: "v".into(), start: 0, replicas: 2, templates: vec!["data".into()] };
        asks.demand.stateful.push(pods);
        base.fakes.members.with_pods("v", 2);
        let old = base.serving(&victim, asks, "a").await;
        let plan = base.fakes.plans.propose(PlanSubject::Newcomer(newcomer.clone()), plan_to_b(&old));
        Self(Moves { base, victim, newcomer, old, plan })
    }
    fn base(&self) -> &Base {
        &self.0.base
    }
    fn input(&self) -> relocate::Order {
        Relocation::order(&self.0)
    }
    async fn check_done(&self, _: &WorkflowView) -> Result<(), String> {
        let Moves { base, victim, newcomer, .. } = &self.0;
        base.expect(&[victim, newcomer], &["n@a held", "v@b held"], &["v@b current"], &["v@b"]).await?;
        let (running, history) = (base.fakes.members.running(), base.fakes.members.history());
        let one_by_one =
            ["share v@b 2+0", "share v@a 0+1", "share v@b 1+1", "share v@a 0+0", "share v@b 0+2", "absent v@a"].map(str::to_owned);
        match (running == ["v-0@b", "v-1@b"], history == one_by_one) {
            (true, true) => Ok(()),
            _ => Err(format!("{running:?} after {history:?}")),
        }
    }
    async fn check_undone(&self) -> Result<(), String> {
        let Moves { base, victim, newcomer, .. } = &self.0;
        base.expect(&[victim, newcomer], &["v@a held"], &["v@a current"], &["v@a"]).await?;
        let running = base.fakes.members.running();
        if running == ["v-0@a", "v-1@a"] { Ok(()) } else { Err(format!("{running:?} after {:?}", base.fakes.members.history())) }
    }
}

mod stateful {
    drover_workflow::generic_tests!(super::CaseFixture<super::Stateful>);
}

/// The victim never starts on `b`. Of the alternatives, `c` is full when it is first asked for and has room after that.
struct Replacement(Moves);

#[async_trait]
impl WorkflowCase for Replacement {
    type Workflow = Relocate;

    async fn fresh() -> Self {
        let moves = Moves::new().await;
        moves.base.fakes.members.behave("v", "b", Behaviour::Refused);
        moves.base.fakes.ledger.full_until_refused(&member("c"));
        Self(moves)
    }
    fn base(&self) -> &Base {
        &self.0.base
    }
    fn input(&self) -> relocate::Order {
        let mut order = Relocation::order(&self.0);
        order.moves[0].alternatives = vec![member("c"), member("d")];
        order
    }
    async fn check_done(&self, _: &WorkflowView) -> Result<(), String> {
        let Moves { base, victim, newcomer, .. } = &self.0;
        // What was tried on `b` keeps its row and its room until task `retire`, which does not run here, finds it gone.
        let at = |to: &str| (format!("v@{to} held"), format!("v@{to} current"), format!("v@{to}"));
        let ((on_c, serves_on_c, is_on_c), (on_d, serves_on_d, is_on_d)) = (at("c"), at("d"));
        let digs = [victim, newcomer];
        // Claims are sorted by member; that of c is aws+c.
        let c = base.expect(&digs, &["n@a held", &on_c, "v@b held"], &["v@b retiring", &serves_on_c], &[&is_on_c]).await;
        let d = base.expect(&digs, &["n@a held", "v@b held", &on_d], &["v@b retiring", &serves_on_d], &[&is_on_d]).await;
        c.or(d)
    }
    async fn check_undone(&self) -> Result<(), String> {
        let Moves { base, victim, newcomer, .. } = &self.0;
        base.expect(&[victim, newcomer], &["v@a held"], &["v@a current"], &["v@a"]).await
    }
}

mod replacement {
    drover_workflow::generic_tests!(super::CaseFixture<super::Replacement>);
}

struct Instantiation(Moves);

#[async_trait]
impl WorkflowCase for Instantiation {
    type Workflow = Instantiate;

    async fn fresh() -> Self {
        Self(Moves::new().await)
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

    async fn fresh() -> Self {
        let base = Base::fresh().await;
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

struct Updating {
    base: Base,
    dig: DigRef,
    web: Binding,
    old: Binding,
}

impl Updating {
    fn web_is(&self, cpu: i64, bundle: &str) -> Result<(), String> {
        let claim = claim_of(&self.base, "web")?;
        if (claim.request.demand.groups[0].requests.cpu, claim.surging) != (cpu, false) {
            return Err(format!("web's claim is {claim:?}"));
        }
        if self.base.fakes.members.digest("web", "a") != Some(rendered(bundle).digest) {
            return Err(format!("web runs another bundle than {bundle}"));
        }
        Ok(())
    }
}

#[async_trait]
impl WorkflowCase for Updating {
    type Workflow = Update;

    async fn fresh() -> Self {
        let base = Base::fresh().await;
        let dig = base.group("shop", DeploymentState::Instantiated).await;
        let web = base.serving(&dig, request("web", 300, &["a"]), "a").await;
        let old = base.serving(&dig, request("old", 300, &["b"]), "b").await;
        Self { base, dig, web, old }
    }
    fn base(&self) -> &Base {
        &self.base
    }
    fn input(&self) -> update::Order {
        let digest = rendered("shop-new").digest;
        let added = Delivery { request: request("new", 200, &["c"]), digest: digest.clone(), namespace: "default".into(), after: vec![] };
        update::Order {
            dig: self.dig.clone(),
            from_revision: 1,
            revision: 2,
            kept: vec![update::Kept { old: self.web.clone(), digest, request: request("web", 400, &["a"]) }],
            added: vec![added],
            dropped: vec![self.old.id],
            approved: vec![],
            after: BTreeMap::new(),
            changed: vec![],
            rollback: false,
        }
    }
    async fn check_done(&self, _: &WorkflowView) -> Result<(), String> {
        self.web_is(400, "shop-new")?;
        self.base.expect(&[&self.dig], &["new@c held", "web@a held"], &["new@c current", "web@a current"], &["new@c", "web@a"]).await
    }
    async fn check_undone(&self) -> Result<(), String> {
        self.web_is(300, "shop-old")?;
        self.base.expect(&[&self.dig], &["old@b held", "web@a held"], &["old@b current", "web@a current"], &["old@b", "web@a"]).await
    }
}

mod updating {
    drover_workflow::generic_tests!(super::CaseFixture<super::Updating>);
}

/// An update that fits only where a victim has left.
struct Crowded {
    base: Base,
    victim: DigRef,
    dig: DigRef,
    web: Binding,
}

impl Crowded {
    async fn expect(&self, victim: &str) -> Result<(), String> {
        let (claim, row) = (format!("v@{victim} held"), format!("v@{victim} current"));
        let copy = format!("v@{victim}");
        self.base.expect(&[&self.victim, &self.dig], &[&claim, "web@a held"], &[&row, "web@a current"], &[&copy, "web@a"]).await
    }

    fn web_has(&self, cpu: i64) -> Result<(), String> {
        let claim = claim_of(&self.base, "web")?;
        let found = claim.request.demand.groups[0].requests.cpu;
        (found == cpu && !claim.surging).then_some(()).ok_or_else(|| format!("web has {found}m: {claim:?}"))
    }
}

#[async_trait]
impl WorkflowCase for Crowded {
    type Workflow = Update;

    async fn fresh() -> Self {
        let base = Base::fresh().await;
        let victim = base.group("victim", DeploymentState::Instantiated).await;
        let dig = base.group("shop", DeploymentState::Instantiated).await;
        let old = base.serving(&victim, request("v", 600, &["a", "b", "c", "d"]), "a").await;
        let web = base.serving(&dig, request("web", 300, &["a"]), "a").await;
        base.fakes.plans.then(move || plan_to_b(&old));
        Self { base, victim, dig, web }
    }
    fn base(&self) -> &Base {
        &self.base
    }
    fn input(&self) -> update::Order {
        update::Order {
            dig: self.dig.clone(),
            from_revision: 1,
            revision: 2,
            kept: vec![update::Kept { old: self.web.clone(), digest: rendered("shop-new").digest, request: request("web", 500, &["a"]) }],
            added: vec![],
            dropped: vec![],
            approved: vec![],
            after: BTreeMap::new(),
            changed: vec![],
            rollback: false,
        }
    }
    async fn check_done(&self, _: &WorkflowView) -> Result<(), String> {
        self.web_has(500)?;
        self.expect("b").await
    }
    async fn check_undone(&self) -> Result<(), String> {
        self.web_has(300)?;
        // Moves that were made before it was undone stand.
        match self.expect("a").await {
            Ok(()) => Ok(()),
            Err(_) => self.expect("b").await,
        }
    }
}

mod crowded {
    drover_workflow::generic_tests!(super::CaseFixture<super::Crowded>);
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

    async fn fresh() -> Self {
        let base = Base::fresh().await;
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

/// `n` has 300 of the 1000 of `a` and grows to two pods, for which the victim moves from `a` to `b`.
struct Growth(Moves, Binding);

impl Growth {
    fn pods(&self) -> Result<u32, String> {
        Ok(claim_of(&self.0.base, "n")?.request.demand.groups[0].replicas)
    }
}

#[async_trait]
impl WorkflowCase for Growth {
    type Workflow = Grow;

    async fn fresh() -> Self {
        let moves = Moves::new().await;
        let copy = moves.base.serving(&moves.newcomer, request("n", 300, &["a"]), "a").await;
        Self(moves, copy)
    }
    fn base(&self) -> &Base {
        &self.0.base
    }
    fn input(&self) -> grow::Order {
        let mut demand = self.1.request.demand.clone();
        demand.groups[0].replicas = 2;
        grow::Order::new(self.1.clone(), demand)
    }
    async fn check_done(&self, _: &WorkflowView) -> Result<(), String> {
        let Moves { base, victim, newcomer, .. } = &self.0;
        if self.pods()? != 2 {
            return Err("the claim has not grown".into());
        }
        base.expect(&[victim, newcomer], &["n@a held", "v@b held"], &["n@a current", "v@b current"], &["n@a", "v@b"]).await
    }
    async fn check_undone(&self) -> Result<(), String> {
        let Moves { base, victim, newcomer, .. } = &self.0;
        if self.pods()? != 1 {
            return Err("the claim has grown".into());
        }
        // Whether the victim was moved depends on the failed step: past the child's pivot the move stands.
        let digs = [victim, newcomer];
        let stays = base.expect(&digs, &["n@a held", "v@a held"], &["n@a current", "v@a current"], &["n@a", "v@a"]).await;
        let moved = base.expect(&digs, &["n@a held", "v@b held"], &["n@a current", "v@b current"], &["n@a", "v@b"]).await;
        stays.or(moved)
    }
}

mod growth {
    drover_workflow::generic_tests!(super::CaseFixture<super::Growth>);
}

/// Operations show the kinds.
#[test]
fn workflow_kinds_are_stable() {
    let kinds = [Instantiate::KIND, Relocate::KIND, Terminate::KIND, Test::KIND, Update::KIND, Grow::KIND];
    assert_eq!(kinds, ["instantiate", "relocate", "terminate", "test", "update", "grow"]);
}
