//! Functions that several controllers use.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::key::Key;
use crate::object::{self, condition, list, number, text};
use crate::state::ClusterState;
use crate::timers::Timer;

/// Objects of one kind.
pub type Objects = Vec<(Key, Arc<Value>)>;

/// Objects of a resource whose controller is `owner`.
pub fn owned(state: &ClusterState, owner: &Value, resource: &str) -> Vec<(Key, Arc<Value>)> {
    let uid = object::uid(owner);
    state
        .store
        .dependents(uid)
        .filter(|(key, _)| &*key.resource == resource)
        .filter(|(_, object)| list(object, "/metadata/ownerReferences").iter().any(|o| o["uid"] == uid && o["controller"] == true))
        .map(|(key, object)| (key.clone(), object.clone()))
        .collect()
}

/// Writes a status if it differs.
pub fn put_status(state: &mut ClusterState, key: &Key, old: &Value, status: Value) {
    if old.get("status") != Some(&status) {
        let mut new = old.clone();
        new["status"] = status;
        state.put(key.clone(), new);
    }
}

/// A pod from a template, without name and owner.
pub fn pod_of(template: &Value) -> Value {
    let meta: Map<String, Value> = ["labels", "annotations", "finalizers"]
        .iter()
        .filter_map(|field| Some(((*field).to_string(), template["metadata"].get(*field)?.clone())))
        .collect();
    json!({"metadata": meta, "spec": template["spec"], "status": {"phase": "Pending"}})
}

/// `Ok` if the pod has been ready for `min_ready` seconds; otherwise the remaining time, or `None` if it is not ready.
pub fn available(state: &ClusterState, pod: &Value, min_ready: i64) -> Result<(), Option<Duration>> {
    if !object::pod_ready(pod) {
        return Err(None);
    }
    if min_ready <= 0 {
        return Ok(());
    }
    let since: Option<jiff::Timestamp> = condition(pod, "Ready").and_then(|c| text(c, "/lastTransitionTime").parse().ok());
    let left = since.map_or(0, |since| since.as_second() + min_ready - state.clock.now().as_second());
    if left <= 0 { Ok(()) } else { Err(Some(Duration::from_secs(left.unsigned_abs()))) }
}

/// Counts the pods of an owner. Sets a timer if one becomes available without another change.
pub struct PodCount {
    pub replicas: i64,
    pub ready: i64,
    pub available: i64,
}

pub fn count<'a>(state: &mut ClusterState, key: &Key, pods: impl Iterator<Item = &'a Arc<Value>>, min_ready: i64) -> PodCount {
    let (mut count, mut soonest) = (PodCount { replicas: 0, ready: 0, available: 0 }, None::<Duration>);
    for pod in pods {
        count.replicas += 1;
        count.ready += i64::from(object::pod_ready(pod));
        match available(state, pod, min_ready) {
            Ok(()) => count.available += 1,
            Err(Some(left)) => soonest = Some(soonest.map_or(left, |s| s.min(left))),
            Err(None) => {}
        }
    }
    if let Some(left) = soonest {
        state.after(left, Timer::Revisit(key.clone()));
    }
    count
}

/// A hash of a template in ten characters.
pub fn template_hash(template: &Value) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    template.to_string().hash(&mut hasher);
    format!("{:010x}", hasher.finish() & 0xff_ffff_ffff)
}

/// The number that `25%` or `3` means for a total.
pub fn share(value: &Value, total: i64, round_up: bool) -> i64 {
    match value {
        Value::Number(number) => number.as_i64().unwrap_or(0),
        Value::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            let product = percent * total;
            if round_up { (product + 99) / 100 } else { product / 100 }
        }
        _ => 0,
    }
}

pub fn replicas(object: &Value) -> i64 {
    number(object, "/spec/replicas").unwrap_or(1)
}

pub fn generation(object: &Value) -> i64 {
    number(object, "/metadata/generation").unwrap_or(0)
}

/// A status object without zeros, which Go omits.
pub fn without_zeros(fields: &[(&str, i64)]) -> Map<String, Value> {
    fields.iter().filter(|(_, value)| *value != 0).map(|(name, value)| ((*name).to_string(), json!(value))).collect()
}
