//! What one cluster knows. Every change of an object goes through [`ClusterState::put`] or [`ClusterState::remove`].
//!
//! This file decides nothing: it notes each change, and the driver hands the changes to controllers, kubelet and scheduler.
//! Invariant: a change is noted exactly once, in the order in which it was made.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::clock::Clock;
use crate::effects::ReadyRecorder;
use crate::key::Key;
use crate::kinds::{BUILT_INS, ServedKind};
use crate::standin::StandIn;
use crate::store::Store;
use crate::tenants::Tenants;
use crate::timers::Timer;

/// How long a change stays in the log that watches read, as long as there is room.
const LOG_AGE: SignedDuration = SignedDuration::from_secs(60);

/// What a cluster knows.
pub struct ClusterState {
    pub store: Store,
    pub settings: Settings,
    /// Kinds of CustomResourceDefinitions.
    pub custom: Vec<Arc<ServedKind>>,
    pub clock: Clock,
    pub recorders: Vec<ReadyRecorder>,
    /// Nodes that were lost: their kubelet does nothing.
    pub lost: BTreeSet<String>,
    pub tenants: Tenants,
    /// Processes of pods by the uid of their pod, in clusters that have them.
    pub stand_ins: HashMap<String, StandIn>,
    /// Stand-ins that start have an address on which nothing listens.
    pub silent: bool,
    pub work: Work,
    changes: Vec<Change>,
    timers: Vec<(Duration, Timer)>,
    trimming: bool,
}

/// What does not change while a cluster lives.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Serve metrics.k8s.io.
    pub metrics: bool,
    /// Run controllers, scheduler and kubelet.
    pub controllers: bool,
    /// Between a change and its controllers.
    pub controller_delay: Duration,
    /// The most changes that watches can look back.
    pub log: usize,
    /// Keep every write for tests.
    pub journal: bool,
    /// Pods answer on an address of their own.
    pub stand_ins: bool,
}

/// One change of an object.
pub struct Change {
    pub key: Key,
    /// The object before; absent if it was created.
    pub old: Option<Arc<Value>>,
    /// The object after; absent if it was deleted.
    pub new: Option<Arc<Value>>,
}

/// What controllers, garbage collection and scheduler still have to look at.
#[derive(Default)]
pub struct Work {
    /// Objects for their controllers. Taken from the end: replica sets before the deployments that count them.
    pub queue: BTreeSet<Key>,
    /// Uids of owners that may be gone.
    pub orphans: Vec<String>,
    /// Waiting pods may find a node.
    pub schedule: bool,
    /// A timer for all this is set.
    pub armed: bool,
}

impl Work {
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.orphans.is_empty() && !self.schedule
    }
}

impl ClusterState {
    pub fn new(settings: Settings, clock: Clock) -> Self {
        Self {
            store: Store::new(settings.log, settings.journal),
            settings,
            custom: Vec::new(),
            clock,
            recorders: Vec::new(),
            lost: BTreeSet::new(),
            tenants: Tenants::default(),
            stand_ins: HashMap::new(),
            silent: false,
            work: Work::default(),
            changes: Vec::new(),
            timers: Vec::new(),
            trimming: false,
        }
    }

    /// Writes an object.
    pub fn put(&mut self, key: Key, object: Value) -> Arc<Value> {
        let old = self.store.get(&key);
        let new = self.store.put(key.clone(), object, self.clock.now());
        self.changed(key, old, Some(new.clone()));
        new
    }

    /// Removes an object and returns its last state; `None` if there is no such object.
    pub fn remove(&mut self, key: &Key) -> Option<Arc<Value>> {
        let old = self.store.remove(key, self.clock.now())?;
        self.changed(key.clone(), Some(old.clone()), None);
        Some(old)
    }

    fn changed(&mut self, key: Key, old: Option<Arc<Value>>, new: Option<Arc<Value>>) {
        if !self.trimming {
            self.trimming = true;
            self.after(LOG_AGE.unsigned_abs() + Duration::from_secs(1), Timer::Trim);
        }
        if &*key.resource == "pods" {
            for recorder in &self.recorders {
                recorder.observe(old.as_deref(), new.as_deref());
            }
            if self.settings.controllers {
                self.tenants.observe(&key, old.as_deref(), new.as_deref());
            }
        }
        self.changes.push(Change { key, old, new });
    }

    /// The changes since the last call, oldest first.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Sets a timer of this cluster.
    pub fn after(&mut self, delay: Duration, timer: Timer) {
        self.timers.push((delay, timer));
    }

    /// The timers that were set since the last call.
    pub fn take_timers(&mut self) -> Vec<(Duration, Timer)> {
        std::mem::take(&mut self.timers)
    }

    /// Forgets old changes of the log, and does so again as long as there are some.
    pub fn trim(&mut self) {
        let limit = self.clock.now().saturating_sub(LOG_AGE).unwrap_or(Timestamp::MIN);
        self.trimming = self.store.trim(limit);
        if self.trimming {
            self.after(LOG_AGE.unsigned_abs(), Timer::Trim);
        }
    }

    /// The served kinds, built-in ones first.
    pub fn kinds(&self) -> impl Iterator<Item = &Arc<ServedKind>> {
        BUILT_INS.iter().chain(&self.custom)
    }

    pub fn kind(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ServedKind>> {
        self.kinds().find(|k| k.group == group && k.version == version && k.plural == plural)
    }

    /// The kind under which objects of a stored resource are known (its first version).
    pub fn kind_of(&self, resource: &str) -> Option<&Arc<ServedKind>> {
        self.kinds().find(|k| &*k.resource == resource)
    }
}
