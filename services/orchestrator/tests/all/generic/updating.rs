//! Updates and growth, with room or where others have to leave first.

use std::collections::BTreeMap;

use async_trait::async_trait;
use drover_api::scheduling::{AppRequest, DigRef};
use drover_orchestrator::store::binding::Binding;
use drover_orchestrator::store::deployment::DeploymentState;
use drover_orchestrator::workflows::{Delivery, Grow, Update, grow, update};
use drover_workflow::WorkflowView;

use super::{CaseFixture, Moves, WorkflowCase, claim_of, plan_to_b};
use crate::base::{Base, rendered, request};
use crate::fakes::Behaviour;

/// The cluster `d`, to which a new app would go first, refuses it if `REFUSED`.
struct Updating<const REFUSED: bool> {
    base: Base,
    dig: DigRef,
    web: Binding,
    old: Binding,
}

impl<const REFUSED: bool> Updating<REFUSED> {
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
impl<const REFUSED: bool> WorkflowCase for Updating<REFUSED> {
    type Workflow = Update;

    async fn on(base: Base) -> Self {
        let dig = base.group("shop", DeploymentState::Instantiated).await;
        let web = base.serving(&dig, request("web", 300, &["a"]), "a").await;
        let old = base.serving(&dig, request("old", 300, &["b"]), "b").await;
        if REFUSED {
            base.fakes.members.behave("new", "d", Behaviour::RefusedHere);
        }
        Self { base, dig, web, old }
    }
    fn base(&self) -> &Base {
        &self.base
    }
    fn input(&self) -> update::Order {
        let digest = rendered("shop-new").digest;
        let allowed: &[&str] = if REFUSED { &["c", "d"] } else { &["c"] };
        let added = Delivery { request: request("new", 200, allowed), digest: digest.clone(), namespace: "default".into(), after: vec![] };
        update::Order {
            dig: self.dig.clone(),
            from_revision: 1,
            revision: 2,
            kept: vec![update::Kept { old: self.web.clone(), digest, request: request("web", 400, &["a"]) }],
            added: vec![added],
            together: BTreeMap::new(),
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

mod alone {
    drover_workflow::generic_tests!(super::CaseFixture<super::Updating<false>>);
}

mod refused_at_first {
    drover_workflow::generic_tests!(super::CaseFixture<super::Updating<true>>);
}

/// An update that fits only where a victim has left: with `cpu` for each of its pods, of which there are two for a while. If the pods grow,
/// the room that is made cannot be promised to it.
struct Crowded<const CPU: i64> {
    base: Base,
    victim: DigRef,
    dig: DigRef,
    web: Binding,
}

impl<const CPU: i64> Crowded<CPU> {
    fn web(cpu: i64) -> AppRequest {
        let mut web = request("web", cpu, &["a"]);
        web.demand.groups[0].surge = 1;
        web
    }

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
impl<const CPU: i64> WorkflowCase for Crowded<CPU> {
    type Workflow = Update;

    async fn on(base: Base) -> Self {
        let victim = base.group("victim", DeploymentState::Instantiated).await;
        let dig = base.group("shop", DeploymentState::Instantiated).await;
        let old = base.serving(&victim, request("v", 600, &["a", "b", "c", "d"]), "a").await;
        let web = base.serving(&dig, Self::web(300), "a").await;
        base.fakes.plans.then(move || plan_to_b(&old, "web"));
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
            kept: vec![update::Kept { old: self.web.clone(), digest: rendered("shop-new").digest, request: Self::web(CPU) }],
            added: vec![],
            together: BTreeMap::new(),
            dropped: vec![],
            approved: vec![],
            after: BTreeMap::new(),
            changed: vec![],
            rollback: false,
        }
    }
    async fn check_done(&self, _: &WorkflowView) -> Result<(), String> {
        self.web_has(CPU)?;
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
    drover_workflow::generic_tests!(super::CaseFixture<super::Crowded<300>>);
}

mod crowded_by_larger_pods {
    drover_workflow::generic_tests!(super::CaseFixture<super::Crowded<450>>);
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

    async fn on(base: Base) -> Self {
        let moves = Moves::on(base).await;
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
