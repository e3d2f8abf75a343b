//! Apps that must not run twice: the old copy is stopped before the new one starts (break before make). In between nothing of the app
//! runs; the plan says so.
//!
//! Invariant: a copy is started only when every other one is known to be gone from its member, also on the way back. Where that
//! cannot be known, because a member does not answer, the app stays stopped and the operation says what it waits for.

use std::time::Duration;

use drover_api::bindings::{DesiredState, Phase};
use drover_store::Timestamp;
use drover_workflow::{Ctx, Outcome, StepError, StepResult};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::super::readiness::{self, Readiness, Sent};
use super::super::{apply, now, remove};
use super::{MoveProgress, MoveStage, Preparation, Relocate, stateful};
use crate::environment::binding_key;
use crate::store::binding::{self, Role};

/// Interval of checks while a copy may still run.
const CHECK_EVERY: Duration = Duration::from_secs(2);

/// The time in which nothing of an app runs. It is journaled before the old copy is told to stop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Gap {
    since: Timestamp,
    /// Fence of the request to stop the old copy.
    #[serde(default)]
    asked: Option<i64>,
    /// Whether the old copy is gone.
    #[serde(default)]
    stopped: bool,
    /// New copies at destinations that were given up.
    #[serde(default)]
    pub(super) given_up: Vec<Uuid>,
    /// What was sent to start the old copy again.
    #[serde(default)]
    back: Option<Sent>,
}

impl MoveProgress {
    /// Whether the old copy must be gone before the new one starts.
    pub(super) fn at_most_once(&self) -> bool {
        self.old.request.demand.at_most_once
    }

    /// The copies whose status the move waits for.
    pub(super) fn awaited(&self) -> Vec<String> {
        let gap = self.gap.iter().flat_map(|gap| gap.given_up.iter().copied().chain([self.old.id]));
        let old = self.handover.iter().map(|_| self.old.id);
        gap.chain(old).chain([self.new]).map(binding_key).collect()
    }
}

/// Stops the old copy, and waits until it and all copies that were given up are gone. `None`: the new copy may start.
pub(super) async fn make_way(ctx: &mut Ctx<Relocate>, index: usize, fence: i64) -> Result<Option<Preparation>, StepError> {
    let environment = ctx.environment.clone();
    // Not for those with a place in the order of application: they may have to come after it.
    let order = &ctx.input.order;
    let waits_for = |other: &MoveProgress| !other.at_most_once() && other.stage != MoveStage::Ready && other.rank(order).is_none();
    let others_wait = ctx.state.moves.iter().any(waits_for);
    let moving = &mut ctx.state.moves[index];
    let name = moving.name();
    let Some(gap) = &mut moving.gap else {
        // The gap is to be short: the others need none.
        if others_wait {
            let note = Some(format!("{name} is stopped when the other new copies are ready"));
            return Ok(Some(Preparation::Waiting { until: readiness::after(now(), environment.deadlines.ready), note }));
        }
        moving.gap = Some(Gap { since: now(), asked: None, stopped: false, given_up: Vec::new(), back: None });
        return Ok(Some(Preparation::Again));
    };
    let until = readiness::after(gap.since, environment.deadlines.gone);
    if !gap.stopped {
        let asked = match gap.asked {
            Some(asked) => asked,
            None => {
                environment.services.synchronizer.put_binding(moving.old.desired(DesiredState::Absent, fence)).await?;
                *gap.asked.insert(fence)
            }
        };
        let status = environment.statuses.get(moving.old.id);
        gap.stopped = status.is_some_and(|status| status.phase == Phase::Gone && status.fence >= asked)
            || stateful::is_fenced(&environment, ctx.id, &moving.old.member).await?;
        if !gap.stopped {
            if now() >= until {
                let message = format!("{name} did not stop on {} in time, and it must not run twice", moving.old.member);
                return Err(StepError::fail("copy_not_stopped", message));
            }
            let note = Some(format!("stopping it on {} first, because it must not run twice", moving.old.member));
            return Ok(Some(Preparation::Waiting { until, note }));
        }
    }
    let rows = binding::find(&mut *environment.store.acquire().await?, &gap.given_up).await?;
    match rows.iter().find(|row| row.role != Role::Gone) {
        None => Ok(None),
        Some(left) => {
            let note = Some(format!("waiting until it is gone from {}, because it must not run twice", left.member));
            Ok(Some(Preparation::Waiting { until: readiness::after(now(), CHECK_EVERY), note }))
        }
    }
}

/// Undo: removes the new copies; where an old one was stopped, waits until the new ones are gone and starts it again.
pub(super) async fn take_away(ctx: &mut Ctx<Relocate>) -> StepResult {
    if let Some(waiting) = stateful::bring_back(ctx).await? {
        return Ok(waiting);
    }
    stateful::restore(ctx).await?;
    ctx.progress("removing the new copies");
    if let Some(waiting) = remove::remove_targets(ctx).await? {
        return Ok(waiting);
    }
    if ctx.state.moves.iter().all(|moving| moving.gap.is_none()) {
        return Ok(Outcome::next());
    }
    let environment = ctx.environment.clone();
    let copies = binding::of_operation(&mut *environment.store.acquire().await?, ctx.id).await?;
    let fence = environment.fence(ctx.id, ctx.fence).await?;
    let (mut keys, mut notes, mut until) = (Vec::new(), Vec::new(), readiness::after(now(), CHECK_EVERY));
    for moving in &mut ctx.state.moves {
        let name = moving.name();
        let Some(gap) = &mut moving.gap else { continue };
        let same_app = |copy: &&binding::Binding| copy.dig.id == moving.old.dig.id && copy.app == moving.old.app;
        if let Some(left) = copies.iter().filter(same_app).find(|copy| copy.role != Role::Gone) {
            notes.push(format!("{name} starts again when it is known to be gone from {}, because it must not run twice", left.member));
            keys.push(binding_key(left.id));
            continue;
        }
        let sent = match &mut gap.back {
            Some(sent) => sent,
            None => {
                apply::send(&environment, &moving.old, fence).await?;
                gap.back.insert(Sent { fence, digest: moving.old.digest.clone(), at: now(), trouble: None })
            }
        };
        // One that does not become ready again is as it is: it is desired as before.
        let status = environment.statuses.get(moving.old.id);
        if let Readiness::Waiting { until: deadline, .. } = readiness::assess(sent, status.as_deref(), now(), &environment.deadlines) {
            notes.push(format!("starting {name} again on {}", moving.old.member));
            keys.push(binding_key(moving.old.id));
            until = Timestamp(until.0.min(deadline.0));
        }
    }
    if keys.is_empty() {
        return Ok(Outcome::next());
    }
    ctx.progress(notes.join("; "));
    Ok(Outcome::park(keys).until(until))
}
