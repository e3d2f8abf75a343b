//! New copies: started, watched, replaced by others where a destination does not do.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::bindings::Phase;
use drover_api::ledger::{LedgerChange, LedgerTransaction};
use drover_api::scheduling::{ClaimState, MemberKey};
use drover_store::Timestamp;
use drover_workflow::{Ctx, Outcome, StepError, StepResult};
use sqlx::PgConnection;

use super::super::judge::{self, Sent, Verdict};
use super::super::{bring, now, reasons, remove};
use super::{Moving, Relocate, Stage, binding_id};
use crate::environment::binding_key;
use crate::store::binding::{self, Binding, Role};

pub(super) async fn bind(ctx: &mut Ctx<Relocate>, tx: &mut PgConnection) -> StepResult {
    for moving in &ctx.state.moves {
        binding::put(&mut *tx, &new_copy(moving, ctx.id)).await?;
    }
    Ok(Outcome::next())
}

fn new_copy(moving: &Moving, operation: uuid::Uuid) -> Binding {
    Binding { id: moving.new, member: moving.to.clone(), role: Role::Target, operation, ..moving.old.clone() }
}

pub(super) async fn prepare(ctx: &mut Ctx<Relocate>) -> StepResult {
    let fence = ctx.world.fence(ctx.id, ctx.fence).await?;
    let given_up = given_up(ctx).await?;
    let (mut keys, mut until, mut notes) = (Vec::new(), None::<Timestamp>, Vec::new());
    for index in 0..ctx.state.moves.len() {
        let world = ctx.world.clone();
        loop {
            let operation = ctx.id;
            let moving = &mut ctx.state.moves[index];
            if given_up.contains(&moving.new) {
                let reason = moving.reason.clone().unwrap_or_else(|| "it did not do before this was interrupted".to_owned());
                next_destination(ctx, index, fence, &reason).await?;
                continue;
            }
            if moving.sent.is_none() {
                bring::send(&world, &new_copy(moving, operation), fence).await?;
                moving.sent = Some(Sent { fence, digest: moving.old.digest.clone(), at: now(), trouble: None });
                moving.reach(Stage::Starting);
            }
            let Some(sent) = moving.sent.as_mut() else { continue };
            let reason = match judge::judge(sent, world.statuses.get(moving.new).as_deref(), now(), &world.deadlines) {
                Verdict::Ready => {
                    moving.reach(Stage::Ready);
                    break;
                }
                Verdict::Waiting { until: look, note, .. } => {
                    moving.reach(Stage::Starting);
                    keys.push(binding_key(moving.new));
                    until = Some(until.map_or(look, |until| Timestamp(until.0.min(look.0))));
                    notes.extend(note.map(|note| format!("{} on {}: {note}", moving.name(), moving.to)));
                    break;
                }
                Verdict::Failed { reason, .. } | Verdict::Unschedulable(reason) => reason,
            };
            next_destination(ctx, index, fence, &reason).await?;
        }
    }
    let ready = ctx.state.moves.iter().filter(|moving| moving.stage == Stage::Ready).count();
    notes.insert(0, format!("{ready} of {} new copies ready", ctx.state.moves.len()));
    ctx.progress(notes.join("; "));
    match until {
        None => Ok(Outcome::next()),
        Some(until) => Ok(Outcome::park(keys).until(until)),
    }
}

/// Copies that this step gave up before it was interrupted: they must never be told to be present again.
async fn given_up(ctx: &Ctx<Relocate>) -> Result<Vec<uuid::Uuid>, StepError> {
    let new: Vec<_> = ctx.state.moves.iter().map(|moving| moving.new).collect();
    let rows = binding::find(&mut *ctx.world.store.pool().acquire().await?, &new).await?;
    Ok(rows.into_iter().filter(|row| row.role != Role::Target).map(|row| row.id).collect())
}

