//! What a pod requests, all in all.
//!
//! Pure: a pod's spec (or its template's) in, amounts out. Invariant: never less than the member's scheduler counts.

use std::collections::BTreeMap;

use drover_scheduling::Amounts;
use serde::Deserialize;

use crate::quantity::amounts;

/// Effective requests of a pod, as the scheduler counts them: the containers' sum and the sidecars (init containers with
/// `restartPolicy: Always`), or the largest single init container beside the sidecars started before it, whichever is
/// more; pod-level requests replace the sum; overhead comes on top. `pods` is 1.
pub fn effective_requests(spec: &PodSpec) -> Amounts {
    let mut running = Amounts::default();
    for container in &spec.containers {
        running.add(&container.resources.requested(), 1);
    }
    let (mut sidecars, mut highest) = (Amounts::default(), Amounts::default());
    for container in &spec.init_containers {
        let mut now = container.resources.requested();
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars.add(&now, 1);
            now = sidecars.clone();
        } else {
            now.add(&sidecars, 1);
        }
        raise(&mut highest, &now);
    }
    running.add(&sidecars, 1);
    raise(&mut running, &highest);
    if let Some(resources) = &spec.resources {
        let whole = resources.requested();
        let declares = |name| resources.requests.contains_key(name) || resources.limits.contains_key(name);
        running.cpu = if declares("cpu") { whole.cpu } else { running.cpu };
        running.memory = if declares("memory") { whole.memory } else { running.memory };
        running.extra.extend(whole.extra);
    }
    running.add(&amounts(&spec.overhead).unwrap_or_default(), 1);
    running.pods = 1;
    running
}

fn raise(to: &mut Amounts, at_least: &Amounts) {
    to.cpu = to.cpu.max(at_least.cpu);
    to.memory = to.memory.max(at_least.memory);
    for (name, amount) in &at_least.extra {
        let entry = to.extra.entry(name.clone()).or_default();
        *entry = (*entry).max(*amount);
    }
}

/// The part of a pod's spec that counts; also read from a pod template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    pub(crate) node_name: Option<String>,
    pub(crate) containers: Vec<Container>,
    init_containers: Vec<Container>,
    overhead: BTreeMap<String, String>,
    resources: Option<Resources>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Container {
    pub(crate) image: String,
    restart_policy: Option<String>,
    resources: Resources,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: BTreeMap<String, String>,
    limits: BTreeMap<String, String>,
}

impl Resources {
    /// A limit without a request is a request too.
    fn requested(&self) -> Amounts {
        let mut all = self.limits.clone();
        all.extend(self.requests.clone());
        amounts(&all).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn requests(spec: Value) -> (i64, i64) {
        let requests = effective_requests(&serde_json::from_value(spec).unwrap());
        assert_eq!(requests.pods, 1);
        (requests.cpu, requests.memory)
    }
    fn asks(cpu: &str) -> Value {
        json!({"resources": {"requests": {"cpu": cpu}}})
    }

    #[test]
    fn requests_are_effective() {
        assert_eq!(requests(json!({"containers": [asks("1"), asks("250m")]})), (1250, 0));
        // An init container is over before the rest starts: the larger counts.
        assert_eq!(requests(json!({"containers": [asks("1")], "initContainers": [asks("3")]})), (3000, 0));
        // A sidecar stays: beside the containers, and beside the init containers that come after it.
        let sidecar = json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}});
        assert_eq!(requests(json!({"containers": [asks("1")], "initContainers": [sidecar, asks("2")]})), (2500, 0));
        assert_eq!(requests(json!({"containers": [asks("1")], "initContainers": [asks("1200m"), sidecar]})), (1500, 0));
        assert_eq!(requests(json!({"containers": [asks("1")], "overhead": {"cpu": "100m", "memory": "1Mi"}})), (1100, 1 << 20));
        assert_eq!(requests(json!({"containers": [{"resources": {"limits": {"memory": "1Ki"}}}]})), (0, 1024));
        assert_eq!(requests(json!({"containers": [asks("1")], "resources": {"requests": {"cpu": "2"}}})), (2000, 0));
    }
}
