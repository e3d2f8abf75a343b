//! Desired, inventory and world side by side: what is to be done, and what is to be told.
//!
//! Pure. Invariant: a binding is Ready only when every desired object is there with the desired digest and ready.

use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_api::bindings::{BindingStatus, DesiredState, ObjectStatus, Phase};
use drover_members::{Object, ObjectId, Readiness};
use uuid::Uuid;

use super::world::{Seen, World};
use crate::store::bindings::Row;
use crate::store::inventory::{Inventory, Item};

/// A reason with its stable code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Code.
    pub code: &'static str,
    /// For people.
    pub reason: String,
}

/// Address and digest of a desired object.
pub type Wanted = (Arc<ObjectId>, Arc<str>);

/// One binding as a worker knows it.
#[derive(Clone, Debug)]
pub struct Bound {
    /// The newest row.
    pub row: Row,
    /// What was applied.
    pub inventory: Inventory,
    /// Address and digest of each desired object, once its bundle has been prepared for this member.
    pub wanted: Option<Box<[Wanted]>>,
    /// What stands in the way.
    pub failure: Option<Box<Failure>>,
    /// What the member did not answer for at the last attempt, while that may still pass.
    pub hindrance: Option<Box<Failure>>,
    /// Passes in a row that did not settle it, for the back-off.
    pub attempts: u32,
    /// Corrections of what somebody changed, and when the last one was: whoever fights is met ever more slowly.
    pub corrections: (u32, Option<Instant>),
}

impl Bound {
    /// A binding of which only the tables tell.
    pub fn new(row: Row, inventory: Inventory) -> Self {
        Self { row, inventory, wanted: None, failure: None, hindrance: None, attempts: 0, corrections: (0, None) }
    }
    /// Counts a correction; quiet for as long as `calm`, earlier ones are forgiven.
    pub fn corrected(&mut self, calm: Duration) {
        let (count, last) = self.corrections;
        let again = last.is_some_and(|at| at.elapsed() < calm);
        self.corrections = (if again { count + 1 } else { 1 }, Some(Instant::now()));
    }
    /// These objects are desired, prepared for this member.
    pub fn wants(&mut self, objects: &[Object]) {
        let known = |object: &Object| self.inventory.get_key_value(&object.id).map(|(id, item)| (Arc::clone(id), Arc::clone(&item.digest)));
        let wanted = objects.iter().map(|object| match known(object) {
            Some((id, digest)) if digest == object.digest => (id, digest),
            _ => (Arc::clone(&object.id), Arc::clone(&object.digest)),
        });
        let mut wanted: Box<[Wanted]> = wanted.collect();
        wanted.sort();
        self.wanted = Some(wanted);
    }
    /// Makes what is seen of an object share what the inventory has of it.
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
    /// Its id.
    pub fn id(&self) -> Uuid {
        self.row.desired.id
    }
    /// Whether its objects shall exist.
    pub fn present(&self) -> bool {
        self.row.desired.state == DesiredState::Present
    }
    /// Desired objects that must be applied: missing, changed by somebody, of another digest, or not known to be ours.
    pub fn drifted(&self, world: &World) -> Vec<ObjectId> {
        let differs = |id: &ObjectId, digest: &str| {
            let item = self.inventory.get(id).map(Box::as_ref);
            !matches(self.id(), id, digest, item, world.object(id))
        };
        self.wanted.iter().flatten().filter(|(id, digest)| differs(id, digest)).map(|(id, _)| ObjectId::clone(id)).collect()
    }
    /// Objects of this binding that are not desired (any more), seen or only in the inventory.
    pub fn superfluous(&self, world: &World) -> Vec<ObjectId> {
        let wanted =
            |id: &ObjectId| self.present() && self.wanted.as_ref().is_none_or(|wanted| wanted.iter().any(|(wanted, _)| **wanted == *id));
        let seen = world.of_binding(self.id()).map(|(id, _)| id).filter(|id| !copied_by_controllers(id));
        let mut ids: Vec<ObjectId> = self.inventory.keys().map(Arc::as_ref).chain(seen).filter(|id| !wanted(id)).cloned().collect();
        ids.sort();
        ids.dedup();
        ids
    }
    /// Whether all desired objects are ready.
    pub fn is_ready(&self, world: &World) -> bool {
        self.failure.is_none()
            && self.wanted.as_ref().is_some_and(|wanted| {
                wanted
                    .iter()
                    .all(|(id, digest)| in_place(self.id(), digest, world.object(id)).is_some_and(|seen| seen.readiness.is_ready()))
            })
    }
}

/// Endpoints carry the labels of their Service without being owned by it.
fn copied_by_controllers(id: &ObjectId) -> bool {
    id.api_version == "v1" && id.kind == "Endpoints"
}

/// The object, if it is there as desired.
fn in_place<'a>(binding: Uuid, digest: &str, seen: Option<&'a Seen>) -> Option<&'a Seen> {
    seen.filter(|seen| seen.binding == binding && *seen.digest == *digest && !seen.deleting)
}