/// Gives up a destination and claims the next one that has room. The failed copy's row goes on as retiring: it keeps its
/// room until it is gone.
async fn next_destination(ctx: &mut Ctx<Relocate>, index: usize, fence: i64, reason: &str) -> Result<(), StepError> {
    let world = ctx.world.clone();
    let failed = new_copy(&ctx.state.moves[index], ctx.id);
    tracing::info!(workflow.id = %ctx.id, app = %failed.app, member = %failed.member, reason, "a destination does not do");
    let mut tx = world.transaction(ctx.id, ctx.fence).await?;
    binding::set_role(&mut tx, &[failed.id], Role::Retiring, ctx.id).await?;
    tx.commit().await?;
    let absent = world.fence(ctx.id, ctx.fence).await?;
    world.services.synchronizer.put_binding(&failed.desired(drover_api::bindings::DesiredState::Absent, absent)).await?;

    let mut refused = vec![format!("{}: {reason}", failed.member)];
    while !ctx.state.moves[index].others.is_empty() {
        let to = ctx.state.moves[index].others.remove(0);
        let new = binding_id(ctx.id, &format!("{}/{}", failed.dig.id, failed.app), &to);
        let take = LedgerChange::Take {
            claim: new,
            dig: failed.dig.clone(),
            request: Arc::new(failed.request.clone()),
            member: to.clone(),
            state: Some(ClaimState::Held),
        };
        // The row first: whatever is claimed or applied is explained by one.
        let copy = Binding { id: new, member: to.clone(), ..failed.clone() };
        let mut tx = world.transaction(ctx.id, ctx.fence).await?;
        binding::put(&mut tx, &copy).await?;
        tx.commit().await?;
        let transaction = LedgerTransaction { operation: ctx.id, fence, changes: vec![take] };
        match world.services.placement.transact(ctx.derived_id(&format!("take/{new}")), &transaction).await {
            Ok(_) => {
                let moving = &mut ctx.state.moves[index];
                (moving.new, moving.to, moving.sent, moving.reason) = (new, to, None, Some(refused.join("; ")));
                moving.reach(Stage::Claimed);
                return Ok(());
            }
            // Of that destination nothing is known, and has not been for long: not now.
            Err(error)
                if error.code() == Some("ledger_conflict")
                    || (error.code() == Some("capacity_unknown") && ctx.waited() >= world.deadlines.ready) =>
            {
                refused.push(format!("{to}: {}", reasons(&error).join("; ")));
                let mut tx = world.transaction(ctx.id, ctx.fence).await?;
                binding::delete(&mut tx, &[new]).await?;
                tx.commit().await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    let name = ctx.state.moves[index].name();
    Err(StepError::fail("destination_not_ready", format!("{name} did not become ready anywhere it could move to; everything is as before"))
        .reasons(refused))
}

/// Undo: new copies go, wherever they were tried; the old ones have served all the time.
pub(super) async fn take_away(ctx: &mut Ctx<Relocate>) -> StepResult {
    ctx.progress("taking new copies away");
    let mut tx = ctx.world.transaction(ctx.id, ctx.fence).await?;
    let bindings = remove::retire_targets(&mut tx, ctx.id).await?;
    tx.commit().await?;
    let fence = ctx.world.fence(ctx.id, ctx.fence).await?;
    let world = ctx.world.clone();
    let removed = ctx.state.removal.remove(&world, fence, &bindings, world.deadlines.gone).await?;
    ctx.state.leftovers = removed.leftovers();
    Ok(removed.park().unwrap_or_else(Outcome::next))
}

/// The place where traffic will be shifted. Until then it looks once more that every new copy serves *now*: what was Ready when
/// the journal last said so may have died while this service was down, and the old copy is the only one left.
pub(super) async fn shift_traffic(ctx: &mut Ctx<Relocate>) -> StepResult {
    let serves = |moving: &&Moving| ctx.world.statuses.get(moving.new).is_some_and(|status| status.phase == Phase::Ready);
    let waiting: Vec<String> = ctx.state.moves.iter().filter(|moving| !serves(moving)).map(|moving| binding_key(moving.new)).collect();
    if waiting.is_empty() {
        return Ok(Outcome::next());
    }
    let patience = ctx.world.deadlines.ready;
    if ctx.waited() >= patience {
        return Err(StepError::fail("destination_not_ready", "a new copy stopped serving before the cut"));
    }
    Ok(Outcome::park(waiting).until(ctx.deadline(patience)))
}

/// Where each victim goes, for messages.
pub(super) fn summary(moves: &[Moving]) -> String {
    if moves.is_empty() {
        return "nobody".to_owned();
    }
    let mut by_member: BTreeMap<&MemberKey, usize> = BTreeMap::new();
    for moving in moves {
        *by_member.entry(&moving.to).or_default() += 1;
    }
    by_member.into_iter().map(|(member, count)| format!("{count} to {member}")).collect::<Vec<_>>().join(", ")
}
