//! Apps with volumes: their pods move one after the other, each with its volumes, the highest ordinal first.
//!
//! ```text
//! read pods and volumes ─ new copy without pods ─┬─ old copy with one pod less ─ its pod has stopped, its volumes are given up ─┐
//!                                                └─ ready ─ new copy with that pod and its volumes ◀────────────────────────────┘
//! ```
//! What was read is journaled before anything is written: it is what makes the volumes again, there and on the way back. Each change is
//! journaled as asked for before the next one is made. Invariant: a pod is started only when the other copy is known to have stopped it and
//! to have given up its volumes, also on the way back. Where that cannot be known, because a member does not answer, nothing is started, and
//! the operation says what it waits for. The exception: on the way there a pod is started first, and stopped when it is ready in the new
//! copy, if several nodes may write all its volumes and the app says that its pods may overlap ([`parts::may_overlap`]).

mod parts;

use std::sync::Arc;
use std::time::Duration;

use drover_api::bindings::{BindingStatus, Phase, SetName, Share, StatefulPod, VolumeQuestion};
use drover_api::scheduling::MemberKey;
use drover_store::Timestamp;
use drover_workflow::{Ctx, Outcome, StepError};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::super::{apply, now, readiness};
use super::{MoveProgress, Preparation, Relocate};
use crate::environment::{Environment, binding_key};
use crate::store::binding::Binding;
use crate::store::{force_fence, traffic};

/// Interval of checks when no status wakes the step.
const CHECK_EVERY: Duration = Duration::from_secs(2);

/// How far the pods of an app have moved.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Handover {
    /// The pods in the order in which they move, with their volumes as they were when the move began.
    pods: Vec<StatefulPod>,
    /// How many of them the old copy was asked to stop.
    stopped: usize,
    /// How many of them the new copy was asked to run; `None`: it has not been asked for anything.
    started: Option<usize>,
    /// What was asked for last.
    #[serde(default)]
    asked: Option<Asked>,
    /// On the way back.
    #[serde(default)]
    returning: bool,
    /// Fence of the last request to the old copy on the way back.
    #[serde(default)]
    last: Option<i64>,
    /// Each pod is started in the new copy before it is stopped in the old one.
    #[serde(default)]
    overlaps: bool,
}

impl Handover {
    /// The next request on the way there, for how many pods; `None`: all have moved. It is chosen by what the journal knows, so a pass that
    /// is repeated makes the same one.
    fn next(&self) -> Option<(Copy, usize)> {
        match self.started {
            None => Some((Copy::New, 0)),
            Some(started) if self.overlaps && started > self.stopped => Some((Copy::Old, started)),
            Some(started) if started == self.pods.len() => None,
            Some(started) if self.overlaps => Some((Copy::New, started + 1)),
            Some(started) if started < self.stopped => Some((Copy::New, self.stopped)),
            Some(_) => Some((Copy::Old, self.stopped + 1)),
        }
    }

    /// Whether the last request on the way there was one to the old copy.
    fn stops(&self) -> bool {
        let started = self.started.unwrap_or_default();
        if self.overlaps { started == self.stopped && self.stopped > 0 } else { started < self.stopped }
    }

    /// How many pods the old copy may have been asked to stop, and the new one to run, if the last request was made without being journaled.
    fn at_most(&self) -> (usize, usize) {
        let (stopped, all) = (self.stopped, self.pods.len());
        match self.started {
            None => (stopped, 0),
            Some(started) if self.overlaps => {
                let ahead = if started == stopped { (started + 1).min(all) } else { started };
                (ahead, ahead)
            }
            Some(started) if started == stopped => ((stopped + 1).min(all), stopped),
            Some(_) => (stopped, stopped),
        }
    }
}

/// A request whose effect is waited for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Asked {
    fence: i64,
    at: Timestamp,
}

/// Which copy a request is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copy {
    Old,
    New,
}

impl MoveProgress {
    /// Whether its pods move one after the other.
    pub(super) fn is_stateful(&self) -> bool {
        !self.old.request.demand.stateful.is_empty()
    }
}

