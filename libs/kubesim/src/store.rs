//! The data of one cluster: objects by key, the log that watches read, indices by uid and owner, and the journal of effects.
//!
//! Every change of an object goes through [`Store::put`] or [`Store::remove`], so the revision, the log, the indices and
//! the journal cannot disagree. The store knows nothing about kinds or rules.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::effects::{Effect, Operation};
use crate::frozen::Frozen;
use crate::key::Key;
use crate::object;

/// One change. Both sides are kept, because a watch with a selector must see objects enter and leave it.
#[derive(Debug, Clone)]
pub struct Event {
    pub revision: u64,
    pub key: Key,
    pub at: Timestamp,
    pub old: Option<Arc<Value>>,
    pub new: Option<Arc<Value>>,
}

/// An object as it is kept.
#[derive(Debug)]
pub enum Kept {
    /// Written recently, so that the log has it too.
    Warm(Arc<Value>),
    /// Packed, because it has left the log.
    Cold(Frozen),
}

impl Kept {
    /// The object.
    pub fn get(&self) -> Arc<Value> {
        match self {
            Self::Warm(object) => object.clone(),
            Self::Cold(frozen) => frozen.thaw(),
        }
    }

    /// The object, or at least the fields of `P`.
    pub fn part<P: DeserializeOwned + Serialize>(&self) -> Arc<Value> {
        match self {
            Self::Warm(object) => object.clone(),
            Self::Cold(frozen) => Arc::new(json!(frozen.part::<P>())),
        }
    }
}

/// The objects of one cluster.
#[derive(Debug, Default)]
pub struct Store {
    objects: BTreeMap<Key, Kept>,
    revision: u64,
    log: VecDeque<Event>,
    log_limit: usize,
    /// Changes up to here have left the log.
    compacted: u64,
    by_uid: HashMap<String, Key>,
    /// By uid of the owner; sorted. A set would take ten times the memory, as most owners have one dependent.
    dependents: HashMap<String, Vec<Key>>,
    /// The name of each namespace, kept once in memory.
    namespaces: BTreeSet<Arc<str>>,
    /// Absent if the cluster keeps no journal.
    journal: Option<Vec<Effect>>,
}

impl Store {
    pub fn new(log_limit: usize, journal: bool) -> Self {
        // A real server is never at revision 0: clients read 0 as "any".
        Self { revision: 1, compacted: 1, log_limit, journal: journal.then(Vec::new), ..Self::default() }
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn compacted(&self) -> u64 {
        self.compacted
    }

    pub fn get(&self, key: &Key) -> Option<Arc<Value>> {
        self.objects.get(key).map(Kept::get)
    }

    pub fn has(&self, key: &Key) -> bool {
        self.objects.contains_key(key)
    }

    /// Objects of one resource; of one namespace when it is not empty.
    pub fn list<'a>(&'a self, resource: &'a Arc<str>, namespace: &'a str) -> impl Iterator<Item = (&'a Key, Arc<Value>)> {
        self.range(resource, namespace).map(|(key, kept)| (key, kept.get()))
    }

