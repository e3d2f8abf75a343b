//! The status of a binding, for the feed: its phase, with the reason while it is not ready, and what is seen of its objects.
//!
//! No I/O; only the time for which something has held is read from the clock.
//!
//! Invariant: a binding is Ready only if every desired object exists with the desired digest and is ready.

use drover_api::bindings::{BindingStatus, ObjectStatus, Phase, ScaledWorkload, TestRun};
use drover_members::{ObjectId, Readiness, labels};

use super::binding_state::{BindingState, Failure, Wanted, in_place};
use super::view::{MemberView, Seen};
use crate::store::inventory::{Inventory, Item};
use crate::store::tested;

/// The status of a binding for the feed. `lost`: why the member cannot be reached.
pub fn status(bound: &BindingState, view: &MemberView, lost: Option<&Failure>) -> BindingStatus {
    let desired = &bound.row.desired;
    let objects: Vec<ObjectStatus> = match bound.present() {
        true => {
            let wanted = bound.wanted.as_deref().unwrap_or_default().iter();
            let status = |(id, digest): &Wanted| match bound.has_ended(id, digest, view) {
                true => bound.status_of_ended(id),
                false => status_of_seen(id, in_place(bound.id(), id, digest, view)),
            };
            wanted.map(status).collect()
        }
        false => bound.superfluous(view).iter().map(|id| status_of_seen(id, view.object(id))).collect(),
    };
    let unschedulable = bound.present().then(|| view.unschedulable(bound.id())).flatten().map(str::to_owned);
    let (phase, why) = match (bound.row.gone, lost) {
        (true, _) => (Phase::Gone, None),
        (false, Some(lost)) => (Phase::Unreachable, Some(lost.clone())),
        (false, None) if bound.present() => present_phase(bound, view, &objects, unschedulable.as_deref()),
        (false, None) => (
            Phase::Deleting,
            hindered(&bound.failure).or_else(|| hindered(&bound.hindrance)).or_else(|| remaining(&objects, view.pods(bound.id()))),
        ),
    };
    BindingStatus {
        id: desired.id,
        member: desired.member.clone(),
        digest: desired.digest.clone(),
        fence: desired.fence,
        phase,
        code: why.as_ref().map(|why| why.code.to_owned()),
        elsewhere: phase == Phase::Failed && why.as_ref().is_some_and(|why| why.elsewhere),
        lasting: why.as_ref().filter(|_| phase == Phase::Failed).and_then(|why| why.lasting.clone()),
        reason: why.map(|why| why.reason),
        unschedulable,
        objects,
        scaled: if bound.present() { scaled(&bound.inventory) } else { Vec::new() },
        kept: bound.row.kept.clone(),
        released: bound.released.iter().cloned().collect(),
        serving_after: u32::try_from(bound.serving_after.as_secs()).unwrap_or(u32::MAX),
        tested: tested::run_of(&bound.row).map(TestRun::without_logs),
        bounds: bound.bounds_in_place(view),
    }
}

fn scaled(inventory: &Inventory) -> Vec<ScaledWorkload> {
    let scaled = |id: &ObjectId, item: &Item| {
        let scaled = item.applied.as_ref()?.scaled.as_ref()?;
        Some(ScaledWorkload { kind: id.kind.clone(), name: id.name.clone(), replicas: scaled.replicas, by: scaled.by.clone() })
    };
    let mut found: Vec<ScaledWorkload> = inventory.iter().filter_map(|(id, item)| scaled(id, item)).collect();
    found.sort_by(|a, b| (&a.kind, &a.name).cmp(&(&b.kind, &b.name)));
    found
}

