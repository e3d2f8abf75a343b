//! ResourceQuota: counts what a namespace uses and refuses pods that would exceed its quotas. Scopes are ignored.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::error::ApiError;
use crate::key::Key;
use crate::object::{self, list, map};
use crate::quantity;
use crate::state::ClusterState;

/// The resources that a pod uses of a quota: `pods`, `requests.cpu`, `limits.memory`, …, with `cpu` and `memory` as other names of requests.
fn usage(pod: &Value) -> BTreeMap<String, i128> {
    let mut sum = BTreeMap::from([("pods".to_string(), 1000), ("count/pods".to_string(), 1000)]);
    for container in list(pod, "/spec/containers") {
        for side in ["requests", "limits"] {
            for (resource, amount) in map(container, &format!("/resources/{side}")).into_iter().flatten() {
                let amount = quantity::of(amount);
                *sum.entry(format!("{side}.{resource}")).or_default() += amount;
                if side == "requests" {
                    *sum.entry(resource.clone()).or_default() += amount;
                }
            }
        }
    }
    sum
}

fn used(state: &ClusterState, namespace: &str) -> BTreeMap<String, i128> {
    let mut sum = BTreeMap::new();
    for (_, pod) in state.store.list(&"pods".into(), namespace).filter(|(_, pod)| !object::pod_finished(pod)) {
        for (resource, amount) in usage(&pod) {
            *sum.entry(resource).or_default() += amount;
        }
    }
    sum
}

/// Checks a pod against the quotas of its namespace.
///
/// # Errors
/// 403 when the pod would exceed a quota, or lacks an amount that the quota needs.
pub fn admit(state: &ClusterState, pod: &Value) -> Result<(), ApiError> {
    let namespace = object::namespace(pod);
    for (key, quota) in state.store.list(&"resourcequotas".into(), namespace) {
        let (used, wanted) = (used(state, namespace), usage(pod));
        let name = match object::name(pod) {
            "" => "unnamed",
            name => name,
        };
        for (resource, hard) in map(&quota, "/spec/hard").into_iter().flatten() {
            let tracked =
                resource.contains('.') && !resource.starts_with("count/") || matches!(resource.as_str(), "cpu" | "memory" | "pods");
            let Some(want) = wanted.get(resource) else {
                if tracked
                    && (resource.starts_with("requests.")
                        || resource.starts_with("limits.")
                        || matches!(resource.as_str(), "cpu" | "memory"))
                {
                    return Err(ApiError::forbidden(
                        "pods",
                        name,
                        format!(
                            "failed quota: {}: must specify {resource} for: {}",
                            key.name,
                            object::text(pod, "/spec/containers/0/name")
                        ),
                    ));
                }
                continue;
            };
            let have = used.get(resource).copied().unwrap_or(0);
            if have + want > quantity::of(hard) {
                return Err(ApiError::forbidden(
                    "pods",
                    name,
                    format!(
                        "exceeded quota: {}, requested: {resource}={}, used: {resource}={}, limited: {resource}={}",
                        key.name,
                        quantity::show(*want),
                        quantity::show(have),
                        hard.as_str().unwrap_or("")
                    ),
                ));
            }
        }
    }
    Ok(())
}

/// Sets the status of a quota.
pub fn reconcile(state: &mut ClusterState, key: &Key, quota: &Value) {
    let used = used(state, &key.namespace);
    let hard = map(quota, "/spec/hard").cloned().unwrap_or_default();
    let used: serde_json::Map<String, Value> =
        hard.keys().map(|r| (r.clone(), json!(quantity::show(used.get(r).copied().unwrap_or(0))))).collect();
    let mut new = quota.clone();
    new["status"] = json!({"hard": hard, "used": used});
    if new != *quota {
        state.put(key.clone(), new);
    }
}
