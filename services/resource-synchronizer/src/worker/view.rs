//! What is seen of one member: the objects and pods of this installation.
//!
//! Pure: takes watch events and returns the bindings that they concern. Keeps only those fields of an object that judging needs.
//! Invariant: what is seen of an object is never replaced by an older version, so an event from before Drover applied is no drift.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use drover_members::{ObjectId, Readiness, trimmed};
use uuid::Uuid;

/// API version and name of a kind.
pub type ApiKind = (String, String);

/// An object as last seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub uid: Arc<str>,
    /// Generation, where the kind counts one.
    pub generation: Option<i64>,
    /// Resource version.
    pub version: String,
    /// Digest in its annotation; empty without one.
    pub digest: Arc<str>,
    /// Binding that its label names.
    pub binding: Uuid,
    /// Created by a controller for another object, and deleted with that object.
    pub dependent: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether an annotation of it says when it serves.
    pub ruled: bool,
    /// Whether an annotation of it says that it stays when its app leaves.
    pub kept: bool,
    /// Whether it is ready, by the rules of its kind and by its own.
    pub readiness: Readiness,
    /// When this was seen.
    pub at: Instant,
}

/// `namespace/name` of a pod.
type PodKey = Arc<str>;

/// A pod as last seen.
#[derive(Clone, Debug, PartialEq)]
struct PodSeen {
    binding: Uuid,
    unschedulable: Option<String>,
    trouble: Option<String>,
    at: Instant,
}

/// What a watch reports.
#[derive(Debug)]
pub enum Event {
    /// The list of a kind began at this time; `None` for pods.
    Begin(Option<ApiKind>, Instant),
    /// An object exists.
    Object(Arc<ObjectId>, Box<Seen>),
    /// An object no longer exists.
    Vanished(Arc<ObjectId>, Arc<str>),
    /// A pod exists.
    Pod(Box<trimmed::Pod>),
    /// A pod no longer exists.
    PodVanished(Box<trimmed::Pod>),
    /// The list is complete.
    Done(Option<ApiKind>),
    /// A watch failed and goes on.
    Broken(Option<ApiKind>, String),
    /// The task of a watch panicked: nothing more is heard of the kind.
    Panicked(Option<ApiKind>),
}

impl Event {
    /// The object that the event is about, if it is about one.
    pub fn object(&self) -> Option<&ObjectId> {
        match self {
            Self::Object(id, _) | Self::Vanished(id, _) => Some(id),
            _ => None,
        }
    }
}

/// What is seen of one member.
#[derive(Debug, Default)]
pub struct MemberView {
    objects: HashMap<Arc<ObjectId>, Box<Seen>>,
    by_binding: Index<Arc<ObjectId>>,
    /// Which bindings have an object that apps may share in their inventory.
    sharers: HashMap<Arc<ObjectId>, Vec<Uuid>>,
    pods: HashMap<PodKey, PodSeen>,
    pods_by_binding: Index<PodKey>,
    listing: HashMap<Option<ApiKind>, Instant>,
    complete: HashSet<Option<ApiKind>>,
    /// Objects that are gone by the member's answer, as last seen; the time is that of the answer. Reports from before it may still come.
    gone: HashMap<Arc<ObjectId>, Box<Seen>>,
}

impl MemberView {
    /// What is seen of an object.
    pub fn object(&self, id: &ObjectId) -> Option<&Seen> {
        self.objects.get(id).map(Box::as_ref)
    }

    /// Objects with a binding's label, without dependants.
    pub fn of_binding(&self, binding: Uuid) -> impl Iterator<Item = (&ObjectId, &Seen)> {
        let ids = self.by_binding.of(binding);
        ids.filter_map(|id| Some((&**id, self.object(id)?))).filter(|(_, seen)| !seen.dependent)
    }

    /// Notes that a binding has an object in its inventory. Only objects that apps may share are kept.
    pub fn hold(&mut self, id: &Arc<ObjectId>, binding: Uuid) {
        if id.is_shareable() {
            let sharers = self.sharers.entry(Arc::clone(id)).or_default();
            if !sharers.contains(&binding) {
                sharers.push(binding);
            }
        }
    }

