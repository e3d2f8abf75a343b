//! New copies: applied, waited for until they are ready, and removed on undo.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_api::scheduling::MemberKey;
use drover_store::Timestamp;
use drover_workflow::{Ctx, Outcome, StepError, StepResult};
use sqlx::PgConnection;
use uuid::Uuid;

use super::super::readiness::{self, Readiness, Sent};
use super::super::{apply, now};
use super::replace::{self, NextClaim};
use super::{MoveProgress, MoveStage, Preparation, Relocate, once, stateful};
use crate::store::binding;
use crate::store::{refusal, refused_destination};

pub(super) async fn bind(ctx: &mut Ctx<Relocate>, tx: &mut PgConnection) -> StepResult {
    let copies: Vec<_> = ctx.state.moves.iter().map(|moving| moving.new_copy(ctx.id)).collect();
    binding::put_all(tx, &copies).await?;
    Ok(Outcome::next())
}

pub(super) async fn prepare(ctx: &mut Ctx<Relocate>) -> StepResult {
    let fence = ctx.environment.fence(ctx.id, ctx.fence).await?;
    let (mut keys, mut until, mut notes, mut again) = (Vec::new(), None::<Timestamp>, Vec::new(), false);
    for index in application_order(&ctx.input.order, &ctx.state.moves) {
        let preparation = prepare_move(ctx, index, fence).await?;
        let moving = &mut ctx.state.moves[index];
        match preparation {
            Preparation::Ready => moving.reach(MoveStage::Ready),
            Preparation::Waiting { until: deadline, note } => {
                keys.extend(moving.awaited());
                until = Some(until.map_or(deadline, |until| Timestamp(until.0.min(deadline.0))));
                notes.extend(note.map(|note| format!("{} on {}: {note}", moving.name(), moving.to)));
            }
            Preparation::Again => again = true,
        }
    }
    let ready = ctx.state.moves.iter().filter(|moving| moving.stage == MoveStage::Ready).count();
    notes.insert(0, format!("{ready} of {} new copies ready", ctx.state.moves.len()));
    ctx.progress(notes.join("; "));
    if again {
        until = Some(now());
    }
    match until {
        None => Ok(Outcome::next()),
        Some(until) => Ok(Outcome::park(keys).until(until)),
    }
}

/// Effects are only those of the destination that the journal knew when this pass began. A pass that is repeated has the same
/// effects again.
async fn prepare_move(ctx: &mut Ctx<Relocate>, index: usize, fence: i64) -> Result<Preparation, StepError> {
    if let Some(next) = ctx.state.moves[index].next.clone() {
        match replace::claim_next(ctx, index, next.clone(), fence).await? {
            NextClaim::Held => {}
            // As in `start::claim`: there may be room for what the plan was made for.
            NextClaim::Refused(_) if ctx.state.moves[index].request.take().is_some() => return Ok(Preparation::Again),
            NextClaim::Refused(reason) => {
                replace::choose_next(&mut ctx.state.moves[index], &next, &reason)?;
                return Ok(Preparation::Again);
            }
            NextClaim::Unknown => {
                let note = Some(format!("waiting to hear from {next}, its next destination"));
                return Ok(Preparation::Waiting { until: readiness::after(now(), Duration::from_secs(1)), note });
            }
        }
    }
    let (environment, operation) = (ctx.environment.clone(), ctx.id);
    if let Some(first) = must_be_ready_before(&ctx.input.order, &ctx.state.moves, index) {
        let note = Some(format!("applied when {} is ready there, because its pods may find no node otherwise", first.name()));
        return Ok(Preparation::Waiting { until: readiness::after(now(), environment.deadlines.ready), note });
    }
    let starts = ctx.state.moves[index].sent.is_none();
    if starts
        && ctx.state.moves[index].at_most_once()
        && let Some(not_yet) = once::make_way(ctx, index, fence).await?
    {
        return Ok(not_yet);
    }
    if starts
        && ctx.state.moves[index].is_stateful()
        && let Some(not_yet) = stateful::hand_over(ctx, index, fence).await?
    {
        return Ok(not_yet);
    }
    let moving = &mut ctx.state.moves[index];
    if starts {
        apply::send(&environment, &moving.new_copy(operation), fence).await?;
        moving.reach(MoveStage::Starting);
    }
    let sent = moving.sent.get_or_insert_with(|| Sent { fence, digest: moving.old.digest.clone(), at: now(), trouble: None });
    let (reason, lasting) = match readiness::assess(sent, environment.statuses.get(moving.new).as_deref(), now(), &environment.deadlines) {
        Readiness::Ready => return Ok(Preparation::Ready),
        Readiness::Waiting { until, note, .. } => {
            moving.reach(MoveStage::Starting);
            return Ok(Preparation::Waiting { until, note });
        }
        Readiness::Failed { reason, lasting, .. } => (reason, lasting),
        Readiness::Unschedulable(reason) => (reason, None),
    };
    let copy = moving.new_copy(operation);
    if moving.is_stateful() {
        // Its volumes are here, so no other destination can take it: everything goes back.
        let message = format!("{} did not stay ready on {}; its pods go back", moving.name(), moving.to);
        return Err(StepError::fail("destination_not_ready", message).reasons([reason]));
    }
    let mut tx = environment.transaction(operation, ctx.fence).await?;
    refused_destination::record(&mut tx, &copy, &reason).await?;
    if let Some(lasting) = lasting {
        refusal::record(&mut tx, &copy, &lasting).await?;
    }
    tx.commit().await?;
    replace::choose_next(&mut ctx.state.moves[index], &copy.member, &reason)?;
    Ok(Preparation::Again)
}

/// The moves as positions, in the order in which the plan wants their copies applied: a copy that becomes ready in this pass lets the
/// next one be applied in it. Moves without a rank come first, and those that stop before they start after the others.
fn application_order(order: &[Uuid], moves: &[MoveProgress]) -> Vec<usize> {
    let mut positions: Vec<usize> = (0..moves.len()).collect();
    positions.sort_by_key(|position| (moves[*position].rank(order), moves[*position].at_most_once(), moves[*position].is_stateful()));
    positions
}

/// A copy for the same member that the plan wants to be ready before this one is applied.
fn must_be_ready_before<'a>(order: &[Uuid], moves: &'a [MoveProgress], index: usize) -> Option<&'a MoveProgress> {
    let moving = &moves[index];
    let mine = moving.rank(order).filter(|_| moving.sent.is_none())?;
    moves.iter().find(|one| one.to == moving.to && one.stage != MoveStage::Ready && one.rank(order).is_some_and(|rank| rank < mine))
}

/// How many victims go to each member, for messages.
pub(super) fn summary(moves: &[MoveProgress]) -> String {
    if moves.is_empty() {
        return "no app".to_owned();
    }
    let mut by_member: BTreeMap<&MemberKey, usize> = BTreeMap::new();
    for moving in moves {
        *by_member.entry(&moving.to).or_default() += 1;
    }
    by_member.into_iter().map(|(member, count)| format!("{count} to {member}")).collect::<Vec<_>>().join(", ")
}
