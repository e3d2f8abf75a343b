//! The pivot and the steps after it: the old copies are removed and the newcomer is admitted.

use std::time::Duration;

use drover_api::bindings::DesiredState;
use drover_api::ledger::{Difference, LedgerChange, LedgerTransaction};
use drover_workflow::{Ctx, Outcome, StepError, StepResult};
use sqlx::PgConnection;
use uuid::Uuid;

use super::super::{now, readiness, reasons, release, remove};
use super::prepare::summary;
use super::start::newcomers;
use super::{MoveStage, Relocate};
use crate::store::binding::{self, Role};
use crate::store::{hold, traffic};

/// Interval of admission requests while room is becoming free.
const ADMIT_EVERY: Duration = Duration::from_millis(500);

pub(super) async fn cut_over(ctx: &mut Ctx<Relocate>, tx: &mut PgConnection) -> StepResult {
    let new: Vec<Uuid> = ctx.state.moves.iter().map(|moving| moving.new).collect();
    let old: Vec<Uuid> = ctx.state.moves.iter().map(|moving| moving.old.id).collect();
    binding::set_role(&mut *tx, &old, Role::Retiring, ctx.id).await?;
    binding::set_role(&mut *tx, &new, Role::Current, ctx.id).await?;
    // From now on the roles of the copies say where requests go, not the weights of the move.
    traffic::clear(&mut *tx, ctx.id).await?;
    ctx.environment.traffic.nudge();
    // A target that the state does not name must not outlive the operation; task `retire` removes it.
    remove::retire_targets(&mut *tx, ctx.id).await?;
    for moving in &mut ctx.state.moves {
        moving.reach(MoveStage::CutOver);
    }
    ctx.progress(format!("cut over: {}", summary(&ctx.state.moves)));
    Ok(Outcome::next())
}

pub(super) async fn remove_old(ctx: &mut Ctx<Relocate>) -> StepResult {
    let fence = ctx.environment.fence(ctx.id, ctx.fence).await?;
    let absent = ctx.state.moves.iter().map(|moving| moving.old.desired(DesiredState::Absent, fence)).collect();
    ctx.environment.services.synchronizer.put_bindings(&absent).await?;
    ctx.state.moves.iter_mut().for_each(|moving| moving.reach(MoveStage::Removing));
    Ok(Outcome::next())
}

pub(super) async fn old_gone(ctx: &mut Ctx<Relocate>) -> StepResult {
    ctx.progress("removing the old copies");
    let ids: Vec<Uuid> = ctx.state.moves.iter().map(|moving| moving.old.id).collect();
    let rows = binding::find(&mut *ctx.environment.store.acquire().await?, &ids).await?;
    let removed = remove::remove(ctx, &rows).await?;
    for moving in &mut ctx.state.moves {
        // A missing row was deleted after its copy was gone.
        if removed.gone.contains(&moving.old.id) || !rows.iter().any(|row| row.id == moving.old.id) {
            moving.reach(MoveStage::Done);
        }
    }
    Ok(removed.park().unwrap_or_else(Outcome::next))
}

pub(super) async fn admit(ctx: &mut Ctx<Relocate>) -> StepResult {
    let claims: Vec<Uuid> = newcomers(ctx).into_iter().map(|(claim, ..)| claim).collect();
    if claims.is_empty() {
        ctx.progress(format!("moved {}", summary(&ctx.state.moves)));
        return Ok(Outcome::next());
    }
    let fence = ctx.environment.fence(ctx.id, ctx.fence).await?;
    // Each try has an id of its own, so that it is decided again.
    let id = ctx.derived_id(&format!("admit/{}", ctx.state.admit_tries));
    let changes = claims.iter().map(|claim| LedgerChange::Admit { claim: *claim }).collect();
    let refused = match ctx.environment.services.placement.transact(id, &LedgerTransaction { operation: ctx.id, fence, changes }).await {
        Ok(_) => {
            ctx.progress(format!("moved {}; the room is free", summary(&ctx.state.moves)));
            return Ok(Outcome::next());
        }
        Err(error) if matches!(error.code(), Some("ledger_conflict" | "capacity_unknown")) => reasons(&error),
        Err(error) => return Err(error.into()),
    };
    // A short while, because pods that ended are still reported for a moment.
    let taken = refused.iter().any(|reason| reason.starts_with(Difference::ROOM_TAKEN));
    ctx.state.taken_since = if taken { Some(ctx.state.taken_since.unwrap_or_else(now)) } else { None };
    let lost = ctx.state.taken_since.is_some_and(|since| readiness::after(since, ctx.environment.deadlines.unschedulable) <= now());
    if !lost && ctx.waited() < ctx.environment.deadlines.room {
        ctx.state.admit_tries += 1;
        ctx.progress("waiting until the room is free");
        return Ok(Outcome::park::<String>([]).until(readiness::after(now(), ADMIT_EVERY)));
    }
    release::release_unexplained(&ctx.environment, ctx.derived_id("admit/release"), ctx.id, fence, &claims).await?;
    Err(StepError::fail("room_lost", "other pods took the room that was made; the moves stand").reasons(refused))
}

pub(super) async fn drop_holds(ctx: &mut Ctx<Relocate>, tx: &mut PgConnection) -> StepResult {
    hold::drop_all(tx, ctx.id).await?;
    Ok(Outcome::next())
}