/// Moves the pods, a step in each pass. `None`: all of them run in the new copy, which may be applied as a whole.
pub(super) async fn hand_over(ctx: &mut Ctx<Relocate>, index: usize, fence: i64) -> Result<Option<Preparation>, StepError> {
    let environment = ctx.environment.clone();
    let others_wait = ctx.state.moves.iter().any(|other| !other.is_stateful() && !other.at_most_once() && !other.is_ready());
    let moving = &mut ctx.state.moves[index];
    let name = moving.name();
    let Some(handover) = &mut moving.handover else {
        if others_wait {
            let note = Some(format!("the pods of {name} move when the other new copies are ready"));
            return Ok(Some(Preparation::Waiting { until: readiness::after(now(), environment.deadlines.ready), note }));
        }
        let pods = read(&environment, &moving.old).await?;
        let overlaps = parts::may_overlap(&pods);
        moving.handover = Some(Handover { pods, stopped: 0, started: None, asked: None, returning: false, last: None, overlaps });
        return Ok(Some(Preparation::Again));
    };
    let Some(asked) = handover.asked else {
        let Some((copy, count)) = handover.next() else { return Ok(None) };
        let share = match copy {
            Copy::Old => parts::old(&handover.pods, count),
            Copy::New => parts::new(&handover.pods, count),
        };
        let all = handover.pods.len();
        if copy == Copy::Old && count == all && (all > 1 || handover.overlaps) {
            // With the last pod the old copy answers no more.
            weigh(ctx, index, 100).await?;
        }
        ask(ctx, index, copy, share, fence).await?;
        let Some(handover) = &mut ctx.state.moves[index].handover else { return Ok(Some(Preparation::Again)) };
        match copy {
            Copy::Old => handover.stopped = count,
            Copy::New => handover.started = Some(count),
        }
        handover.asked = Some(Asked { fence, at: now() });
        return Ok(Some(Preparation::Again));
    };

    let (stopped, started, all) = (handover.stopped, handover.started.unwrap_or_default(), handover.pods.len());
    let (old, new) = (environment.statuses.get(moving.old.id), environment.statuses.get(moving.new));
    if handover.stops() {
        let pod = &handover.pods[stopped - 1];
        let status = old.filter(|status| status.fence >= asked.fence);
        let released = status.as_ref().is_some_and(|status| status.released.contains(&parts::key(pod)));
        if released || is_fenced(&environment, ctx.id, &moving.old.member).await? {
            handover.asked = None;
            return Ok(Some(Preparation::Again));
        }
        let unreachable = status.as_ref().is_some_and(|status| status.phase == Phase::Unreachable);
        let until = readiness::after(asked.at, environment.deadlines.gone);
        if now() >= until && !unreachable {
            let message = format!("pod {} of {name} did not stop on {} in time", parts::name(pod), moving.old.member);
            return Err(StepError::fail("copy_not_stopped", message).reasons(status.and_then(|status| status.reason.clone())));
        }
        let note = match unreachable {
            false => format!("{} of {all} pods moved; stopping {} on {}", started, parts::name(pod), moving.old.member),
            true => format!(
                "{} of {all} pods moved; {} does not answer, so nobody knows whether {} has stopped there, and it is started nowhere else; if you know that it has, say so by drover operation force-fence",
                started,
                moving.old.member,
                parts::name(pod)
            ),
        };
        let until = if unreachable { readiness::after(now(), CHECK_EVERY) } else { until };
        return Ok(Some(Preparation::Waiting { until, note: Some(note) }));
    }
    // The new copy was asked to run `started` pods.
    let mut sent = readiness::Sent { fence: asked.fence, digest: moving.old.digest.clone(), at: asked.at, trouble: None };
    match readiness::assess(&mut sent, new.as_deref(), now(), &environment.deadlines) {
        readiness::Readiness::Ready => {
            handover.asked = None;
            let share = u16::try_from(100 * started / all.max(1)).unwrap_or(100);
            if started > 0 {
                weigh(ctx, index, share).await?;
            }
            Ok(Some(Preparation::Again))
        }
        readiness::Readiness::Waiting { until, note, .. } => {
            let note = note.map(|note| format!("{started} of {all} pods started there: {note}"));
            Ok(Some(Preparation::Waiting { until, note }))
        }
        readiness::Readiness::Failed { reason, .. } | readiness::Readiness::Unschedulable(reason) => {
            let message = format!("{name} did not become ready on {}; its pods go back", moving.to);
            Err(StepError::fail("destination_not_ready", message).reasons([reason]))
        }
    }
}