fn present_phase(
    bound: &BindingState,
    view: &MemberView,
    objects: &[ObjectStatus],
    unschedulable: Option<&str>,
) -> (Phase, Option<Failure>) {
    if let Some(failure) = hindered(&bound.failure).filter(|_| !bound.tests_run()) {
        return (Phase::Failed, Some(failure));
    }
    let hook = || bound.hook.as_ref().map(|hook| Failure::new("not_ready", format!("hook {hook} runs")));
    let Some(wanted) = &bound.wanted else { return (Phase::Pending, hindered(&bound.hindrance).or_else(hook)) };
    if objects.iter().any(|object| !object.applied) {
        return (Phase::Applying, hindered(&bound.hindrance));
    }
    let failed = wanted.iter().find_map(|(id, digest)| {
        let reason = match view.object(id).map(|seen| &seen.readiness) {
            Some(Readiness::Failed(reason)) => reason,
            None if bound.has_ended(id, digest, view) => bound.failure_of_ended(id)?,
            _ => return None,
        };
        Some(Failure::new("not_ready", format!("{id} {reason}")))
    });
    if let Some(failed) = failed {
        return (Phase::Failed, Some(failed));
    }
    let Some(waiting) = objects.iter().find(|object| !object.ready) else {
        let warms_up = || {
            let reason = match bound.ready_since.is_some_and(|since| since.elapsed() >= bound.serving_after) {
                true => format!("all objects are ready; does not serve yet ({}: {})", labels::SERVING_HTTP, bound.silence()),
                false => format!(
                    "all objects are ready; it serves when they have been for {} s ({})",
                    bound.serving_after.as_secs(),
                    labels::SERVING_AFTER
                ),
            };
            bound.warms_up().then_some(Failure::new("not_ready", reason))
        };
        let hands_over = || {
            let reason = "its pods and volumes are being given up or taken over".to_owned();
            bound.has_open_share().then_some(Failure::new("not_ready", reason))
        };
        return match hook().filter(|_| bound.hooks_due).or_else(warms_up).or_else(hands_over) {
            None if !bound.hooks_due => (Phase::Ready, None),
            why => (Phase::Applied, why),
        };
    };
    let (code, reason) = match (unschedulable, view.trouble(bound.id())) {
        (Some(message), _) => ("unschedulable", message.to_owned()),
        (None, Some(trouble)) => ("not_ready", trouble.to_owned()),
        (None, None) => ("not_ready", format!("{}/{} {}", waiting.kind, waiting.name, waiting.reason.as_deref().unwrap_or("is not ready"))),
    };
    (Phase::Applied, Some(Failure::new(code, reason)))
}

fn hindered(by: &Option<Box<Failure>>) -> Option<Failure> {
    by.as_deref().cloned()
}

fn remaining(objects: &[ObjectStatus], pods: usize) -> Option<Failure> {
    Some(Failure::new("deleting", format!("{} objects and {pods} pods are still there", objects.len())))
}

fn status_of_seen(id: &ObjectId, seen: Option<&Seen>) -> ObjectStatus {
    let readiness = seen.map(|seen| &seen.readiness);
    object_status(id, seen.is_some(), readiness.is_some_and(Readiness::is_ready), readiness.and_then(Readiness::reason))
}

/// The status of an object, with why it is not ready.
pub(super) fn object_status(id: &ObjectId, applied: bool, ready: bool, reason: Option<&str>) -> ObjectStatus {
    ObjectStatus {
        group: id.group().to_owned(),
        version: id.version().to_owned(),
        kind: id.kind.clone(),
        namespace: id.namespace.clone(),
        name: id.name.clone(),
        applied,
        ready,
        reason: reason.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use drover_api::bindings::DesiredState;

    use super::super::binding_state::tests::{bound, view};
    use super::*;

    #[test]
    fn status_phase_follows_from_objects_member_and_desired_state() {
        let phase = |bound: &BindingState, view: &MemberView| status(bound, view, None).phase;
        assert_eq!(phase(&bound(), &view(|_| {})), Phase::Ready);
        assert_eq!(phase(&bound(), &MemberView::default()), Phase::Applying);
        assert_eq!(phase(&bound(), &view(|seen| seen.digest = "old".into())), Phase::Applying);
        let waiting = status(&bound(), &view(|seen| seen.readiness = Readiness::NotReady("0 of 1".into())), None);
        assert_eq!((waiting.phase, waiting.reason.as_deref()), (Phase::Applied, Some("Thing/x 0 of 1")));
        assert_eq!(phase(&bound(), &view(|seen| seen.readiness = Readiness::Failed("no".into()))), Phase::Failed);
        let lost = Failure::new("unreachable", "away");
        assert_eq!(status(&bound(), &view(|_| {}), Some(&lost)).phase, Phase::Unreachable);
        let mut absent = bound();
        absent.row.desired.state = DesiredState::Absent;
        assert_eq!(phase(&absent, &view(|_| {})), Phase::Deleting);
        absent.row.gone = true;
        assert_eq!(status(&absent, &view(|_| {}), Some(&lost)).phase, Phase::Gone);
        let mut new = bound();
        new.wanted = None;
        assert_eq!(phase(&new, &MemberView::default()), Phase::Pending);
    }
}
