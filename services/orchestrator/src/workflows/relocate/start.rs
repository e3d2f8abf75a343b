//! The start of a relocation: holds, acceptance of the plan, and the transaction that makes all claims.

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_api::ledger::{LedgerChange, LedgerReceipt, LedgerTransaction};
use drover_api::plans::PlanAcceptance;
use drover_workflow::{Ctx, Outcome, StepError, StepResult};
use sqlx::PgConnection;
use uuid::Uuid;

use super::super::room::leave_queue;
use super::super::{now, reasons, release, wait_for_capacity};
use super::{MoveProgress, MoveStage, Relocate, binding_id, scaled};
use crate::peers::PeerError;
use crate::store::binding::{self, Role};
use crate::store::hold;

pub(super) async fn hold_victims(ctx: &mut Ctx<Relocate>, tx: &mut PgConnection) -> StepResult {
    ctx.progress("holding the groups that move");
    let digs: Vec<Uuid> = ctx.input.moves.iter().map(|victim| victim.dig.id).collect();
    if let Err(busy) = hold::take(&mut *tx, ctx.id, &digs).await? {
        let name =
            ctx.input.moves.iter().find(|victim| victim.dig.id == busy.dig).map(|victim| victim.dig.name.clone()).unwrap_or_default();
        return Err(StepError::fail("victim_busy", format!("{name} is to be moved, but operation {} is changing it", busy.holder)));
    }
    let claims: Vec<Uuid> = ctx.input.moves.iter().map(|victim| victim.claim).collect();
    let rows = binding::find(&mut *tx, &claims).await?;
    let demands = binding::approved_demands(&mut *tx, &claims).await?;
    let (mut moves, mut changed) = (Vec::new(), Vec::new());
    for victim in &ctx.input.moves {
        match rows.iter().find(|row| row.id == victim.claim && row.role == Role::Current && row.member == victim.from) {
            Some(old) => moves.push(MoveProgress {
                request: scaled::request(&ctx.environment.statuses, &demands, old, &victim.to),
                new: binding_id(ctx.id, &format!("{}/{}", old.dig.id, old.app), &victim.to),
                old: old.clone(),
                to: victim.to.clone(),
                others: victim.alternatives.clone(),
                stage: MoveStage::Claimed,
                since: now(),
                ended: None,
                refusals: Vec::new(),
                next: None,
                sent: None,
                gap: None,
                handover: None,
                shift: None,
            }),
            None => changed.push(format!("{}/{} no longer runs on {} as in the plan", victim.dig.name, victim.app, victim.from)),
        }
    }
    if !changed.is_empty() {
        return Err(StepError::fail("world_changed", "something that the plan assumed has changed since it was made").reasons(changed));
    }
    ctx.state.moves = moves;
    Ok(Outcome::next())
}