fn matches(binding: Uuid, id: &ObjectId, digest: &str, item: Option<&Item>, seen: Option<&Seen>) -> bool {
    // One that is going will be applied when it is gone; until then there is nothing to hold on to.
    if seen.is_some_and(|seen| seen.deleting && seen.binding == binding) {
        return true;
    }
    let (Some(seen), Some(item)) = (in_place(binding, digest, seen), item) else { return false };
    let Some(applied) = item.applied.as_ref().filter(|applied| *item.digest == *digest && applied.uid == seen.uid) else { return false };
    match applied.generation {
        Some(generation) => seen.generation == Some(generation),
        // Kinds without a generation: any change of the object may be a change of what is desired; applying again tells.
        None => status_moves_version(id) || seen.version == applied.resource_version,
    }
}

/// Kinds whose status is written all the time, so that their resource version says nothing about drift.
fn status_moves_version(id: &ObjectId) -> bool {
    id.api_version == "v1"
        && matches!(id.kind.as_str(), "Pod" | "PersistentVolumeClaim" | "PersistentVolume" | "Namespace" | "ReplicationController")
}

/// What the feed says of a binding. `lost`: why the member cannot be asked.
pub fn status(bound: &Bound, world: &World, lost: Option<&Failure>) -> BindingStatus {
    let desired = &bound.row.desired;
    let objects: Vec<ObjectStatus> = match bound.present() {
        true => {
            let wanted = bound.wanted.as_deref().unwrap_or_default().iter();
            wanted.map(|(id, digest)| object_status(id, in_place(bound.id(), digest, world.object(id)))).collect()
        }
        false => bound.superfluous(world).iter().map(|id| object_status(id, world.object(id))).collect(),
    };
    let unschedulable = bound.present().then(|| world.unschedulable(bound.id())).flatten().map(str::to_owned);
    let (phase, why) = match (bound.row.gone, lost) {
        (true, _) => (Phase::Gone, None),
        (false, Some(lost)) => (Phase::Unreachable, Some(lost.clone())),
        (false, None) if bound.present() => present_phase(bound, world, &objects, unschedulable.as_deref()),
        (false, None) => (
            Phase::Deleting,
            hindered(&bound.failure).or_else(|| hindered(&bound.hindrance)).or_else(|| remaining(&objects, world.pods(bound.id()))),
        ),
    };
    BindingStatus {
        id: desired.id,
        member: desired.member.clone(),
        digest: desired.digest.clone(),
        fence: desired.fence,
        phase,
        code: why.as_ref().map(|why| why.code.to_owned()),
        reason: why.map(|why| why.reason),
        unschedulable,
        objects,
    }
}

fn present_phase(bound: &Bound, world: &World, objects: &[ObjectStatus], unschedulable: Option<&str>) -> (Phase, Option<Failure>) {
    if let Some(failure) = hindered(&bound.failure) {
        return (Phase::Failed, Some(failure));
    }
    let Some(wanted) = &bound.wanted else { return (Phase::Pending, hindered(&bound.hindrance)) };
    if objects.iter().any(|object| !object.applied) {
        return (Phase::Applying, hindered(&bound.hindrance));
    }
    let failed = wanted.iter().find_map(|(id, _)| match &world.object(id)?.readiness {
        Readiness::Failed(reason) => Some(Failure { code: "not_ready", reason: format!("{id} {reason}") }),
        _ => None,
    });
    if let Some(failed) = failed {
        return (Phase::Failed, Some(failed));
    }
    let Some(waiting) = objects.iter().find(|object| !object.ready) else { return (Phase::Ready, None) };
    let (code, reason) = match (unschedulable, world.trouble(bound.id())) {
        (Some(message), _) => ("unschedulable", message.to_owned()),
        (None, Some(trouble)) => ("not_ready", trouble.to_owned()),
        (None, None) => ("not_ready", format!("{}/{} {}", waiting.kind, waiting.name, waiting.reason.as_deref().unwrap_or("is not ready"))),
    };
    (Phase::Applied, Some(Failure { code, reason }))
}

fn hindered(by: &Option<Box<Failure>>) -> Option<Failure> {
    by.as_deref().cloned()
}

fn remaining(objects: &[ObjectStatus], pods: usize) -> Option<Failure> {
    Some(Failure { code: "deleting", reason: format!("{} objects and {pods} pods are still there", objects.len()) })
}

