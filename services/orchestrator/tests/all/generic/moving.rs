//! Relocation: of one victim, of one with volumes, and to another destination than planned.

use async_trait::async_trait;
use drover_api::plans::PlanSubject;
use drover_api::scheduling::StatefulPods;
use drover_orchestrator::store::binding;
use drover_orchestrator::store::deployment::{self, ApprovedApp, DeploymentState};
use drover_orchestrator::workflows::{Relocate, relocate};
use drover_workflow::WorkflowView;
use uuid::Uuid;

use super::{CaseFixture, Moves, WorkflowCase, claim_of, move_to_b, plan_to_b};
use crate::base::{Base, member, request};
use crate::fakes::Behaviour;

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

    async fn on(base: Base) -> Self {
        Self(Moves::on(base).await)
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

    async fn on(base: Base) -> Self {
        let victim = base.group("victim", DeploymentState::Instantiated).await;
        let newcomer = base.group("newcomer", DeploymentState::Approved).await;
        let mut asks = request("v", 600, &["a", "b", "c", "d"]);
        let pods = StatefulPods {
            namespace: "default".into(),
            set: "v".into(),
            start: 0,
            replicas: 2,
            templates: vec!["data".into()],
            overlaps: false,
        };
        asks.demand.stateful.push(pods);
        base.fakes.members.with_pods("v", 2);
        let old = base.serving(&victim, asks, "a").await;
        let plan = base.fakes.plans.propose(PlanSubject::Newcomer(newcomer.clone()), plan_to_b(&old, "n"));
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

    async fn on(base: Base) -> Self {
        let moves = Moves::on(base).await;
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

/// The victim has claimed one pod of 200, and somebody else has scaled it to three. They fit on `b`, or only one does there.
struct Scaled<const FITS: bool>(Moves);

#[async_trait]
impl<const FITS: bool> WorkflowCase for Scaled<FITS> {
    type Workflow = Relocate;

    async fn on(base: Base) -> Self {
        let victim = base.group("victim", DeploymentState::Instantiated).await;
        let newcomer = base.group("newcomer", DeploymentState::Approved).await;
        let asks = request("v", 200, &["a", "b", "c", "d"]);
        let old = base.serving(&victim, asks.clone(), "a").await;
        let approved = ApprovedApp { app: "v".into(), digest: old.digest.clone(), namespace: old.namespace.clone(), demand: asks.demand };
        let mut tx = base.environment.store.begin().await.unwrap();
        deployment::approve_apps(&mut tx, victim.id, &[approved]).await.unwrap();
        tx.commit().await.unwrap();
        base.fakes.members.scale("v", "a", Some(3));
        for status in base.fakes.members.statuses() {
            base.environment.statuses.set(status.id, Some(status));
        }
        if !FITS {
            base.fakes.ledger.foreign(&member("b"), 600);
        }
        let plan = base.fakes.plans.propose(PlanSubject::Newcomer(newcomer.clone()), plan_to_b(&old, "n"));
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
        let mut tx = base.environment.store.begin().await.unwrap();
        let row = binding::of_dig(&mut tx, victim.id).await.unwrap().into_iter().find(|row| row.member == member("b")).unwrap();
        let (claim, wanted) = (claim_of(base, "v")?, if FITS { 3 } else { 1 });
        let claimed = claim.request.demand.groups[0].replicas;
        if claimed != wanted || *claim.request != row.request {
            return Err(format!("room for {claimed} pods is claimed, should be {wanted}; its row has {:?}", row.request));
        }
        Ok(())
    }
    async fn check_undone(&self) -> Result<(), String> {
        let Moves { base, victim, newcomer, .. } = &self.0;
        base.expect(&[victim, newcomer], &["v@a held"], &["v@a current"], &["v@a"]).await?;
        let claimed = claim_of(base, "v")?.request.demand.groups[0].replicas;
        if claimed == 1 { Ok(()) } else { Err(format!("the old copy claims {claimed} pods")) }
    }
}

mod scaled {
    drover_workflow::generic_tests!(super::CaseFixture<super::Scaled<true>>);
}

mod scaled_beyond_the_destination {
    drover_workflow::generic_tests!(super::CaseFixture<super::Scaled<false>>);
}

mod replacement {
    drover_workflow::generic_tests!(super::CaseFixture<super::Replacement>);
}
