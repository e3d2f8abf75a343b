//! One simulated cluster: its state behind a lock, and the doors through which requests, timers and tests reach it.
//!
//! Whoever changes the state does so inside [`Cluster::with`]; when it returns, watches are woken, and work that the
//! change made for controllers is put on the heap. No task belongs to a cluster.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::effects::ReadyRecorder;
use crate::faults::Faults;
use crate::kinds::{BUILT_INS, Kind};
use crate::store::{Key, Store};
use crate::timers::{Timer, Timers};
use crate::{controllers, kubelet, object, scheduler};

/// How long a change stays in the log that watches read, as long as there is room.
const LOG_AGE: SignedDuration = SignedDuration::from_secs(60);

/// A cluster.
pub struct Cluster {
    pub faults: Faults,
    pub token: Mutex<String>,
    /// Requests without a token are served.
    pub anonymous: bool,
    state: Mutex<State>,
    revision: watch::Sender<u64>,
    timers: Arc<Timers>,
    me: Weak<Cluster>,
}

/// What a cluster knows.
pub struct State {
    pub store: Store,
    pub settings: Settings,
    /// Kinds of CustomResourceDefinitions.
    pub custom: Vec<Arc<Kind>>,
    pub clock: Clock,
    pub recorders: Vec<ReadyRecorder>,
    /// Nodes that were lost: their kubelet does nothing.
    pub lost: BTreeSet<String>,
    /// Taken from the end: replica sets before the deployments that count them.
    queue: BTreeSet<Key>,
    orphans: Vec<String>,
    schedule: bool,
    pub tenants: scheduler::Tenants,
    outbox: Vec<(Duration, Timer)>,
    armed: bool,
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
}

/// The time of a cluster: tokio's, so that it follows a paused runtime, plus a skew.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Timestamp,
    zero: Instant,
    pub skew: SignedDuration,
}

impl Clock {
    pub fn new() -> Self {
        Self { start: Timestamp::now(), zero: Instant::now(), skew: SignedDuration::ZERO }
    }

    pub fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.zero.elapsed()).unwrap_or(SignedDuration::MAX);
        self.start.saturating_add(elapsed.saturating_add(self.skew)).unwrap_or(Timestamp::MAX)
    }

    /// As objects carry it: RFC 3339 in whole seconds.
    pub fn stamp(&self) -> String {
        stamp(self.now())
    }
}

