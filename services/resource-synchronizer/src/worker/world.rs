//! What is seen of one member: the objects of this installation, and its pods.
//!
//! Pure: watch events in, the bindings they touch out. Keeps of each object what a judgement needs and nothing else.
//! Invariant: a picture is never replaced by an older one, so an event that was on its way while Drover applied is no drift.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use drover_members::{ObjectId, Readiness, trimmed};
use uuid::Uuid;

/// A kind: API version and name.
pub type Kind = (String, String);

/// An object as last seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// Uid.
    pub uid: Arc<str>,
    /// Generation, where the kind counts one.
    pub generation: Option<i64>,
    /// Resource version.
    pub version: String,
    /// Digest that its annotation tells.
    pub digest: Arc<str>,
    /// Binding that its label names.
    pub binding: Uuid,
    /// Made by a controller from another object: whose deletion takes it along.
    pub dependent: bool,
    /// Is going.
    pub deleting: bool,
    /// Judgement of its kind.
    pub readiness: Readiness,
    /// When this was learnt.
    pub at: Instant,
}

/// `namespace/name`.
type PodKey = Arc<str>;

/// A pod as last seen.
#[derive(Clone, Debug, PartialEq)]
struct PodSeen {
    binding: Uuid,
    unschedulable: Option<String>,
    trouble: Option<String>,
    at: Instant,
}

/// What the watches tell.
#[derive(Debug)]
pub enum Event {
    /// A list of a kind begins at this time; `None`: of pods.
    Begin(Option<Kind>, Instant),
    /// An object is there.
    Object(Arc<ObjectId>, Box<Seen>),
    /// An object is not there any more.
    Vanished(Arc<ObjectId>, Arc<str>),
    /// A pod is there.
    Pod(Box<trimmed::Pod>),
    /// A pod is not there any more.
    PodVanished(Box<trimmed::Pod>),
    /// The list is complete.
    Done(Option<Kind>),
    /// A watch does not get through.
    Broken(Option<Kind>, String),
}

impl Event {
    /// The one object that this is about.
    pub fn object(&self) -> Option<&ObjectId> {
        match self {
            Self::Object(id, _) | Self::Vanished(id, _) => Some(id),
            _ => None,
        }
    }
}

/// The picture.
#[derive(Debug, Default)]
pub struct World {
    objects: HashMap<Arc<ObjectId>, Box<Seen>>,
    by_binding: Index<Arc<ObjectId>>,
    pods: HashMap<PodKey, PodSeen>,
    pods_by_binding: Index<PodKey>,
    listing: HashMap<Option<Kind>, Instant>,
    complete: HashSet<Option<Kind>>,
}

impl World {
    /// An object.
    pub fn object(&self, id: &ObjectId) -> Option<&Seen> {
        self.objects.get(id).map(Box::as_ref)
    }

    /// Objects that carry a binding's label, dependants left out.
    pub fn of_binding(&self, binding: Uuid) -> impl Iterator<Item = (&ObjectId, &Seen)> {
        let ids = self.by_binding.of(binding);
        ids.filter_map(|id| Some((&**id, self.object(id)?))).filter(|(_, seen)| !seen.dependent)
    }

    /// Every binding that something seen belongs to.
    pub fn bindings(&self) -> BTreeSet<Uuid> {
        self.by_binding.bindings().chain(self.pods_by_binding.bindings()).collect()
    }

    /// Kinds of which something is seen.
    pub fn kinds(&self) -> BTreeSet<Kind> {
        self.objects.keys().map(|id| (id.api_version.clone(), id.kind.clone())).collect()
    }

    /// How many pods of a binding exist, ended ones too.
    pub fn pods(&self, binding: Uuid) -> usize {
        self.pods_of(binding).count()
    }

    /// What the scheduler says of a pod of the binding that fits on no node.
    pub fn unschedulable(&self, binding: Uuid) -> Option<&str> {
        self.pods_of(binding).filter_map(|pod| pod.unschedulable.as_deref()).min()
    }

    /// What keeps a container of the binding from running.
    pub fn trouble(&self, binding: Uuid) -> Option<&str> {
        self.pods_of(binding).filter_map(|pod| pod.trouble.as_deref()).min()
    }

    /// Whether a list of this kind has been complete.
    pub fn is_complete(&self, kind: &Option<Kind>) -> bool {
        self.complete.contains(kind)
    }

    /// Takes in what was applied, before any watch tells.
    pub fn put(&mut self, id: Arc<ObjectId>, seen: Box<Seen>) {
        if let Some(old) = self.objects.get(&id).filter(|old| old.binding != seen.binding) {
            self.by_binding.remove(old.binding, &id);
        }
        let id = self.objects.get_key_value(&id).map_or(id, |(known, _)| Arc::clone(known));
        self.by_binding.insert(seen.binding, Arc::clone(&id));
        self.objects.insert(id, seen);
    }

