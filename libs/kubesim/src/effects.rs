//! What tests ask about the past: the journal of every write, and recorders of how many pods were ready.
//!
//! The journal has the uid of each object, so that a test can assert "created exactly once"; it is never shortened.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde_json::Value;

use crate::key::Key;
use crate::object;
use crate::selectors::Labels;

/// What was done to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// It was created.
    Create,
    /// It was changed.
    Update,
    /// It was deleted.
    Delete,
}

/// One write that took effect.
#[derive(Debug, Clone)]
pub struct Effect {
    /// When, by the cluster's clock.
    pub at: Timestamp,
    /// Create, update or delete.
    pub operation: Operation,
    /// The address of the object.
    pub key: Key,
    /// Its uid; an object that is created again has another one.
    pub uid: Arc<str>,
    /// The revision of this write.
    pub revision: u64,
}

/// Counts ready pods with certain labels over all clusters; minimum and maximum are those since it was armed.
#[derive(Debug, Clone)]
pub struct ReadyRecorder(Arc<Mutex<Count>>);

#[derive(Debug)]
struct Count {
    namespace: Option<String>,
    labels: Labels,
    now: i64,
    min: i64,
    max: i64,
}

impl ReadyRecorder {
    pub(crate) fn new(namespace: Option<String>, labels: Labels) -> Self {
        Self(Arc::new(Mutex::new(Count { namespace, labels, now: 0, min: 0, max: 0 })))
    }

    fn with<T>(&self, f: impl FnOnce(&mut Count) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn observe(&self, old: Option<&Value>, new: Option<&Value>) {
        self.with(|count| {
            let counts = |pod: &Value| {
                object::pod_ready(pod)
                    && count.namespace.as_ref().is_none_or(|ns| ns == object::namespace(pod))
                    && count.labels.matches(pod)
            };
            count.now += i64::from(new.is_some_and(counts)) - i64::from(old.is_some_and(counts));
            count.min = count.min.min(count.now);
            count.max = count.max.max(count.now);
        });
    }

    /// Starts minimum and maximum anew.
    pub fn arm(&self) {
        self.with(|count| (count.min, count.max) = (count.now, count.now));
    }

    /// How many pods are ready now.
    pub fn now(&self) -> i64 {
        self.with(|count| count.now)
    }

    /// The fewest ready pods since it was armed.
    pub fn min(&self) -> i64 {
        self.with(|count| count.min)
    }

    /// The most ready pods since it was armed.
    pub fn max(&self) -> i64 {
        self.with(|count| count.max)
    }
}
