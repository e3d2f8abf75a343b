//! The objects of an instantiation: its bindings, their delivery to the members, and the pivot.

use drover_workflow::{Ctx, Outcome, StepError, StepResult};
use sqlx::PgConnection;

use super::super::apply::Applied;
use super::super::now;
use super::super::remove::remove_targets;
use super::super::room::{self, REPLANS, targets};
use super::Instantiate;
use crate::config::Deadlines;
use crate::environment::Lease;
use crate::store::binding::{self, Role};
use crate::store::deployment::{self, DeploymentState};
use crate::store::hold;

pub(super) async fn bind(ctx: &mut Ctx<Instantiate>, tx: &mut PgConnection) -> StepResult {
    binding::put_all(tx, &targets(ctx)?).await?;
    Ok(Outcome::next())
}

pub(super) async fn deliver(ctx: &mut Ctx<Instantiate>) -> StepResult {
    let targets = targets(ctx)?;
    let mut after = ctx.input.apps.iter().map(|app| (app.app().to_owned(), app.after.clone())).collect();
    ctx.state.search.order_application(&mut after);
    let environment = ctx.environment.clone();
    // Pods without a node: another place is looked for soon. Where there is none, room may still come back.
    let deadlines = environment.deadlines;
    let deadlines = match ctx.state.search.relocated {
        true => deadlines,
        false if ctx.state.stays => deadlines.with_full_ready_timeout(),
        false => Deadlines { unreachable: deadlines.ready, ..deadlines },
    };
    let lease = Lease::of(ctx);
    match ctx.state.progress.advance(&environment, lease, &targets, &after, deadlines).await? {
        Applied::All => {
            ctx.progress("ready");
            Ok(Outcome::next())
        }
        Applied::Waiting { keys, until, note } => {
            ctx.progress(note);
            Ok(Outcome::park(keys).until(until))
        }
        // Of what is in that member: another app owns an object of that name, the kind is not served, a quota or a rule is against it.
        Applied::Failed { binding, code, reason, elsewhere: true, lasting } if ctx.round <= REPLANS => {
            let target = targets.iter().find(|target| target.id == binding);
            let target = target.ok_or_else(|| StepError::fail("internal", format!("{binding} is no binding of this operation")))?;
            match room::accepted_elsewhere(ctx, target, &reason, lasting.as_deref(), &[]).await? {
                Ok(()) => ctx.state.lost = Some(reason),
                Err(refusals) => return Err(StepError::fail(&code, reason).reasons(refusals)),
            }
            Ok(Outcome::next())
        }
        Applied::Failed { code, reason, .. } => Err(StepError::fail(&code, reason)),
        Applied::Unschedulable { reason, .. } if ctx.state.search.relocated => {
            ctx.state.lost = Some(reason);
            Ok(Outcome::next())
        }
        Applied::Unschedulable { reason, .. } if ctx.state.stays => Err(StepError::fail("not_ready", reason)),
        Applied::Unschedulable { binding, reason } => {
            let target = targets.iter().find(|target| target.id == binding).filter(|_| ctx.round <= REPLANS);
            let again = match target {
                Some(target) => room::has_other_place(ctx, target, &reason).await? || room::moves_make_room(ctx, target).await?,
                None => false,
            };
            match again {
                true => ctx.state.lost = Some(reason),
                false => ctx.state.stays = true,
            }
            Ok(if ctx.state.stays { Outcome::park::<String>([]).until(now()) } else { Outcome::next() })
        }
    }
}

pub(super) async fn replan(ctx: &mut Ctx<Instantiate>) -> StepResult {
    let Some(reason) = ctx.state.lost.clone() else { return Ok(Outcome::next()) };
    if ctx.round > REPLANS {
        return Err(StepError::fail("room_lost", format!("could not run where it was placed, {REPLANS} times in a row")).reasons([reason]));
    }
    ctx.progress(format!("looking for another place: {reason}"));
    if let Some(park) = remove_targets(ctx).await? {
        return Ok(park);
    }
    Ok(Outcome::Repeat("decide"))
}

pub(super) async fn become_current(ctx: &mut Ctx<Instantiate>, tx: &mut PgConnection) -> StepResult {
    let ids: Vec<_> = ctx.state.search.placed.iter().map(|placed| placed.binding).collect();
    binding::set_role(&mut *tx, &ids, Role::Current, ctx.id).await?;
    deployment::reach(&mut *tx, ctx.input.dig.id, DeploymentState::Instantiated, ctx.input.revision, Some(ctx.id)).await?;
    hold::drop_all(tx, ctx.id).await?;
    ctx.progress(ctx.state.search.told("instantiated"));
    Ok(Outcome::next())
}