pub(super) async fn accept_plan(ctx: &mut Ctx<Relocate>) -> StepResult {
    match ctx.environment.services.migration.plan_accept(ctx.input.plan, &PlanAcceptance { operation: ctx.id }).await {
        Ok(_) => Ok(Outcome::next()),
        Err(error) if error.code() == Some("plan_not_proposed") => {
            let detail = error.problem().map(|problem| problem.detail.clone()).unwrap_or_default();
            Err(StepError::fail("plan_not_proposed", format!("the plan cannot be carried out: {detail}")))
        }
        Err(error) if error.code() == Some("world_changed") => Err(changed(&error)),
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn claim(ctx: &mut Ctx<Relocate>) -> StepResult {
    ctx.progress("claiming room at the destinations");
    let mut claimed = transact(ctx, "claim").await?;
    // The plan found room for what the old copies had claimed. If the numbers that run do not fit, that is claimed instead, and the rest is
    // growth later. A repeated step is refused the first transaction again, because the claims of the second exist.
    if claimed.as_ref().is_err_and(is_refused) && ctx.state.moves.iter().any(|moving| moving.request.is_some()) {
        ctx.state.moves.iter_mut().for_each(|moving| moving.request = None);
        claimed = transact(ctx, "claim/as_planned").await?;
    }
    match claimed {
        Ok(receipt) => {
            end_turn(ctx, Some(receipt.seq)).await?;
            Ok(Outcome::next())
        }
        Err(error) if is_refused(&error) => Err(changed(&error)),
        Err(error) => {
            // This may take long; others need not wait for it.
            end_turn(ctx, None).await?;
            wait_for_capacity(ctx, error)
        }
    }
}

fn is_refused(error: &PeerError) -> bool {
    error.code() == Some("ledger_conflict")
}

/// The transaction that makes all claims.
async fn transact(ctx: &Ctx<Relocate>, name: &str) -> Result<Result<LedgerReceipt, PeerError>, StepError> {
    let fence = ctx.environment.fence(ctx.id, ctx.fence).await?;
    let mut changes: Vec<_> =
        ctx.state.moves.iter().map(|moving| LedgerChange::Leave { claim: moving.old.id, member: moving.old.member.clone() }).collect();
    changes.extend(ctx.state.moves.iter().map(|moving| LedgerChange::Take {
        claim: moving.new,
        dig: moving.old.dig.clone(),
        request: Arc::new(moving.new_copy(ctx.id).request),
        member: moving.to.clone(),
        state: Some(drover_api::scheduling::ClaimState::Held),
    }));
    for (claim, app, member) in newcomers(ctx) {
        let newcomer = ctx.input.newcomer.as_ref();
        let request = newcomer.and_then(|newcomer| newcomer.apps.iter().find(|request| request.app == app));
        let (Some(newcomer), Some(request)) = (newcomer, request) else {
            return Err(StepError::fail("internal", format!("the plan names the app {app}, which was not asked for")));
        };
        // Held if it fits now, promised if it fits once the victims have left.
        changes.push(LedgerChange::Take { claim, dig: newcomer.dig.clone(), request: Arc::new(request.clone()), member, state: None });
    }
    let transaction = LedgerTransaction { operation: ctx.id, fence, changes };
    Ok(ctx.environment.services.placement.transact(ctx.derived_id(name), &transaction).await)
}

/// The next newcomer may plan.
async fn end_turn(ctx: &Ctx<Relocate>, ledger_seq: Option<i64>) -> Result<(), StepError> {
    match &ctx.input.newcomer {
        Some(newcomer) => leave_queue(ctx, newcomer.operation, ledger_seq).await,
        None => Ok(()),
    }
}

/// Another service found that an assumption of the plan no longer holds.
fn changed(error: &PeerError) -> StepError {
    StepError::fail("world_changed", "something that the plan assumed has changed since it was made").reasons(reasons(error))
}

/// The claims of the newcomer's apps: id, app and member.
pub(super) fn newcomers(ctx: &Ctx<Relocate>) -> Vec<(Uuid, String, drover_api::scheduling::MemberKey)> {
    let places = ctx.input.newcomer.iter().flat_map(|newcomer| &newcomer.places);
    places.map(|(app, member)| (binding_id(ctx.id, app, member), app.clone(), member.clone())).collect()
}

/// Undo: releases the new claims and keeps those of the victims. A claim that is still in flight is refused because the release has
/// a higher fence. The claim of a copy that is not gone yet stays, with its row, until task `retire` finds the copy gone.
pub(super) async fn release_claims(ctx: &mut Ctx<Relocate>) -> StepResult {
    let fence = ctx.environment.fence(ctx.id, ctx.fence).await?;
    let victims: BTreeSet<Uuid> = ctx.state.moves.iter().map(|moving| moving.old.id).collect();
    let new: BTreeSet<Uuid> =
        ctx.state.moves.iter().map(|moving| moving.new).chain(newcomers(ctx).into_iter().map(|(claim, ..)| claim)).collect();
    let asked: Vec<Uuid> = new.iter().copied().collect();
    release::release_unexplained(&ctx.environment, ctx.derived_id("claim/release"), ctx.id, fence, &asked).await?;
    // Read after the release: a claim that arrived between a read and the release would leave its victims marked as leaving forever.
    let held = ctx.environment.services.placement.claims_of(ctx.id).await?;
    let others: Vec<Uuid> = held.iter().map(|claim| claim.id).filter(|id| !victims.contains(id) && !new.contains(id)).collect();
    release::release_unexplained(&ctx.environment, ctx.derived_id("claim/release-others"), ctx.id, fence, &others).await?;
    let stay: Vec<Uuid> = victims.into_iter().filter(|victim| held.iter().any(|claim| claim.id == *victim)).collect();
    if !stay.is_empty() {
        let changes = stay.into_iter().map(|claim| LedgerChange::Stay { claim }).collect();
        ctx.environment
            .services
            .placement
            .transact(ctx.derived_id("claim/stay"), &LedgerTransaction { operation: ctx.id, fence, changes })
            .await?;
    }
    for moving in &mut ctx.state.moves {
        moving.reach(MoveStage::Undone);
    }
    Ok(Outcome::next())
}