    /// The keys of [`Store::list`].
    pub fn keys<'a>(&'a self, resource: &'a Arc<str>, namespace: &'a str) -> impl Iterator<Item = &'a Key> {
        self.range(resource, namespace).map(|(key, _)| key)
    }

    /// Like [`Store::list`], without unpacking the objects.
    pub fn range<'a>(&'a self, resource: &'a Arc<str>, namespace: &'a str) -> impl Iterator<Item = (&'a Key, &'a Kept)> {
        self.objects
            .range(Key::new(resource, namespace, "")..)
            .take_while(move |(key, _)| key.resource == *resource && (namespace.is_empty() || &*key.namespace == namespace))
    }

    /// All keys, in order.
    pub fn all(&self) -> impl Iterator<Item = &Key> {
        self.objects.keys()
    }

    pub fn key_of(&self, uid: &str) -> Option<&Key> {
        self.by_uid.get(uid)
    }

    /// Objects that name this uid as an owner.
    pub fn dependents(&self, uid: &str) -> impl Iterator<Item = (&Key, Arc<Value>)> {
        self.dependents.get(uid).into_iter().flatten().filter_map(|key| Some((key, self.get(key)?)))
    }

    /// Whether an object names this uid as an owner.
    pub fn has_dependents(&self, uid: &str) -> bool {
        self.dependents.contains_key(uid)
    }

    /// Changes after `revision`, oldest first.
    pub fn since(&self, revision: u64) -> impl Iterator<Item = &Event> {
        let from = self.log.partition_point(|event| event.revision <= revision);
        self.log.range(from..)
    }

    /// Writes an object under the next revision.
    pub fn put(&mut self, mut key: Key, mut object: Value, now: Timestamp) -> Arc<Value> {
        self.revision += 1;
        match self.namespaces.get(&key.namespace) {
            Some(known) => key.namespace = known.clone(),
            None => drop(self.namespaces.insert(key.namespace.clone())),
        }
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let new = Arc::new(object);
        let old = self.objects.insert(key.clone(), Kept::Warm(new.clone())).map(|kept| kept.get());
        if let Some(old) = &old {
            self.unindex(&key, old);
        }
        self.by_uid.insert(object::uid(&new).into(), key.clone());
        for owner in object::list(&new, "/metadata/ownerReferences") {
            let keys = self.dependents.entry(object::text(owner, "/uid").into()).or_default();
            if let Err(at) = keys.binary_search(&key) {
                keys.insert(at, key.clone());
            }
        }
        self.record(key, old, Some(new.clone()), now);
        new
    }

    /// Removes an object and returns its last state; `None` if there is no such object.
    pub fn remove(&mut self, key: &Key, now: Timestamp) -> Option<Arc<Value>> {
        let old = self.objects.remove(key)?.get();
        self.unindex(key, &old);
        self.revision += 1;
        self.record(key.clone(), Some(old.clone()), None, now);
        Some(old)
    }

    fn unindex(&mut self, key: &Key, object: &Value) {
        self.by_uid.remove(object::uid(object));
        for owner in object::list(object, "/metadata/ownerReferences") {
            let owner = object::text(owner, "/uid");
            if let Some(keys) = self.dependents.get_mut(owner) {
                keys.retain(|other| other != key);
                if keys.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
    }

    fn record(&mut self, key: Key, old: Option<Arc<Value>>, new: Option<Arc<Value>>, at: Timestamp) {
        let operation = match (&old, &new) {
            (None, _) => Operation::Create,
            (Some(_), Some(_)) => Operation::Update,
            (Some(_), None) => Operation::Delete,
        };
        let subject = new.as_ref().or(old.as_ref());
        let uid = subject.map_or("", |object| object::uid(object));
        if let Some(journal) = &mut self.journal {
            journal.push(Effect { at, operation, key: key.clone(), uid: uid.into(), revision: self.revision });
        }
        self.log.push_back(Event { revision: self.revision, key, at, old, new });
        while self.log.len() > self.log_limit {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(event) = self.log.pop_front() {
            self.compacted = event.revision;
            self.freeze(&event);
        }
    }

    /// Packs the object of a change that left the log, unless it was written again.
    fn freeze(&mut self, event: &Event) {
        let Some(kept) = self.objects.get_mut(&event.key) else { return };
        if let (Kept::Warm(object), Some(new)) = (&*kept, &event.new)
            && Arc::ptr_eq(object, new)
        {
            *kept = Kept::Cold(Frozen::of(&event.key.resource, object));
        }
    }

    /// Removes changes from before `limit` from the log. Returns whether others remain.
    pub fn trim(&mut self, limit: Timestamp) -> bool {
        while self.log.front().is_some_and(|event| event.at < limit) {
            self.drop_oldest();
        }
        !self.log.is_empty()
    }

    /// Removes all changes from the log, like a compaction of etcd.
    pub fn compact(&mut self) {
        self.revision += 1;
        for event in std::mem::take(&mut self.log) {
            self.freeze(&event);
        }
        self.compacted = self.revision;
    }

    pub fn journal(&self) -> &[Effect] {
        self.journal.as_deref().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cm(name: &str, owner: Option<&str>) -> (Key, Value) {
        let mut object = json!({"metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")}});
        if let Some(owner) = owner {
            object["metadata"]["ownerReferences"] = json!([{"uid": owner}]);
        }
        (Key::new(&"configmaps".into(), "default", name), object)
    }

    #[test]
    fn log_keeps_the_newest_changes_up_to_its_limit() {
        let mut store = Store::new(2, true);
        for name in ["a", "b", "c"] {
            let (key, object) = cm(name, None);
            store.put(key, object, Timestamp::UNIX_EPOCH);
        }
        assert_eq!(store.revision(), 4);
        assert_eq!(store.compacted(), 2);
        assert_eq!(store.since(3).map(|e| e.key.name.to_string()).collect::<Vec<_>>(), ["c"]);
        let names: Vec<String> = store.list(&"configmaps".into(), "").map(|(_, object)| object::name(&object).to_owned()).collect();
        assert_eq!(names, ["a", "b", "c"], "packed objects are listed too");
    }

    #[test]
    fn dependents_follow_owner_references() {
        let mut store = Store::new(10, true);
        let (key, object) = cm("child", Some("uid-parent"));
        store.put(key.clone(), object, Timestamp::UNIX_EPOCH);
        assert_eq!(store.dependents("uid-parent").count(), 1);
        store.remove(&key, Timestamp::UNIX_EPOCH);
        assert_eq!(store.dependents("uid-parent").count(), 0);
        assert_eq!(store.journal().iter().map(|e| e.operation).collect::<Vec<_>>(), [Operation::Create, Operation::Delete]);
    }
}
