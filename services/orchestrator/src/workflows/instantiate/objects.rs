//! Objects of an instantiation: bindings, the members, and the end.

use drover_workflow::{Ctx, Outcome, StepError, StepResult};
use sqlx::PgConnection;

use super::super::bring::Brought;
use super::super::remove;
use super::super::room::{REPLANS, targets};
use super::Instantiate;
use crate::store::binding::{self, Role};
use crate::store::deployment::{self, State as Lifecycle};
use crate::store::hold;

pub(super) async fn bind(ctx: &mut Ctx<Instantiate>, tx: &mut PgConnection) -> StepResult {
    for binding in targets(ctx)? {
        binding::put(&mut *tx, &binding).await?;
    }
    Ok(Outcome::next())
}

pub(super) async fn deliver(ctx: &mut Ctx<Instantiate>) -> StepResult {
    let targets = targets(ctx)?;
    let after = ctx.input.apps.iter().map(|app| (app.app().to_owned(), app.after.clone())).collect();
    let fence = ctx.world.fence(ctx.id, ctx.fence).await?;
    let world = ctx.world.clone();
    // Room that was made is soon known to be lost. Room that was just there may be on its way back: all the time there is.
    let patience = if ctx.state.search.relocated { world.deadlines } else { world.deadlines.without_haste() };
    match ctx.state.progress.bring(&world, fence, &targets, &after, patience).await? {
        Brought::All => {
            ctx.progress("ready");
            Ok(Outcome::next())
        }
        Brought::Waiting { keys, until, note } => {
            ctx.progress(note);
            Ok(Outcome::park(keys).until(until))
        }
        Brought::Failed { code, reason, .. } => Err(StepError::fail(&code, reason)),
        Brought::Unschedulable { reason, .. } if ctx.state.search.relocated => {
            ctx.state.lost = Some(reason);
            Ok(Outcome::next())
        }
        Brought::Unschedulable { reason, .. } => Err(StepError::fail("not_ready", reason)),
    }
}

pub(super) async fn replan(ctx: &mut Ctx<Instantiate>) -> StepResult {
    let Some(reason) = ctx.state.lost.clone() else { return Ok(Outcome::next()) };
    if ctx.round > REPLANS {
        return Err(
            StepError::fail("room_lost", format!("somebody else took the room that was made, {REPLANS} plans in a row")).reasons([reason])
        );
    }
    ctx.progress(format!("the room was taken by somebody else; planning anew: {reason}"));
    if let Some(park) = remove_targets(ctx).await? {
        return Ok(park);
    }
    Ok(Outcome::Repeat("decide"))
}

/// Undo of everything in the members, of every round.
pub(super) async fn take_away(ctx: &mut Ctx<Instantiate>) -> StepResult {
    ctx.progress("taking new copies away");
    Ok(remove_targets(ctx).await?.unwrap_or_else(Outcome::next))
}

async fn remove_targets(ctx: &mut Ctx<Instantiate>) -> Result<Option<Outcome>, StepError> {
    let mut tx = ctx.world.transaction(ctx.id, ctx.fence).await?;
    let bindings = remove::retire_targets(&mut tx, ctx.id).await?;
    tx.commit().await?;
    let fence = ctx.world.fence(ctx.id, ctx.fence).await?;
    let world = ctx.world.clone();
    let removed = ctx.state.removal.remove(&world, fence, &bindings, world.deadlines.gone).await?;
    ctx.state.leftovers = removed.leftovers();
    Ok(removed.park())
}

pub(super) async fn become_current(ctx: &mut Ctx<Instantiate>, tx: &mut PgConnection) -> StepResult {
    let ids: Vec<_> = ctx.state.search.placed.iter().map(|placed| placed.binding).collect();
    binding::set_role(&mut *tx, &ids, Role::Current, ctx.id).await?;
    deployment::reach(&mut *tx, ctx.input.dig.id, Lifecycle::Instantiated, ctx.input.revision, Some(ctx.id)).await?;
    hold::drop_all(tx, ctx.id).await?;
    ctx.progress("instantiated");
    Ok(Outcome::next())
}