/// Undo: brings all pods back, a step in each pass, the last one that moved first. `None`: all are where they were.
pub(super) async fn bring_back(ctx: &mut Ctx<Relocate>) -> Result<Option<Outcome>, StepError> {
    let environment = ctx.environment.clone();
    let fence = environment.fence(ctx.id, ctx.fence).await?;
    let (mut keys, mut notes, mut again) = (Vec::new(), Vec::new(), false);
    for index in 0..ctx.state.moves.len() {
        match bring_one_back(ctx, index, fence, &environment).await? {
            Back::Done => {}
            Back::Again => again = true,
            Back::Waiting(note) => {
                keys.extend([binding_key(ctx.state.moves[index].old.id), binding_key(ctx.state.moves[index].new)]);
                notes.push(note);
            }
        }
    }
    if !again && notes.is_empty() {
        return Ok(None);
    }
    if !notes.is_empty() {
        ctx.progress(notes.join("; "));
    }
    let until = if again { now() } else { readiness::after(now(), CHECK_EVERY) };
    Ok(Some(Outcome::park(keys).until(until)))
}

enum Back {
    Done,
    /// Something was asked for or decided, to be journaled before the next request.
    Again,
    Waiting(String),
}

async fn bring_one_back(ctx: &mut Ctx<Relocate>, index: usize, fence: i64, environment: &Environment) -> Result<Back, StepError> {
    let moving = &mut ctx.state.moves[index];
    let name = moving.name();
    let Some(handover) = &mut moving.handover else { return Ok(Back::Done) };
    if !handover.returning {
        // The last request may have been made without being journaled. So the new copy may run every pod that the old one was asked to stop,
        // and the old copy may have stopped one more, which the new one was never asked to run.
        if handover.started.is_some() {
            let (stopped, started) = handover.at_most();
            (handover.stopped, handover.started) = (stopped, Some(started));
        }
        (handover.returning, handover.asked) = (true, None);
        return Ok(Back::Again);
    }
    let (stopped, started) = (handover.stopped, handover.started.unwrap_or_default());
    match handover.asked {
        None if stopped == 0 => Ok(Back::Done),
        None => {
            // First the new copy gives the pod up, then the old one starts it.
            let (copy, share) = match started >= stopped {
                true => (Copy::New, parts::new(&handover.pods, stopped - 1)),
                false => (Copy::Old, parts::old(&handover.pods, stopped - 1)),
            };
            ask(ctx, index, copy, share, fence).await?;
            let Some(handover) = &mut ctx.state.moves[index].handover else { return Ok(Back::Again) };
            match copy {
                Copy::New => handover.started = Some(stopped - 1),
                Copy::Old => (handover.stopped, handover.last) = (stopped - 1, Some(fence)),
            }
            handover.asked = Some(Asked { fence, at: now() });
            Ok(Back::Again)
        }
        Some(asked) if started < stopped => {
            let pod = &handover.pods[stopped - 1];
            let status = environment.statuses.get(moving.new).filter(|status| status.fence >= asked.fence);
            let gone = |status: &BindingStatus| status.phase == Phase::Gone || status.released.contains(&parts::key(pod));
            if status.as_ref().is_some_and(|status| gone(status)) || is_fenced(environment, ctx.id, &moving.to).await? {
                handover.asked = None;
                return Ok(Back::Again);
            }
            Ok(Back::Waiting(format!("pod {} of {name} starts again when it is known to have stopped on {}", parts::name(pod), moving.to)))
        }
        Some(asked) => {
            // It need not become ready: it is desired as before.
            let ready = is_ready(environment, moving.old.id, asked.fence);
            if ready || now() >= readiness::after(asked.at, environment.deadlines.ready) {
                handover.asked = None;
                return Ok(Back::Again);
            }
            Ok(Back::Waiting(format!(
                "{} of {} pods of {name} run on {} again",
                handover.pods.len() - stopped,
                handover.pods.len(),
                moving.old.member
            )))
        }
    }
}