    /// Notes what a member answered to an apply. Where that changed nothing no watch will tell of it: what was seen of this very
    /// version, its readiness above all, stays the last word.
    pub fn put_applied(&mut self, id: Arc<ObjectId>, seen: Box<Seen>) {
        if self.objects.get(&id).is_none_or(|old| (&old.uid, &old.version) != (&seen.uid, &seen.version)) {
            self.put(id, seen);
        }
    }

    /// Takes in an event; returns the bindings that it touches.
    pub fn take(&mut self, event: Event) -> BTreeSet<Uuid> {
        match event {
            Event::Begin(kind, at) => {
                self.listing.insert(kind, at);
                BTreeSet::new()
            }
            Event::Object(id, seen) => {
                let before = self.objects.get(&id).map(|old| old.binding);
                let newer = |old: &&mut Box<Seen>| old.uid == seen.uid && older(&seen.version, &old.version);
                if let Some(old) = self.objects.get_mut(&id).filter(newer) {
                    // Seen again is seen, or the end of a list would take it for gone.
                    old.at = seen.at;
                    return BTreeSet::new();
                }
                let touched = before.into_iter().chain([seen.binding]).collect();
                self.put(id, seen);
                touched
            }
            Event::Vanished(id, uid) => match self.objects.get(&id).filter(|seen| seen.uid == uid) {
                Some(_) => self.remove(&id).into_iter().collect(),
                None => BTreeSet::new(),
            },
            Event::Pod(pod) => {
                let Some(binding) = pod.binding() else { return BTreeSet::new() };
                let key = pod_key(&pod);
                let trimmed::Pod { unschedulable, trouble, .. } = *pod;
                let before = self.remove_pod(&key);
                self.pods_by_binding.insert(binding, key.clone());
                self.pods.insert(key, PodSeen { binding, unschedulable, trouble, at: Instant::now() });
                before.into_iter().chain([binding]).collect()
            }
            Event::PodVanished(pod) => self.remove_pod(&pod_key(&pod)).into_iter().collect(),
            Event::Done(kind) => {
                let begun = self.listing.remove(&kind).unwrap_or_else(Instant::now);
                self.complete.insert(kind.clone());
                self.retire(kind.as_ref(), begun)
            }
            Event::Broken(..) => BTreeSet::new(),
        }
    }

    /// What a complete list did not hold is gone.
    fn retire(&mut self, kind: Option<&Kind>, begun: Instant) -> BTreeSet<Uuid> {
        let Some((api_version, kind)) = kind else {
            let stale: Vec<_> = self.pods.iter().filter(|(_, pod)| pod.at < begun).map(|(key, _)| key.clone()).collect();
            return stale.iter().filter_map(|key| self.remove_pod(key)).collect();
        };
        let of_kind = |id: &Arc<ObjectId>| id.api_version == *api_version && id.kind == *kind;
        let stale: Vec<_> = self.objects.iter().filter(|(id, seen)| of_kind(id) && seen.at < begun).map(|(id, _)| id.clone()).collect();
        stale.iter().filter_map(|id| self.remove(id)).collect()
    }

    /// Takes an object out; returns its binding.
    pub fn remove(&mut self, id: &ObjectId) -> Option<Uuid> {
        let (id, seen) = self.objects.remove_entry(id)?;
        self.by_binding.remove(seen.binding, &id);
        Some(seen.binding)
    }

    /// Takes a pod out; returns its binding.
    fn remove_pod(&mut self, key: &PodKey) -> Option<Uuid> {
        let binding = self.pods.remove(key)?.binding;
        self.pods_by_binding.remove(binding, key);
        Some(binding)
    }

    fn pods_of(&self, binding: Uuid) -> impl Iterator<Item = &PodSeen> {
        self.pods_by_binding.of(binding).filter_map(|key| self.pods.get(key))
    }
}

/// What belongs to each binding. Most have one of it, for which a set in a map would take four times the room.
#[derive(Debug)]
struct Index<T>(BTreeSet<(Uuid, Option<T>)>);

impl<T> Default for Index<T> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<T: Ord + Clone> Index<T> {
    fn insert(&mut self, binding: Uuid, what: T) {
        self.0.insert((binding, Some(what)));
    }

    fn remove(&mut self, binding: Uuid, what: &T) {
        self.0.remove(&(binding, Some(what.clone())));
    }

    fn of(&self, binding: Uuid) -> impl Iterator<Item = &T> {
        // None is less than all that there is.
        self.0.range((binding, None)..).take_while(move |(of, _)| *of == binding).filter_map(|(_, what)| what.as_ref())
    }

    fn bindings(&self) -> impl Iterator<Item = Uuid> {
        self.0.iter().map(|(binding, _)| *binding)
    }
}