/// RFC 3339 in whole seconds.
pub fn stamp(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl Cluster {
    pub fn new(token: String, anonymous: bool, settings: Settings, clock: Clock, timers: Arc<Timers>) -> Arc<Self> {
        let state = State {
            store: Store::new(settings.log, settings.journal),
            settings,
            custom: Vec::new(),
            clock,
            recorders: Vec::new(),
            lost: BTreeSet::new(),
            queue: BTreeSet::new(),
            orphans: Vec::new(),
            schedule: false,
            tenants: scheduler::Tenants::default(),
            outbox: Vec::new(),
            armed: false,
            trimming: false,
        };
        Arc::new_cyclic(|me| Self {
            faults: Faults::default(),
            token: Mutex::new(token),
            anonymous,
            state: Mutex::new(state),
            revision: watch::Sender::new(1),
            timers,
            me: me.clone(),
        })
    }

    /// Runs `f` on the state, alone, then wakes who waits for it.
    pub fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let out = f(&mut state);
        if state.has_work() && !state.armed {
            state.armed = true;
            let delay = state.settings.controller_delay;
            state.outbox.push((delay, Timer::Reconcile));
        }
        let outbox = std::mem::take(&mut state.outbox);
        let revision = state.store.revision();
        drop(state);
        for (delay, timer) in outbox {
            self.timers.add(self.me.clone(), delay, timer);
        }
        self.revision.send_if_modified(|known| std::mem::replace(known, revision) != revision);
        out
    }

    /// Changes whenever the cluster does.
    pub fn revisions(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    pub fn fire(&self, timer: Timer) {
        self.with(|state| match timer {
            Timer::Reconcile => state.reconcile(),
            Timer::Revisit(key) => state.enqueue(key),
            Timer::Pod { key, uid, step } => kubelet::step(state, &key, &uid, step),
            Timer::Trim => {
                let limit = state.clock.now().saturating_sub(LOG_AGE).unwrap_or(Timestamp::MIN);
                state.trimming = state.store.trim(limit);
                if state.trimming {
                    state.after(LOG_AGE.unsigned_abs(), Timer::Trim);
                }
            }
        });
    }
}

impl State {
    /// Writes an object and tells everyone concerned.
    pub fn put(&mut self, key: Key, object: Value) -> Arc<Value> {
        let old = self.store.get(&key);
        let new = self.store.put(key.clone(), object, self.clock.now());
        self.changed(&key, old.as_ref(), Some(&new));
        new
    }

    /// Removes an object and tells everyone concerned.
    pub fn remove(&mut self, key: &Key) -> Option<Arc<Value>> {
        let old = self.store.remove(key, self.clock.now())?;
        self.changed(key, Some(&old), None);
        Some(old)
    }

    fn changed(&mut self, key: &Key, old: Option<&Arc<Value>>, new: Option<&Arc<Value>>) {
        if !self.trimming {
            self.trimming = true;
            self.after(LOG_AGE.unsigned_abs() + Duration::from_secs(1), Timer::Trim);
        }
        let (old, new) = (old.map(|o| &**o), new.map(|n| &**n));
        if &*key.resource == "pods" {
            for recorder in &self.recorders {
                recorder.observe(old, new);
            }
        }
        controllers::definitions(self, key, new);
        if !self.settings.controllers {
            return;
        }
        if new.is_none()
            && let Some(uid) = old.map(object::uid)
        {
            if self.store.has_dependents(uid) {
                self.orphans.push(uid.into());
            }
            self.enqueue(Key::new(&"namespaces".into(), "", &key.namespace));
        }
        for object in [old, new].into_iter().flatten() {
            for owner in object::list(object, "/metadata/ownerReferences") {
                let uid = object::text(owner, "/uid");
                match self.store.key_of(uid).cloned() {
                    Some(owner) => self.enqueue(owner),
                    None if new.is_some() => self.orphans.push(uid.into()),
                    None => {}
                }
            }
        }
        self.enqueue(key.clone());
        controllers::concerned(self, key);
        kubelet::observe(self, key, old, new);
        if &*key.resource == "pods" {
            self.tenants.observe(key, old, new);
        }
        self.schedule |= scheduler::concerned(key, old, new);
    }

    /// A controller shall look at this object, if one is in charge of its kind.
    pub fn enqueue(&mut self, key: Key) {
        if self.settings.controllers && controllers::in_charge(&key.resource) {
            self.queue.insert(key);
        }
    }

    pub fn after(&mut self, delay: Duration, timer: Timer) {
        self.outbox.push((delay, timer));
    }

    fn has_work(&self) -> bool {
        !self.queue.is_empty() || !self.orphans.is_empty() || self.schedule
    }

    fn reconcile(&mut self) {
        self.armed = false;
        // Bounded, so that two controllers that disagree cannot hold the lock forever; what is left is armed again.
        for _ in 0..5_000 {
            if let Some(uid) = self.orphans.pop() {
                controllers::gc::collect(self, &uid);
            } else if let Some(key) = self.queue.pop_last() {
                controllers::reconcile(self, &key);
            } else if std::mem::take(&mut self.schedule) {
                scheduler::run(self);
            } else {
                return;
            }
        }
    }

    /// The served kinds, built-in ones first.
    pub fn kinds(&self) -> impl Iterator<Item = &Arc<Kind>> {
        BUILT_INS.iter().chain(&self.custom)
    }

    pub fn kind(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.kinds().find(|k| k.group == group && k.version == version && k.plural == plural)
    }

    /// The kind under which objects of a stored resource are known (its first version).
    pub fn kind_of(&self, resource: &str) -> Option<&Arc<Kind>> {
        self.kinds().find(|k| &*k.resource == resource)
    }
}