    /// Notes that a binding no longer has an object in its inventory.
    pub fn let_go(&mut self, id: &ObjectId, binding: Uuid) {
        if let Some(sharers) = self.sharers.get_mut(id) {
            sharers.retain(|sharer| *sharer != binding);
            if sharers.is_empty() {
                self.sharers.remove(id);
            }
        }
    }

    /// The bindings that have an object which apps may share in their inventory.
    pub fn sharers(&self, id: &ObjectId) -> &[Uuid] {
        self.sharers.get(id).map_or(&[], Vec::as_slice)
    }

    /// Whether the object's labels name another binding that shares it with this one.
    pub fn is_shared(&self, id: &ObjectId, seen: &Seen, binding: Uuid) -> bool {
        let sharers = self.sharers(id);
        seen.binding != binding && sharers.contains(&seen.binding) && sharers.contains(&binding)
    }

    /// All bindings of which an object or a pod is seen.
    pub fn bindings(&self) -> BTreeSet<Uuid> {
        self.by_binding.bindings().chain(self.pods_by_binding.bindings()).collect()
    }

    /// Kinds of which an object is seen.
    pub fn kinds(&self) -> BTreeSet<ApiKind> {
        self.objects.keys().map(|id| (id.api_version.clone(), id.kind.clone())).collect()
    }

    /// How many pods of a binding exist, including those that ended.
    pub fn pods(&self, binding: Uuid) -> usize {
        self.pods_of(binding).count()
    }

    /// The scheduler's message about a pod of the binding that fits on no node.
    pub fn unschedulable(&self, binding: Uuid) -> Option<&str> {
        self.pods_of(binding).filter_map(|pod| pod.unschedulable.as_deref()).min()
    }

    /// Why a container of the binding does not run.
    pub fn trouble(&self, binding: Uuid) -> Option<&str> {
        self.pods_of(binding).filter_map(|pod| pod.trouble.as_deref()).min()
    }

    /// Whether a list of this kind has been complete.
    pub fn is_complete(&self, kind: &Option<ApiKind>) -> bool {
        self.complete.contains(kind)
    }

    /// Sets what is seen of an object, whatever was seen before.
    pub fn put(&mut self, id: Arc<ObjectId>, seen: Box<Seen>) {
        if let Some(old) = self.objects.get(&id).filter(|old| old.binding != seen.binding) {
            self.by_binding.remove(old.binding, &id);
        }
        self.gone.remove(&id);
        let id = self.objects.get_key_value(&id).map_or(id, |(known, _)| Arc::clone(known));
        self.by_binding.insert(seen.binding, Arc::clone(&id));
        self.objects.insert(id, seen);
    }

    /// Sets what a member answered to an apply. If the apply changed nothing, no watch will report the object again, so what was seen
    /// of this very version stays, its readiness above all.
    pub fn put_applied(&mut self, id: Arc<ObjectId>, seen: Box<Seen>) {
        if self.objects.get(&id).is_none_or(|old| (&old.uid, &old.version) != (&seen.uid, &seen.version)) {
            self.put(id, seen);
        }
    }

