//! Small controllers.

use serde_json::{Value, json};

use super::common::{put_status, share};
use crate::key::Key;
use crate::object::{self, list, number, text};
use crate::selectors::Labels;
use crate::state::ClusterState;

/// Binds every claim at once, to a volume that exists by name only.
pub fn bind_claim(state: &mut ClusterState, key: &Key, claim: &Value) {
    if text(claim, "/status/phase") == "Bound" {
        return;
    }
    let mut new = claim.clone();
    if text(claim, "/spec/volumeName").is_empty() {
        new["spec"]["volumeName"] = json!(format!("pvc-{}", object::uid(claim)));
    }
    new["status"] = json!({"phase": "Bound", "accessModes": claim["spec"]["accessModes"],
        "capacity": claim["spec"]["resources"]["requests"]});
    state.put(key.clone(), new);
}

/// Accepts and establishes a CustomResourceDefinition.
pub fn establish(state: &mut ClusterState, key: &Key, definition: &Value) {
    if object::condition_is_true(definition, "Established") {
        return;
    }
    let now = state.clock.stamp();
    let mut conditions = Vec::new();
    for (kind, reason, message) in [
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ] {
        object::set_condition(&mut conditions, json!({"type": kind, "status": "True", "reason": reason, "message": message}), &now, false);
    }
    let stored: Vec<&Value> = list(definition, "/spec/versions").iter().filter(|v| v["storage"] == true).map(|v| &v["name"]).collect();
    let status = json!({"conditions": conditions, "acceptedNames": definition["spec"]["names"], "storedVersions": stored});
    put_status(state, key, definition, status);
}

/// Sets the status of a PodDisruptionBudget.
pub fn disruption(state: &mut ClusterState, key: &Key, budget: &Value) {
    let labels = Labels::of(&budget["spec"]["selector"]);
    let pods = "pods".into();
    let (mut expected, mut healthy) = (0, 0);
    for (_, pod) in state.store.list(&pods, &key.namespace).filter(|(_, pod)| labels.matches(pod) && object::pod_active(pod)) {
        expected += 1;
        healthy += i64::from(object::pod_ready(&pod));
    }
    let desired = match (budget["spec"].get("minAvailable"), budget["spec"].get("maxUnavailable")) {
        (Some(min), _) => share(min, expected, true),
        (None, Some(max)) => (expected - share(max, expected, true)).max(0),
        (None, None) => 0,
    };
    let status = json!({"observedGeneration": number(budget, "/metadata/generation").unwrap_or(0), "expectedPods": expected,
        "currentHealthy": healthy, "desiredHealthy": desired, "disruptionsAllowed": (healthy - desired).max(0)});
    put_status(state, key, budget, status);
}
