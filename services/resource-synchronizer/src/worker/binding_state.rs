//! What a worker knows of one binding, and which of its objects must be applied or deleted: desired state and inventory compared with what
//! is seen of the member.
//!
//! No I/O; only the time for which something has held is read from the clock.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_api::bindings::DesiredState;
use drover_members::serving::Expectation;
use drover_members::{MemberError, Object, ObjectId, serving};
use uuid::Uuid;

use super::ended::EndedJobs;
use super::expectations::Asked;
use super::view::{MemberView, Seen};
use crate::store::bindings::Row;
use crate::store::inventory::{Inventory, Item};

/// Why a binding or a member cannot be worked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Stable code.
    pub code: &'static str,
    /// The reason for people to read.
    pub reason: String,
    /// Another member may accept the objects: the reason is in what this one has.
    pub elsewhere: bool,
    /// What of the reason ends only if somebody changes the objects or the member's rules, where another member may accept the objects.
    pub lasting: Option<String>,
}

impl Failure {
    /// A failure that has nothing to do with the member.
    pub fn new(code: &'static str, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), elsewhere: false, lasting: None }
    }

    /// What speaks against objects in the member.
    pub fn against(code: &'static str, errors: &[MemberError]) -> Self {
        let reasons: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let lasting = MemberError::lasting(errors);
        let elsewhere = errors.iter().all(MemberError::is_of_this_member);
        let lasting = (elsewhere && !lasting.is_empty()).then(|| lasting.join("; "));
        Self { code, reason: reasons.join("; "), elsewhere, lasting }
    }
}

/// Address and digest of a desired object.
pub type Wanted = (Arc<ObjectId>, Arc<str>);

/// Everything that a worker knows of one binding.
#[derive(Clone, Debug)]
pub struct BindingState {
    /// The newest desired row.
    pub row: Row,
    /// The objects that were applied.
    pub inventory: Inventory,
    /// Address and digest of each desired object, once its bundle has been prepared for this member.
    pub wanted: Option<Box<[Wanted]>>,
    /// Those among them that Kubernetes deletes when they have ended.
    pub ended: EndedJobs,
    /// Why the desired state cannot be reached.
    pub failure: Option<Box<Failure>>,
    /// Why the last attempt failed, while the next one may still succeed.
    pub hindrance: Option<Box<Failure>>,
    /// Consecutive passes that left work to do, for the back-off.
    pub attempts: u32,
    /// Since when an object stays only because others are about to part with what would be deleted with it.
    pub waits_since: Option<Instant>,
    /// Since when it waits, before it goes, for others to keep the names of its Services.
    pub names_since: Option<Instant>,
    /// Whether it imports Services, so that it is looked at again when it is applied.
    pub imports: bool,
    /// How often changes by others were corrected, and when last: repeated corrections come at growing intervals.
    pub corrections: (u32, Option<Instant>),
    /// For how long all objects must have been ready before the binding is.
    pub serving_after: Duration,
    /// The requests that must be answered before the binding is ready.
    pub expectations: Vec<Expectation>,
    /// The last of them, with the answer.
    pub asked: Option<Asked>,
    /// Since when all objects are ready, while that time runs.
    pub ready_since: Option<Instant>,
    /// Whether hooks of the bundle have to run, or are running.
    pub hooks_due: bool,
    /// The hook that is running.
    pub hook: Option<Box<str>>,
    /// Whether everything that follows from the share of the row is done.
    pub share_settled: bool,
    /// The pods that are known to have given up their volumes here, as `namespace/name`.
    pub released: BTreeSet<String>,
}