    /// Takes an event in and returns the bindings that it concerns.
    pub fn take(&mut self, event: Event) -> BTreeSet<Uuid> {
        match event {
            Event::Begin(kind, at) => {
                self.listing.insert(kind, at);
                BTreeSet::new()
            }
            Event::Object(id, seen) => {
                let late = |gone: &Seen| (&gone.uid, gone.binding) == (&seen.uid, seen.binding);
                if self.gone.get(&id).is_some_and(|gone| late(gone)) {
                    return BTreeSet::new();
                }
                let before = self.objects.get(&id).map(|old| old.binding);
                let newer = |old: &&mut Box<Seen>| old.uid == seen.uid && older(&seen.version, &old.version);
                if let Some(old) = self.objects.get_mut(&id).filter(newer) {
                    // It still exists: without a new time, the end of a list would remove it.
                    old.at = seen.at;
                    return BTreeSet::new();
                }
                let touched = before.into_iter().chain([seen.binding]).chain(self.sharers(&id).iter().copied()).collect();
                self.put(id, seen);
                touched
            }
            Event::Vanished(id, uid) => {
                if self.gone.get(&id).is_some_and(|gone| gone.uid == uid) {
                    self.gone.remove(&id);
                }
                match self.objects.get(&id).filter(|seen| seen.uid == uid) {
                    Some(_) => self.remove(&id).into_iter().chain(self.sharers(&id).iter().copied()).collect(),
                    None => BTreeSet::new(),
                }
            }
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
                self.remove_unlisted(kind.as_ref(), begun)
            }
            Event::Broken(..) | Event::Panicked(_) => BTreeSet::new(),
        }
    }

    /// Removes what a complete list did not contain.
    fn remove_unlisted(&mut self, kind: Option<&ApiKind>, begun: Instant) -> BTreeSet<Uuid> {
        let Some((api_version, kind)) = kind else {
            let stale: Vec<_> = self.pods.iter().filter(|(_, pod)| pod.at < begun).map(|(key, _)| key.clone()).collect();
            return stale.iter().filter_map(|key| self.remove_pod(key)).collect();
        };
        let of_kind = |id: &Arc<ObjectId>| id.api_version == *api_version && id.kind == *kind;
        self.gone.retain(|id, gone| !of_kind(id) || gone.at >= begun);
        let stale: Vec<_> = self.objects.iter().filter(|(id, seen)| of_kind(id) && seen.at < begun).map(|(id, _)| id.clone()).collect();
        stale.iter().flat_map(|id| self.remove(id).into_iter().chain(self.sharers(id).to_vec())).collect()
    }

    /// Removes an object of which the member has answered that it is gone. Reports of it that are still under way are passed over.
    pub fn remove_gone(&mut self, id: &ObjectId) {
        if let Some((id, mut seen)) = self.take_out(id) {
            seen.at = Instant::now();
            self.gone.insert(id, seen);
        }
    }

    /// Removes an object and returns its binding.
    fn remove(&mut self, id: &ObjectId) -> Option<Uuid> {
        self.take_out(id).map(|(_, seen)| seen.binding)
    }

    fn take_out(&mut self, id: &ObjectId) -> Option<(Arc<ObjectId>, Box<Seen>)> {
        let (id, seen) = self.objects.remove_entry(id)?;
        self.by_binding.remove(seen.binding, &id);
        Some((id, seen))
    }

    /// Removes a pod and returns its binding.
    fn remove_pod(&mut self, key: &PodKey) -> Option<Uuid> {
        let binding = self.pods.remove(key)?.binding;
        self.pods_by_binding.remove(binding, key);
        Some(binding)
    }

    fn pods_of(&self, binding: Uuid) -> impl Iterator<Item = &PodSeen> {
        self.pods_by_binding.of(binding).filter_map(|key| self.pods.get(key))
    }
}

/// The entries of each binding. Most bindings have one; a map of sets would take four times the memory.
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
        // `None` is less than every entry.
        self.0.range((binding, None)..).take_while(move |(of, _)| *of == binding).filter_map(|(_, what)| what.as_ref())
    }

    fn bindings(&self) -> impl Iterator<Item = Uuid> {
        self.0.iter().map(|(binding, _)| *binding)
    }
}

