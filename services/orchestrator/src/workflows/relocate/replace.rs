//! Replacing a destination at which a new copy does not become ready.
//!
//! Which destination is next, and why the ones before it were given up, is journaled before it has any effect: [`choose_next`]
//! changes only the state, and [`claim_next`] runs in a later pass of the step. A pass that is repeated therefore claims the same
//! destination again, although an earlier one may have room by then.

use std::sync::Arc;

use drover_api::bindings::DesiredState;
use drover_api::ledger::{LedgerChange, LedgerTransaction};
use drover_api::scheduling::{ClaimState, MemberKey};
use drover_workflow::{Ctx, StepError};

use super::super::{reasons, release, remove};
use super::{MoveProgress, MoveStage, Relocate, binding_id};
use crate::store::binding::{self, Binding};

/// How a claim on the next destination ended.
pub(super) enum NextClaim {
    /// The new copy goes there.
    Held,
    /// The destination has no room.
    Refused(String),
    /// Nothing is known of the destination at the moment.
    Unknown,
}

/// Chooses the destination after `failed`, to be claimed once the choice is journaled.
pub(super) fn choose_next(moving: &mut MoveProgress, failed: &MemberKey, reason: &str) -> Result<(), StepError> {
    moving.refusals.push(format!("{failed}: {reason}"));
    if moving.others.is_empty() {
        let message = format!("{} did not become ready at any destination; everything is as before", moving.name());
        return Err(StepError::fail("destination_not_ready", message).reasons(&moving.refusals));
    }
    moving.next = Some(moving.others.remove(0));
    Ok(())
}

/// Removes the copy that failed and claims room at `to`. The failed copy's row stays as retiring and keeps its room until the copy
/// is gone.
pub(super) async fn claim_next(ctx: &mut Ctx<Relocate>, index: usize, to: MemberKey, fence: i64) -> Result<NextClaim, StepError> {
    let environment = ctx.environment.clone();
    let failed = ctx.state.moves[index].new_copy(ctx.id);
    remove_failed(ctx, &failed).await?;

    let new = binding_id(ctx.id, &format!("{}/{}", failed.dig.id, failed.app), &to);
    // The row before the claim: every claim and every applied copy is explained by a row.
    let mut tx = environment.transaction(ctx.id, ctx.fence).await?;
    binding::put(&mut tx, &Binding { id: new, member: to.clone(), ..failed.clone() }).await?;
    tx.commit().await?;
    let take = LedgerChange::Take {
        claim: new,
        dig: failed.dig.clone(),
        request: Arc::new(failed.request.clone()),
        member: to.clone(),
        state: Some(ClaimState::Held),
    };
    let transaction = LedgerTransaction { operation: ctx.id, fence, changes: vec![take] };
    match environment.services.placement.transact(ctx.derived_id(&format!("take/{new}")), &transaction).await {
        Ok(_) => {
            let moving = &mut ctx.state.moves[index];
            if let Some(gap) = &mut moving.gap {
                gap.given_up.push(moving.new);
            }
            (moving.new, moving.to, moving.sent, moving.next) = (new, to, None, None);
            moving.reach(MoveStage::Claimed);
            Ok(NextClaim::Held)
        }
        Err(error) if error.code() == Some("capacity_unknown") && ctx.waited() < environment.deadlines.ready => Ok(NextClaim::Unknown),
        Err(error) if matches!(error.code(), Some("ledger_conflict" | "capacity_unknown")) => {
            let mut tx = environment.transaction(ctx.id, ctx.fence).await?;
            binding::delete(&mut tx, &[new]).await?;
            tx.commit().await?;
            // The same claim may still be in flight from an engine that lost its lease: a release with a higher fence makes
            // the ledger refuse it.
            let fence = environment.fence(ctx.id, ctx.fence).await?;
            release::release_unexplained(&environment, ctx.derived_id(&format!("take/{new}/release/{fence}")), ctx.id, fence, &[new])
                .await?;
            Ok(NextClaim::Refused(reasons(&error).join("; ")))
        }
        Err(error) => Err(error.into()),
    }
}

async fn remove_failed(ctx: &Ctx<Relocate>, failed: &Binding) -> Result<(), StepError> {
    tracing::info!(workflow.id = %ctx.id, app = %failed.app, member = %failed.member, "a destination is replaced");
    let mut tx = ctx.environment.transaction(ctx.id, ctx.fence).await?;
    let present = remove::retire(&mut tx, failed.id).await?;
    tx.commit().await?;
    if present {
        let fence = ctx.environment.fence(ctx.id, ctx.fence).await?;
        ctx.environment.services.synchronizer.put_binding(failed.desired(DesiredState::Absent, fence)).await?;
    }
    Ok(())
}