impl BindingState {
    /// A binding as the tables have it, before its bundle is prepared.
    pub fn new(row: Row, inventory: Inventory) -> Self {
        Self {
            row,
            inventory,
            wanted: None,
            ended: EndedJobs::default(),
            failure: None,
            hindrance: None,
            attempts: 0,
            waits_since: None,
            names_since: None,
            imports: false,
            corrections: (0, None),
            serving_after: Duration::ZERO,
            expectations: Vec::new(),
            asked: None,
            ready_since: None,
            hooks_due: false,
            hook: None,
            share_settled: false,
            released: BTreeSet::new(),
        }
    }
    /// Whether pods or volumes are still to be given up or taken over.
    pub fn has_open_share(&self) -> bool {
        self.row.desired.share.is_some() && !self.share_settled
    }
    /// Counts a correction. After `calm` without one, counting starts again.
    pub fn corrected(&mut self, calm: Duration) {
        let (count, last) = self.corrections;
        let again = last.is_some_and(|at| at.elapsed() < calm);
        self.corrections = (if again { count + 1 } else { 1 }, Some(Instant::now()));
    }
    /// Sets the desired objects, prepared for this member.
    pub fn wants(&mut self, objects: &[Object]) {
        let known = |object: &Object| self.inventory.get_key_value(&object.id).map(|(id, item)| (Arc::clone(id), Arc::clone(&item.digest)));
        let wanted = objects.iter().map(|object| match known(object) {
            Some((id, digest)) if digest == object.digest => (id, digest),
            _ => (Arc::clone(&object.id), Arc::clone(&object.digest)),
        });
        let mut wanted: Box<[Wanted]> = wanted.collect();
        wanted.sort();
        self.wanted = Some(wanted);
        self.ended.wants(objects);
        let expectations: Vec<_> = objects.iter().filter_map(|object| serving::expectation(&object.value).ok().flatten()).collect();
        if self.expectations != expectations {
            (self.expectations, self.asked) = (expectations, None);
        }
        self.serving_after = objects.iter().filter_map(|object| serving::after(&object.value).ok()).max().unwrap_or_default();
    }
    /// Replaces address, digest and uid of a seen object by the equal values of the inventory, so that they are in memory once.
    pub fn share(&self, id: &mut Arc<ObjectId>, seen: &mut Seen) {
        let Some((known, item)) = self.inventory.get_key_value(id) else { return };
        *id = Arc::clone(known);
        let applied = item.applied.as_ref().map(|applied| &applied.uid);
        for (of_seen, known) in [(&mut seen.digest, Some(&item.digest)), (&mut seen.uid, applied)] {
            if let Some(known) = known.filter(|known| *known == of_seen) {
                *of_seen = Arc::clone(known);
            }
        }
    }
    /// Id of the binding.
    pub fn id(&self) -> Uuid {
        self.row.desired.id
    }
    /// Whether both are copies of the same app.
    pub fn is_copy_of(&self, other: &Self) -> bool {
        let (own, other) = (&self.row.desired, &other.row.desired);
        own.dig.id == other.dig.id && own.app == other.app
    }
    /// Whether its objects are to exist.
    pub fn present(&self) -> bool {
        self.row.desired.state == DesiredState::Present
    }
    /// The objects that it is to have; none if it is to be absent.
    pub fn keeps(&self) -> impl Iterator<Item = &ObjectId> {
        self.wanted.iter().flatten().filter(|_| self.present()).map(|(id, _)| &**id)
    }
    /// Desired objects that must be applied: missing, changed by others, with another digest, or not known to be ours.
    pub fn drifted(&self, view: &MemberView) -> Vec<ObjectId> {
        let differs = |id: &ObjectId, digest: &str| {
            let item = self.inventory.get(id).map(Box::as_ref);
            !matches(self.id(), id, digest, item, view) && !self.has_ended(id, digest, view)
        };
        self.wanted.iter().flatten().filter(|(id, digest)| differs(id, digest)).map(|(id, _)| ObjectId::clone(id)).collect()
    }
    /// Objects of this binding that are not (or no longer) desired, seen in the member or only in the inventory.
    pub fn superfluous(&self, view: &MemberView) -> Vec<ObjectId> {
        let wanted =
            |id: &ObjectId| self.present() && self.wanted.as_ref().is_none_or(|wanted| wanted.iter().any(|(wanted, _)| **wanted == *id));
        let is_hook = |id: &ObjectId| self.present() && self.ran_hook(id);
        // What others still contain is theirs, although its labels name this binding until they have taken it over.
        let others = |id: &ObjectId| !self.inventory.contains_key(id) && !view.sharers(id).is_empty();
        let seen = view.of_binding(self.id()).map(|(id, _)| id).filter(|id| !copied_by_controllers(id) && !others(id));
        let mut ids: Vec<ObjectId> =
            self.inventory.keys().map(Arc::as_ref).chain(seen).filter(|id| !wanted(id) && !is_hook(id)).cloned().collect();
        ids.sort();
        ids.dedup();
        ids
    }
    /// Version of the bounds that its autoscalers have in the member; none while they do not have those that were ordered last.
    pub fn bounds_in_place(&self, view: &MemberView) -> Option<i64> {
        let order = self.row.bounds.as_ref().filter(|_| self.present())?;
        let scales = |id: &ObjectId| matches!(id.kind.as_str(), "ScalingPolicy" | "HorizontalPodAutoscaler");
        let mut scalers = self.wanted.as_ref()?.iter().filter(|(id, _)| scales(id));
        scalers.all(|(id, digest)| in_place(self.id(), id, digest, view).is_some()).then_some(order.version)
    }
    /// Whether all desired objects are ready, and have been for as long as the app asks.
    pub fn is_ready(&self, view: &MemberView) -> bool {
        !self.warms_up() && self.objects_are_ready(view)
    }
    /// Whether all desired objects are ready.
    pub fn objects_are_ready(&self, view: &MemberView) -> bool {
        self.failure.is_none()
            && self.wanted.as_ref().is_some_and(|wanted| {
                wanted.iter().all(|(id, digest)| match in_place(self.id(), id, digest, view) {
                    Some(seen) => seen.readiness.is_ready(),
                    None => self.has_ended(id, digest, view) && self.failure_of_ended(id).is_none(),
                })
            })
    }
}

