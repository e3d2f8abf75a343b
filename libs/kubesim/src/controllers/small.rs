//! Controllers that set a status and nothing else: of CustomResourceDefinitions, of aggregated APIs, and of PodDisruptionBudgets.

use std::time::Duration;

use serde_json::{Value, json};

use super::common::{put_status, share};
use crate::key::Key;
use crate::object::{self, list, map, number, text};
use crate::selectors::Labels;
use crate::state::ClusterState;
use crate::timers::Timer;

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

/// How often an aggregated API is checked that is not available yet.
const CHECKED: Duration = Duration::from_millis(500);

/// Marks an aggregated API as available once a pod of its Service is ready. Nothing asks that pod, so the API itself is not served.
pub fn aggregate(state: &mut ClusterState, key: &Key, service: &Value) {
    if object::condition_is_true(service, "Available") {
        return;
    }
    let (namespace, name) = (text(service, "/spec/service/namespace"), text(service, "/spec/service/name"));
    let (services, pods) = ("services".into(), "pods".into());
    let available = match state.store.get(&Key::new(&services, namespace, name)) {
        _ if name.is_empty() => Ok("Local"),
        None => Err(("ServiceNotFound", format!("service/{name} in \"{namespace}\" is not present"))),
        Some(found) => {
            let wanted: Vec<(&String, &Value)> = map(&found, "/spec/selector").into_iter().flatten().collect();
            let has = |pod: &Value| wanted.iter().all(|(label, value)| pod["metadata"]["labels"][label.as_str()] == **value);
            match state.store.list(&pods, namespace).any(|(_, pod)| has(&pod) && object::pod_ready(&pod)) {
                true => Ok("Passed"),
                false => Err(("MissingEndpoints", format!("endpoints for service/{name} in \"{namespace}\" have no addresses"))),
            }
        }
    };
    let (status, reason, message) = match available {
        Ok(reason) => ("True", reason, "all checks passed".to_owned()),
        Err((reason, message)) => ("False", reason, message),
    };
    if status == "False" {
        state.after(CHECKED, Timer::Revisit(key.clone()));
    }
    let mut conditions = list(service, "/status/conditions").to_vec();
    let condition = json!({"type": "Available", "status": status, "reason": reason, "message": message});
    object::set_condition(&mut conditions, condition, &state.clock.stamp(), false);
    put_status(state, key, service, json!({"conditions": conditions}));
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
