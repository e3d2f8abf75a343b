//! New copies: applied, waited for until they are ready, and removed on undo.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_api::bindings::Phase;
use drover_api::scheduling::MemberKey;
use drover_store::Timestamp;
use drover_workflow::{Ctx, Outcome, StepError, StepResult};
use sqlx::PgConnection;

use super::super::judge::{self, Sent, Verdict};
use super::super::{bring, now, remove};
use super::replace::{self, NextClaim};
use super::{Moving, Relocate, Stage};
use crate::environment::binding_key;
use crate::store::binding::{self, Binding, Role};

pub(super) async fn bind(ctx: &mut Ctx<Relocate>, tx: &mut PgConnection) -> StepResult {
    for moving in &ctx.state.moves {
        binding::put(&mut *tx, &new_copy(moving, ctx.id)).await?;
    }
    Ok(Outcome::next())
}

pub(super) fn new_copy(moving: &Moving, operation: uuid::Uuid) -> Binding {
    Binding { id: moving.new, member: moving.to.clone(), role: Role::Target, operation, ..moving.old.clone() }
}

/// What one pass of `prepare` found of a move.
enum Preparation {
    Ready,
    Waiting {
        until: Timestamp,
        note: Option<String>,
    },
    /// Another destination was chosen; the choice must be journaled before it has an effect.
    Replaced,
}

pub(super) async fn prepare(ctx: &mut Ctx<Relocate>) -> StepResult {
    let fence = ctx.world.fence(ctx.id, ctx.fence).await?;
    let (mut keys, mut until, mut notes, mut replaced) = (Vec::new(), None::<Timestamp>, Vec::new(), false);
    for index in 0..ctx.state.moves.len() {
        let preparation = prepare_move(ctx, index, fence).await?;
        let moving = &mut ctx.state.moves[index];
        match preparation {
            Preparation::Ready => moving.reach(Stage::Ready),
            Preparation::Waiting { until: look, note } => {
                keys.push(binding_key(moving.new));
                until = Some(until.map_or(look, |until| Timestamp(until.0.min(look.0))));
                notes.extend(note.map(|note| format!("{} on {}: {note}", moving.name(), moving.to)));
            }
            Preparation::Replaced => replaced = true,
        }
    }
    let ready = ctx.state.moves.iter().filter(|moving| moving.stage == Stage::Ready).count();
    notes.insert(0, format!("{ready} of {} new copies ready", ctx.state.moves.len()));
    ctx.progress(notes.join("; "));
    if replaced {
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
            NextClaim::Refused(reason) => {
                replace::choose_next(&mut ctx.state.moves[index], &next, &reason)?;
                return Ok(Preparation::Replaced);
            }
            NextClaim::Unknown => {
                let note = Some(format!("waiting to hear from {next}, its next destination"));
                return Ok(Preparation::Waiting { until: judge::after(now(), Duration::from_secs(1)), note });
            }
        }
    }
    let (world, operation) = (ctx.world.clone(), ctx.id);
    let moving = &mut ctx.state.moves[index];
    if moving.sent.is_none() {
        bring::send(&world, &new_copy(moving, operation), fence).await?;
        moving.reach(Stage::Starting);
    }
    let sent = moving.sent.get_or_insert_with(|| Sent { fence, digest: moving.old.digest.clone(), at: now(), trouble: None });
    let reason = match judge::judge(sent, world.statuses.get(moving.new).as_deref(), now(), &world.deadlines) {
        Verdict::Ready => return Ok(Preparation::Ready),
        Verdict::Waiting { until, note, .. } => {
            moving.reach(Stage::Starting);
            return Ok(Preparation::Waiting { until, note });
        }
        Verdict::Failed { reason, .. } | Verdict::Unschedulable(reason) => reason,
    };
    let failed = moving.to.clone();
    replace::choose_next(moving, &failed, &reason)?;
    Ok(Preparation::Replaced)
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
