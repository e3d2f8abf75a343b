//! Holds, the plan's acceptance, and the one transaction that claims everything.

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_api::ledger::{LedgerChange, LedgerTransaction};
use drover_api::plans::PlanAcceptance;
use drover_workflow::{Ctx, Outcome, StepError, StepResult};
use sqlx::PgConnection;
use uuid::Uuid;

use super::super::{now, reasons, release, unheard};
use super::{Moving, Relocate, Stage, binding_id};
use crate::peers::PeerError;
use crate::store::binding::{self, Role};
use crate::store::hold;

pub(super) async fn hold_victims(ctx: &mut Ctx<Relocate>, tx: &mut PgConnection) -> StepResult {
    ctx.progress("holding the groups that move");
    let digs: Vec<Uuid> = ctx.input.moves.iter().map(|victim| victim.dig.id).collect();
    if let Err(busy) = hold::take(&mut *tx, ctx.id, &digs).await? {
        let name =
            ctx.input.moves.iter().find(|victim| victim.dig.id == busy.dig).map(|victim| victim.dig.name.clone()).unwrap_or_default();
        return Err(StepError::fail("victim_busy", format!("{name} is to move, but operation {} works on it", busy.holder)));
    }
    let claims: Vec<Uuid> = ctx.input.moves.iter().map(|victim| victim.claim).collect();
    let rows = binding::find(&mut *tx, &claims).await?;
    let (mut moves, mut changed) = (Vec::new(), Vec::new());
    for victim in &ctx.input.moves {
        match rows.iter().find(|row| row.id == victim.claim && row.role == Role::Current && row.member == victim.from) {
            Some(old) => moves.push(Moving {
                new: binding_id(ctx.id, &format!("{}/{}", old.dig.id, old.app), &victim.to),
                old: old.clone(),
                to: victim.to.clone(),
                others: victim.alternatives.clone(),
                stage: Stage::Claimed,
                since: now(),
                ended: None,
                refusals: Vec::new(),
                next: None,
                sent: None,
            }),
            None => changed.push(format!("{}/{} no longer runs on {} as the plan saw it", victim.dig.name, victim.app, victim.from)),
        }
    }
    if !changed.is_empty() {
        return Err(StepError::fail("world_changed", "the world has changed since the plan was made").reasons(changed));
    }
    ctx.state.moves = moves;
    Ok(Outcome::next())
}

pub(super) async fn accept_plan(ctx: &mut Ctx<Relocate>) -> StepResult {
    match ctx.world.services.migration.plan_accept(ctx.input.plan, &PlanAcceptance { operation: ctx.id }).await {
        Ok(_) => Ok(Outcome::next()),
        Err(error) if error.code() == Some("plan_not_proposed") => {
            let words = error.problem().map(|problem| problem.detail.clone()).unwrap_or_default();
            Err(StepError::fail("plan_not_proposed", format!("the plan cannot be carried out: {words}")))
        }
        Err(error) if error.code() == Some("world_changed") => Err(changed(&error)),
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn claim(ctx: &mut Ctx<Relocate>) -> StepResult {
    ctx.progress("claiming room at the destinations");
    let fence = ctx.world.fence(ctx.id, ctx.fence).await?;
    let mut changes: Vec<_> =
        ctx.state.moves.iter().map(|moving| LedgerChange::Leave { claim: moving.old.id, member: moving.old.member.clone() }).collect();
    changes.extend(ctx.state.moves.iter().map(|moving| LedgerChange::Take {
        claim: moving.new,
        dig: moving.old.dig.clone(),
        request: Arc::new(moving.old.request.clone()),
        member: moving.to.clone(),
        state: Some(drover_api::scheduling::ClaimState::Held),
    }));
    for (claim, app, member) in newcomers(ctx) {
        let newcomer = ctx.input.newcomer.as_ref();
        let request = newcomer.and_then(|newcomer| newcomer.apps.iter().find(|request| request.app == app));
        let (Some(newcomer), Some(request)) = (newcomer, request) else {
            return Err(StepError::fail("internal", format!("the plan speaks of {app}, which nobody asked for")));
        };
        // Held where it fits now, promised where it waits for those who leave.
        changes.push(LedgerChange::Take { claim, dig: newcomer.dig.clone(), request: Arc::new(request.clone()), member, state: None });
    }
    let transaction = LedgerTransaction { operation: ctx.id, fence, changes };
    match ctx.world.services.placement.transact(ctx.derived_id("claim"), &transaction).await {
        Ok(_) => Ok(Outcome::next()),
        Err(error) if error.code() == Some("ledger_conflict") => Err(changed(&error)),
        Err(error) => unheard(ctx, error),
    }
}

/// What another service says against the plan.
fn changed(error: &PeerError) -> StepError {
    StepError::fail("world_changed", "the world has changed since the plan was made").reasons(reasons(error))
}

/// Claims of the newcomer's apps.
pub(super) fn newcomers(ctx: &Ctx<Relocate>) -> Vec<(Uuid, String, drover_api::scheduling::MemberKey)> {
    let places = ctx.input.newcomer.iter().flat_map(|newcomer| &newcomer.places);
    places.map(|(app, member)| (binding_id(ctx.id, app, member), app.clone(), member.clone())).collect()
}

/// Victims stay, new room goes. A claim that is still on its way meets the release's fence and is refused; one of a copy that
/// could not be removed yet stays with its row until task `retire` finds it gone.
pub(super) async fn give_back(ctx: &mut Ctx<Relocate>) -> StepResult {
    let fence = ctx.world.fence(ctx.id, ctx.fence).await?;
    let victims: BTreeSet<Uuid> = ctx.state.moves.iter().map(|moving| moving.old.id).collect();
    let new: BTreeSet<Uuid> =
        ctx.state.moves.iter().map(|moving| moving.new).chain(newcomers(ctx).into_iter().map(|(claim, ..)| claim)).collect();
    let asked: Vec<Uuid> = new.iter().copied().collect();
    release::release_unexplained(&ctx.world, ctx.derived_id("claim/release"), ctx.id, fence, &asked).await?;
    // Only now: a claim that came late, after this look and before the release, would have left its victims leaving for ever.
    let held = ctx.world.services.placement.claims_of(ctx.id).await?;
    let others: Vec<Uuid> = held.iter().map(|claim| claim.id).filter(|id| !victims.contains(id) && !new.contains(id)).collect();
    release::release_unexplained(&ctx.world, ctx.derived_id("claim/release-others"), ctx.id, fence, &others).await?;
    let stay: Vec<Uuid> = victims.into_iter().filter(|victim| held.iter().any(|claim| claim.id == *victim)).collect();
    if !stay.is_empty() {
        let changes = stay.into_iter().map(|claim| LedgerChange::Stay { claim }).collect();
        ctx.world
            .services
            .placement
            .transact(ctx.derived_id("claim/stay"), &LedgerTransaction { operation: ctx.id, fence, changes })
            .await?;
    }
    for moving in &mut ctx.state.moves {
        moving.reach(Stage::Undone);
    }
    Ok(Outcome::next())
}