/// Endpoints have the labels of their Service without being owned by it.
fn copied_by_controllers(id: &ObjectId) -> bool {
    id.api_version == "v1" && id.kind == "Endpoints"
}

/// The seen object, if it is as desired.
pub(super) fn in_place<'a>(binding: Uuid, id: &ObjectId, digest: &str, view: &'a MemberView) -> Option<&'a Seen> {
    let seen = view.object(id)?;
    Some(seen).filter(|seen| (seen.binding == binding || view.is_shared(id, seen, binding)) && *seen.digest == *digest && !seen.deleting)
}

fn matches(binding: Uuid, id: &ObjectId, digest: &str, item: Option<&Item>, view: &MemberView) -> bool {
    let seen = view.object(id);
    // An object that is being deleted is applied again once it is gone.
    if seen.is_some_and(|seen| seen.deleting && seen.binding == binding) {
        return true;
    }
    let (Some(seen), Some(item)) = (in_place(binding, id, digest, view), item) else { return false };
    // The binding that the labels name keeps it as it is to be.
    if seen.binding != binding {
        return *item.digest == *digest;
    }
    let Some(applied) = item.applied.as_ref().filter(|applied| *item.digest == *digest && applied.uid == seen.uid) else { return false };
    match applied.generation {
        Some(generation) => seen.generation == Some(generation),
        // Kinds without a generation: any change of the object may concern desired fields; applying again shows whether it does.
        None => status_moves_version(id) || seen.version == applied.resource_version,
    }
}

/// Whether the status of this kind changes often, so that its resource version says nothing about drift.
fn status_moves_version(id: &ObjectId) -> bool {
    id.api_version == "v1"
        && matches!(id.kind.as_str(), "Pod" | "PersistentVolumeClaim" | "PersistentVolume" | "Namespace" | "ReplicationController")
}

#[cfg(test)]
pub(super) mod tests {
    use drover_api::bindings::{DesiredBinding, Phase};
    use drover_members::{Applied, Readiness};
    use drover_scheduling::MemberKey;
    use serde_json::json;

    use super::super::judge::status;
    use super::super::view::Event;
    use super::super::view::tests::{id, seen};
    use super::*;

    pub(crate) fn thing(name: &str) -> ObjectId {
        ObjectId::clone(&id("Thing", name))
    }
    pub(crate) fn bound() -> BindingState {
        let desired = DesiredBinding {
            id: Uuid::from_u128(1),
            dig: Arc::default(),
            app: "a".into(),
            member: MemberKey::new("p", "c"),
            namespace: "n".into(),
            digest: "bundle".into(),
            state: DesiredState::Present,
            fence: 1,
            grants: None,
            act_as: None,
            share: None,
            rollback: false,
            delete_volumes: false,
            names: false,
        };
        let row = Row { desired, gone: false, kept: Vec::new(), hooks: None, served: None, test: None, stand_in: false, bounds: None };
        let mut bound = BindingState::new(row, Inventory::new());
        bound.wanted = Some([(id("Thing", "x"), "d".into())].into());
        let applied = Applied { uid: "u".into(), generation: Some(1), resource_version: "1".into(), scaled: None };
        bound.inventory.insert(id("Thing", "x"), Box::new(Item { digest: "d".into(), applied: Some(applied) }));
        bound
    }
    pub(crate) fn view(change: impl FnOnce(&mut Seen)) -> MemberView {
        let mut view = MemberView::default();
        let mut object = seen(Uuid::from_u128(1), "1");
        change(&mut object);
        view.put(id("Thing", "x"), object);
        view
    }