/// Whether one resource version is older than another. Opaque ones (no server that we know of) are never older.
fn older(version: &str, than: &str) -> bool {
    matches!((version.parse::<u64>(), than.parse::<u64>()), (Ok(version), Ok(than)) if version < than)
}

fn pod_key(pod: &trimmed::Pod) -> PodKey {
    let [namespace, name] = [&pod.metadata.namespace, &pod.metadata.name].map(|part| part.as_deref().unwrap_or_default());
    format!("{namespace}/{name}").into()
}

#[cfg(test)]
pub mod tests {
    use serde_json::json;

    use super::*;

    pub fn id(kind: &str, name: &str) -> Arc<ObjectId> {
        Arc::new(ObjectId { api_version: "v1".into(), kind: kind.into(), namespace: "n".into(), name: name.into() })
    }
    pub fn seen(binding: Uuid, version: &str) -> Box<Seen> {
        let readiness = Readiness::Ready;
        let (uid, version, digest) = ("u".into(), version.into(), "d".into());
        let (generation, at) = (Some(1), Instant::now());
        Box::new(Seen { uid, generation, version, digest, binding, dependent: false, deleting: false, readiness, at })
    }
    fn kind() -> Option<Kind> {
        Some(("v1".into(), "Secret".into()))
    }

    #[test]
    fn a_complete_list_retires_what_it_did_not_hold() {
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut world = World::default();
        world.take(Event::Object(id("Secret", "a"), seen(a, "1")));
        world.take(Event::Object(id("Secret", "b"), seen(b, "2")));
        world.take(Event::Begin(kind(), Instant::now()));
        world.take(Event::Object(id("Secret", "a"), seen(a, "1")));
        assert!(!world.is_complete(&kind()));
        assert_eq!(world.take(Event::Done(kind())), BTreeSet::from([b]));
        assert!(world.is_complete(&kind()) && world.object(&id("Secret", "a")).is_some() && world.object(&id("Secret", "b")).is_none());
        // What was applied while the list was on its way is not retired by it.
        world.take(Event::Begin(kind(), Instant::now()));
        world.put(id("Secret", "c"), seen(b, "9"));
        world.take(Event::Object(id("Secret", "a"), seen(a, "1")));
        assert_eq!(world.take(Event::Done(kind())), BTreeSet::new());
        assert!(world.object(&id("Secret", "c")).is_some());
    }

    #[test]
    fn older_pictures_do_not_replace_newer_ones() {
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut world = World::default();
        world.put(id("Secret", "a"), seen(a, "10"));
        assert_eq!(world.take(Event::Object(id("Secret", "a"), seen(a, "9"))), BTreeSet::new());
        assert_eq!(world.object(&id("Secret", "a")).map(|seen| seen.version.as_str()), Some("10"));
        // A later binding took the object over: both are touched.
        assert_eq!(world.take(Event::Object(id("Secret", "a"), seen(b, "11"))), BTreeSet::from([a, b]));
        assert_eq!((world.of_binding(a).count(), world.of_binding(b).count()), (0, 1));
        let vanished = id("Secret", "a");
        assert_eq!(world.take(Event::Vanished(vanished.clone(), "another uid".into())), BTreeSet::new());
        assert_eq!(world.take(Event::Vanished(vanished, "u".into())), BTreeSet::from([b]));
    }

    #[test]
    fn pods_are_counted_by_binding() {
        let a = Uuid::from_u128(1);
        let pod = |message: &str| {
            let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message});
            let pod =
                json!({"metadata": {"name": "p", "labels": {"drover.io/binding": a}}, "spec": {}, "status": {"conditions": [condition]}});
            Box::new(serde_json::from_value::<trimmed::Pod>(pod).unwrap())
        };
        let mut world = World::default();
        assert_eq!(world.take(Event::Pod(pod("0/1 nodes"))), BTreeSet::from([a]));
        assert_eq!((world.pods(a), world.unschedulable(a)), (1, Some("0/1 nodes")));
        // Seen again it is the same pod; with another label it is another binding's.
        world.take(Event::Pod(pod("0/1 nodes")));
        let mut moved = pod("0/2 nodes");
        moved.metadata.labels.get_or_insert_default().insert("drover.io/binding".into(), Uuid::from_u128(2).to_string());
        assert_eq!((world.pods(a), world.take(Event::Pod(moved))), (1, BTreeSet::from([a, Uuid::from_u128(2)])));
        assert_eq!((world.pods(a), world.pods(Uuid::from_u128(2))), (0, 1));
        world.take(Event::Pod(pod("0/1 nodes")));
        world.take(Event::Begin(None, Instant::now()));
        assert_eq!(world.take(Event::Done(None)), BTreeSet::from([a]));
        assert_eq!(world.pods(a), 0);
    }
}