fn object_status(id: &ObjectId, seen: Option<&Seen>) -> ObjectStatus {
    ObjectStatus {
        group: id.group().to_owned(),
        version: id.version().to_owned(),
        kind: id.kind.clone(),
        namespace: id.namespace.clone(),
        name: id.name.clone(),
        applied: seen.is_some(),
        ready: seen.is_some_and(|seen| seen.readiness.is_ready()),
        reason: seen.and_then(|seen| seen.readiness.reason()).map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use drover_api::bindings::DesiredBinding;
    use drover_members::Applied;
    use drover_scheduling::MemberKey;

    use super::super::world::tests::{id, seen};
    use super::*;

    fn thing(name: &str) -> ObjectId {
        ObjectId::clone(&id("Thing", name))
    }
    fn bound() -> Bound {
        let desired = DesiredBinding {
            id: Uuid::from_u128(1),
            dig: Arc::default(),
            app: "a".into(),
            member: MemberKey::new("p", "c"),
            namespace: "n".into(),
            digest: "bundle".into(),
            state: DesiredState::Present,
            fence: 1,
        };
        let mut bound = Bound::new(Row { desired, gone: false }, Inventory::new());
        bound.wanted = Some([(id("Thing", "x"), "d".into())].into());
        let applied = Applied { uid: "u".into(), generation: Some(1), resource_version: "1".into() };
        bound.inventory.insert(id("Thing", "x"), Box::new(Item { digest: "d".into(), applied: Some(applied) }));
        bound
    }
    fn world(change: impl FnOnce(&mut Seen)) -> World {
        let mut world = World::default();
        let mut object = seen(Uuid::from_u128(1), "1");
        change(&mut object);
        world.put(id("Thing", "x"), object);
        world
    }

    #[test]
    fn what_is_seen_shares_what_the_inventory_has() {
        let bound = bound();
        let (known, item) = bound.inventory.iter().next().unwrap();
        let (mut address, mut picture) = (id("Thing", "x"), seen(Uuid::from_u128(1), "1"));
        bound.share(&mut address, &mut picture);
        assert!(Arc::ptr_eq(&address, known) && Arc::ptr_eq(&picture.digest, &item.digest));
        assert!(Arc::ptr_eq(&picture.uid, &item.applied.as_ref().unwrap().uid));
        // What somebody changed stays as it was seen.
        (picture.digest, picture.uid) = ("other".into(), "v".into());
        bound.share(&mut address, &mut picture);
        assert_eq!((&*picture.digest, &*picture.uid), ("other", "v"));
    }

    #[test]
    fn what_matches_is_left_alone() {
        assert!(bound().drifted(&world(|_| {})).is_empty());
        // Status alone moves the version, not the generation.
        assert!(bound().drifted(&world(|seen| seen.version = "2".into())).is_empty());
        for change in [
            |seen: &mut Seen| seen.generation = Some(2),
            |seen: &mut Seen| seen.digest = "other".into(),
            |seen: &mut Seen| seen.uid = "v".into(),
        ] {
            assert_eq!(bound().drifted(&world(change)), [thing("x")]);
        }
        assert_eq!(bound().drifted(&World::default()), [thing("x")]);
        // Without a generation every change is looked at.
        let mut plain = bound();
        plain.inventory.values_mut().for_each(|item| item.applied.as_mut().unwrap().generation = None);
        assert!(plain.drifted(&world(|seen| seen.generation = None)).is_empty());
        assert_eq!(plain.drifted(&world(|seen| (seen.generation, seen.version) = (None, "2".into()))), [thing("x")]);
        // An object that was intended and never answered for is applied again.
        let mut intended = bound();
        intended.inventory.values_mut().for_each(|item| item.applied = None);
        assert_eq!(intended.drifted(&world(|_| {})), [thing("x")]);
    }

    #[test]
    fn what_is_not_desired_is_superfluous() {
        let mut picture = world(|_| {});
        picture.put(id("Thing", "zombie"), seen(Uuid::from_u128(1), "5"));
        let mut dependent = seen(Uuid::from_u128(1), "6");
        dependent.dependent = true;
        picture.put(id("Thing", "child"), dependent);
        assert_eq!(bound().superfluous(&picture), [thing("zombie")]);
        let mut absent = bound();
        absent.row.desired.state = DesiredState::Absent;
        assert_eq!(absent.superfluous(&picture), [thing("x"), thing("zombie")]);
    }

    #[test]
    fn phases() {
        let phase = |bound: &Bound, world: &World| status(bound, world, None).phase;
        assert_eq!(phase(&bound(), &world(|_| {})), Phase::Ready);
        assert_eq!(phase(&bound(), &World::default()), Phase::Applying);
        assert_eq!(phase(&bound(), &world(|seen| seen.digest = "old".into())), Phase::Applying);
        let waiting = status(&bound(), &world(|seen| seen.readiness = Readiness::NotReady("0 of 1".into())), None);
        assert_eq!((waiting.phase, waiting.reason.as_deref()), (Phase::Applied, Some("Thing/x 0 of 1")));
        assert_eq!(phase(&bound(), &world(|seen| seen.readiness = Readiness::Failed("no".into()))), Phase::Failed);
        let lost = Failure { code: "unreachable", reason: "away".into() };
        assert_eq!(status(&bound(), &world(|_| {}), Some(&lost)).phase, Phase::Unreachable);
        let mut absent = bound();
        absent.row.desired.state = DesiredState::Absent;
        assert_eq!(phase(&absent, &world(|_| {})), Phase::Deleting);
        absent.row.gone = true;
        assert_eq!(status(&absent, &world(|_| {}), Some(&lost)).phase, Phase::Gone);
        let mut new = bound();
        new.wanted = None;
        assert_eq!(phase(&new, &World::default()), Phase::Pending);
    }
}
