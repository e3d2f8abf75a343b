//! Counts what pods request on each node, and which pods wait for a node.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::key::Key;
use crate::object::{self, list, text};
use crate::pods::{Room, requests};

/// Updated with every change of a pod, so that a scheduling pass need not read all pods.
#[derive(Debug, Default)]
pub struct Tenants {
    /// What the pods on each node request.
    pub taken: BTreeMap<String, Room>,
    /// Pods that wait for a node.
    pub waiting: BTreeSet<Key>,
}

impl Tenants {
    /// Takes a change of a pod in.
    pub fn observe(&mut self, key: &Key, old: Option<&Value>, new: Option<&Value>) {
        let tenant = |pod: &&Value| !text(pod, "/spec/nodeName").is_empty() && !object::pod_finished(pod);
        let (before, after) = (old.filter(tenant), new.filter(tenant));
        let of = |pod: &Value| (text(pod, "/spec/nodeName").to_owned(), requests(pod));
        let (before, after) = (before.map(of), after.map(of));
        if before != after {
            if let Some((node, room)) = before {
                self.taken.entry(node).or_default().sub(room);
            }
            if let Some((node, room)) = after {
                self.taken.entry(node).or_default().add(room);
            }
        }
        let waits = |pod: &Value| {
            text(pod, "/spec/nodeName").is_empty()
                && matches!(text(pod, "/spec/schedulerName"), "" | "default-scheduler")
                && object::pod_active(pod)
                && list(pod, "/spec/schedulingGates").is_empty()
        };
        if new.is_some_and(waits) {
            self.waiting.insert(key.clone());
        } else {
            self.waiting.remove(key);
        }
    }
}