    #[test]
    fn share_replaces_equal_values_by_those_of_the_inventory() {
        let bound = bound();
        let (known, item) = bound.inventory.iter().next().unwrap();
        let (mut address, mut object) = (id("Thing", "x"), seen(Uuid::from_u128(1), "1"));
        bound.share(&mut address, &mut object);
        assert!(Arc::ptr_eq(&address, known) && Arc::ptr_eq(&object.digest, &item.digest));
        assert!(Arc::ptr_eq(&object.uid, &item.applied.as_ref().unwrap().uid));
        // Values that others changed stay.
        (object.digest, object.uid) = ("other".into(), "v".into());
        bound.share(&mut address, &mut object);
        assert_eq!((&*object.digest, &*object.uid), ("other", "v"));
    }

    #[test]
    fn drifted_finds_missing_changed_and_unconfirmed_objects() {
        assert!(bound().drifted(&view(|_| {})).is_empty());
        // A change of the status changes the version but not the generation.
        assert!(bound().drifted(&view(|seen| seen.version = "2".into())).is_empty());
        for change in [
            |seen: &mut Seen| seen.generation = Some(2),
            |seen: &mut Seen| seen.digest = "other".into(),
            |seen: &mut Seen| seen.uid = "v".into(),
        ] {
            assert_eq!(bound().drifted(&view(change)), [thing("x")]);
        }
        assert_eq!(bound().drifted(&MemberView::default()), [thing("x")]);
        // Without a generation every change counts.
        let mut plain = bound();
        plain.inventory.values_mut().for_each(|item| item.applied.as_mut().unwrap().generation = None);
        assert!(plain.drifted(&view(|seen| seen.generation = None)).is_empty());
        assert_eq!(plain.drifted(&view(|seen| (seen.generation, seen.version) = (None, "2".into()))), [thing("x")]);
        // An object whose apply was never answered is applied again.
        let mut intended = bound();
        intended.inventory.values_mut().for_each(|item| item.applied = None);
        assert_eq!(intended.drifted(&view(|_| {})), [thing("x")]);
    }

    #[test]
    fn job_that_goes_when_it_has_ended_is_ready_unless_it_failed() {
        let id = Arc::new(ObjectId { api_version: "batch/v1".into(), kind: "Job".into(), namespace: "n".into(), name: "x".into() });
        let job = |spec| Object { id: Arc::clone(&id), digest: "d".into(), value: json!({"spec": spec}) };
        let mut bound = bound();
        let item = bound.inventory.values().next().cloned().unwrap();
        bound.inventory = [(Arc::clone(&id), item)].into();
        let (mut view, gone) = (MemberView::default(), || Event::Vanished(Arc::clone(&id), "u".into()));
        bound.wants(&[job(json!({}))]);
        assert_eq!(bound.drifted(&view), [ObjectId::clone(&id)], "a Job that nobody was to delete");
        bound.wants(&[job(json!({"ttlSecondsAfterFinished": 0}))]);
        assert!(bound.drifted(&view).is_empty() && bound.is_ready(&view));
        let there = status(&bound, &view, None);
        assert_eq!((there.phase, there.objects[0].applied), (Phase::Ready, true));
        // It failed before it went.
        view.put(Arc::clone(&id), seen(Uuid::from_u128(1), "1"));
        let mut failed = seen(Uuid::from_u128(1), "2");
        failed.readiness = Readiness::Failed("failed".into());
        view.put(Arc::clone(&id), failed);
        bound.ended.see(&gone(), &view);
        view.take(gone());
        assert!(bound.drifted(&view).is_empty() && !bound.is_ready(&view));
        let failed = status(&bound, &view, None);
        assert_eq!((failed.phase, failed.reason.as_deref()), (Phase::Failed, Some("Job/n/x failed")));
        // Another version of it is to run.
        bound.wants(&[Object { digest: "e".into(), ..job(json!({"ttlSecondsAfterFinished": 0})) }]);
        assert_eq!(bound.drifted(&view), [ObjectId::clone(&id)]);
    }

    #[test]
    fn superfluous_finds_undesired_objects_but_no_dependants() {
        let mut view = view(|_| {});
        view.put(id("Thing", "zombie"), seen(Uuid::from_u128(1), "5"));
        let mut dependent = seen(Uuid::from_u128(1), "6");
        dependent.dependent = true;
        view.put(id("Thing", "child"), dependent);
        assert_eq!(bound().superfluous(&view), [thing("zombie")]);
        let mut absent = bound();
        absent.row.desired.state = DesiredState::Absent;
        assert_eq!(absent.superfluous(&view), [thing("x"), thing("zombie")]);
    }
}