/// Whether one resource version is older than another. Versions that are not numbers (no known server has such) never count as older.
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
        Box::new(Seen {
            uid,
            generation,
            version,
            digest,
            binding,
            dependent: false,
            deleting: false,
            ruled: false,
            kept: false,
            readiness,
            at,
        })
    }
    fn kind() -> Option<ApiKind> {
        Some(("v1".into(), "Secret".into()))
    }

    #[test]
    fn complete_list_removes_objects_that_it_does_not_contain() {
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut view = MemberView::default();
        view.take(Event::Object(id("Secret", "a"), seen(a, "1")));
        view.take(Event::Object(id("Secret", "b"), seen(b, "2")));
        view.take(Event::Begin(kind(), Instant::now()));
        view.take(Event::Object(id("Secret", "a"), seen(a, "1")));
        assert!(!view.is_complete(&kind()));
        assert_eq!(view.take(Event::Done(kind())), BTreeSet::from([b]));
        assert!(view.is_complete(&kind()) && view.object(&id("Secret", "a")).is_some() && view.object(&id("Secret", "b")).is_none());
        // An object that was applied while the list was under way stays.
        view.take(Event::Begin(kind(), Instant::now()));
        view.put(id("Secret", "c"), seen(b, "9"));
        view.take(Event::Object(id("Secret", "a"), seen(a, "1")));
        assert_eq!(view.take(Event::Done(kind())), BTreeSet::new());
        assert!(view.object(&id("Secret", "c")).is_some());
    }

    #[test]
    fn older_event_does_not_replace_a_newer_object() {
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut view = MemberView::default();
        view.put(id("Secret", "a"), seen(a, "10"));
        assert_eq!(view.take(Event::Object(id("Secret", "a"), seen(a, "9"))), BTreeSet::new());
        assert_eq!(view.object(&id("Secret", "a")).map(|seen| seen.version.as_str()), Some("10"));
        // A later binding took the object over: the event concerns both.
        assert_eq!(view.take(Event::Object(id("Secret", "a"), seen(b, "11"))), BTreeSet::from([a, b]));
        assert_eq!((view.of_binding(a).count(), view.of_binding(b).count()), (0, 1));
        let vanished = id("Secret", "a");
        assert_eq!(view.take(Event::Vanished(vanished.clone(), "another uid".into())), BTreeSet::new());
        assert_eq!(view.take(Event::Vanished(vanished, "u".into())), BTreeSet::from([b]));
    }

    #[test]
    fn late_report_of_a_deleted_object_is_passed_over() {
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let (config, late) = (id("Secret", "a"), || seen(a, "5"));
        let mut view = MemberView::default();
        view.put(config.clone(), seen(a, "4"));
        view.remove_gone(&config);
        assert_eq!(view.take(Event::Object(config.clone(), late())), BTreeSet::new());
        assert!(view.object(&config).is_none());
        // Its end was reported: whatever comes after that exists again, as an object that was left in place and is taken over later.
        view.take(Event::Vanished(config.clone(), "u".into()));
        assert_eq!(view.take(Event::Object(config.clone(), late())), BTreeSet::from([a]));
        // So does one that was applied meanwhile, one with another uid, and one that another binding has taken over.
        view.remove_gone(&config);
        view.put_applied(config.clone(), seen(a, "7"));
        assert_eq!(view.take(Event::Object(config.clone(), seen(a, "8"))), BTreeSet::from([a]));
        view.remove_gone(&config);
        let another = Box::new(Seen { uid: "another".into(), ..*seen(a, "9") });
        assert_eq!(view.take(Event::Object(config.clone(), another)), BTreeSet::from([a]));
        view.remove_gone(&config);
        let taken_over = Box::new(Seen { uid: "another".into(), ..*seen(b, "10") });
        assert_eq!(view.take(Event::Object(config.clone(), taken_over)), BTreeSet::from([b]));
        // A list that began later says what there is.
        view.remove_gone(&config);
        view.take(Event::Begin(kind(), Instant::now()));
        view.take(Event::Done(kind()));
        assert!(view.gone.is_empty());
    }

    #[test]
    fn pods_are_counted_per_binding() {
        let a = Uuid::from_u128(1);
        let pod = |message: &str| {
            let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message});
            let pod =
                json!({"metadata": {"name": "p", "labels": {"drover.io/binding": a}}, "spec": {}, "status": {"conditions": [condition]}});
            Box::new(serde_json::from_value::<trimmed::Pod>(pod).unwrap())
        };
        let mut view = MemberView::default();
        assert_eq!(view.take(Event::Pod(pod("0/1 nodes"))), BTreeSet::from([a]));
        assert_eq!((view.pods(a), view.unschedulable(a)), (1, Some("0/1 nodes")));
        // The same pod again counts once; with another label it belongs to another binding.
        view.take(Event::Pod(pod("0/1 nodes")));
        let mut moved = pod("0/2 nodes");
        moved.metadata.labels.get_or_insert_default().insert("drover.io/binding".into(), Uuid::from_u128(2).to_string());
        assert_eq!((view.pods(a), view.take(Event::Pod(moved))), (1, BTreeSet::from([a, Uuid::from_u128(2)])));
        assert_eq!((view.pods(a), view.pods(Uuid::from_u128(2))), (0, 1));
        view.take(Event::Pod(pod("0/1 nodes")));
        view.take(Event::Begin(None, Instant::now()));
        assert_eq!(view.take(Event::Done(None)), BTreeSet::from([a]));
        assert_eq!(view.pods(a), 0);
    }
}
