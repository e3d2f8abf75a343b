//! The turn to plan: one operation at a time plans and claims what its plan needs ([`planning_queue`]).
//!
//! An operation has the turn from its plan until the relocation has claimed the plan's room, which is short; the moves themselves
//! run side by side. It is given back when the operation has to wait for something, and left for good when the room is claimed,
//! when there is no plan, and in undo.

use drover_workflow::{Ctx, StepError, Workflow};
use uuid::Uuid;

use super::{SeeksRoom, search};
use crate::environment::{Environment, turn_key};
use crate::group_path::GroupPath;
use crate::store::planning_queue::{self, Turn, Until};

/// Takes the turn if it is this operation's.
pub(super) async fn take<W: SeeksRoom>(ctx: &mut Ctx<W>) -> Result<Turn, StepError> {
    let priority = priority(ctx).await?;
    let mut tx = ctx.environment.transaction(ctx.id, ctx.fence).await?;
    let turn = planning_queue::take_turn(&mut tx, ctx.id, priority).await?;
    tx.commit().await?;
    if let Turn::Behind { next, .. } = turn {
        wake(&ctx.environment, next);
    }
    Ok(turn)
}

/// The priority with which the group waits for its turn. It is asked for once.
async fn priority<W: SeeksRoom>(ctx: &mut Ctx<W>) -> Result<u8, StepError> {
    let migration = ctx.environment.services.migration.clone();
    let search = search(ctx);
    if let Some(priority) = search.state.priority {
        return Ok(priority);
    }
    let priority = migration.priority(&GroupPath::of(search.dig).path()).await?;
    search.state.priority = Some(priority);
    Ok(priority)
}

/// Gives the turn to the next operation and keeps the place in the queue.
pub(super) async fn give_back<W: Workflow<Environment = Environment>>(ctx: &Ctx<W>, until: Until) -> Result<(), StepError> {
    let mut tx = ctx.environment.transaction(ctx.id, ctx.fence).await?;
    let next = planning_queue::block(&mut tx, ctx.id, until).await?;
    tx.commit().await?;
    wake(&ctx.environment, next);
    Ok(())
}

/// Takes `operation` out of the queue: this operation itself, or the parent of this relocation. `ledger_seq` is that of the claims
/// that the plan led to.
pub(in super::super) async fn leave<W: Workflow<Environment = Environment>>(
    ctx: &Ctx<W>,
    operation: Uuid,
    ledger_seq: Option<i64>,
) -> Result<(), StepError> {
    let mut tx = ctx.environment.transaction(ctx.id, ctx.fence).await?;
    let next = planning_queue::leave(&mut tx, operation, ledger_seq).await?;
    tx.commit().await?;
    wake(&ctx.environment, next);
    Ok(())
}

fn wake(environment: &Environment, next: Option<Uuid>) {
    if let Some(next) = next {
        environment.wakes.wake(turn_key(next));
    }
}