/// Whether an operator has vouched that nothing of this operation runs in a cluster any more.
pub(super) async fn is_fenced(environment: &Environment, operation: Uuid, member: &MemberKey) -> Result<bool, StepError> {
    Ok(force_fence::exists(&mut *environment.store.acquire().await?, operation, member).await?)
}

/// Whether a copy is ready by a request that is not older than `fence`.
fn is_ready(environment: &Environment, binding: Uuid, fence: i64) -> bool {
    environment.statuses.get(binding).is_some_and(|status| status.fence >= fence && status.phase == Phase::Ready)
}

/// Applies the old copies as a whole again, when all their pods are back. One of which that is not known keeps what it was asked for last,
/// because its volumes must be there before its StatefulSets are applied without them: those would get new, empty ones.
pub(super) async fn restore(ctx: &mut Ctx<Relocate>) -> Result<(), StepError> {
    let environment = ctx.environment.clone();
    if ctx.state.moves.iter().all(|moving| moving.handover.is_none()) {
        return Ok(());
    }
    let fence = environment.fence(ctx.id, ctx.fence).await?;
    for index in 0..ctx.state.moves.len() {
        let moving = &ctx.state.moves[index];
        let Some(Handover { last: Some(last), .. }) = moving.handover else { continue };
        if is_ready(environment.as_ref(), moving.old.id, last) {
            apply::send(&environment, &moving.old, fence).await?;
        }
    }
    let mut tx = environment.transaction(ctx.id, ctx.fence).await?;
    traffic::clear(&mut tx, ctx.id).await?;
    tx.commit().await?;
    environment.traffic.nudge();
    Ok(())
}

/// The pods of an app, with their volumes, as its member has them.
async fn read(environment: &Environment, old: &Binding) -> Result<Vec<StatefulPod>, StepError> {
    let sets = old.request.demand.stateful.iter();
    let sets = sets.map(|pods| SetName { namespace: pods.namespace.clone(), name: pods.set.clone() }).collect();
    let answer = environment.services.synchronizer.volumes(&VolumeQuestion { member: old.member.clone(), sets }).await?;
    let mut problems = answer.problems;
    for pods in &old.request.demand.stateful {
        let there = answer.pods.iter().filter(|pod| pod.namespace == pods.namespace && pod.set == pods.set).count();
        if problems.is_empty() && there != pods.replicas as usize {
            problems.push(format!(
                "StatefulSet {} has {there} pods, and its manifest says {}: deploy it with the number that it is to have",
                pods.set, pods.replicas
            ));
        }
    }
    if !problems.is_empty() {
        let message = format!("the volumes of {}/{} cannot be taken along", old.dig.composite_app, old.app);
        return Err(StepError::fail("volume_app", message).reasons(problems));
    }
    Ok(parts::order(answer.pods))
}

/// Asks a copy to run exactly this part of the app.
async fn ask(ctx: &Ctx<Relocate>, index: usize, copy: Copy, share: Arc<Share>, fence: i64) -> Result<(), StepError> {
    let (environment, moving) = (&ctx.environment, &ctx.state.moves[index]);
    let copy = match copy {
        Copy::Old => moving.old.clone(),
        Copy::New => moving.new_copy(ctx.id),
    };
    apply::send_share(environment, &copy, share, fence).await
}

/// Divides the traffic of the app's routes as its pods are divided. The old copy gets the rest.
async fn weigh(ctx: &Ctx<Relocate>, index: usize, share: u16) -> Result<(), StepError> {
    let moving = &ctx.state.moves[index];
    let mut tx = ctx.environment.transaction(ctx.id, ctx.fence).await?;
    traffic::set(&mut tx, ctx.id, moving.old.id, 100 - share).await?;
    traffic::set(&mut tx, ctx.id, moving.new, share).await?;
    tx.commit().await?;
    ctx.environment.traffic.nudge();
    Ok(())
}
