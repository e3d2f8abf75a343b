//! The effective resource requests of a pod.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use crate::{NotAQuantity, Quantity, narrow, up};

/// The part of the spec of a pod, or of a pod template, that matters for its requests.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node that the pod is bound to.
    pub node_name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub containers: Vec<Container>,
    /// Init containers, sidecars included.
    #[serde(deserialize_with = "or_default")]
    pub init_containers: Vec<Container>,
    /// Resources that the pod itself takes, beside its containers.
    #[serde(deserialize_with = "or_default")]
    pub overhead: BTreeMap<String, Quantity>,
    /// Resources given for the pod as a whole.
    pub resources: Option<Resources>,
}

/// A container of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    #[serde(deserialize_with = "or_default")]
    pub image: String,
    /// `Always` makes an init container a sidecar.
    pub restart_policy: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub resources: Resources,
}

/// Requests and limits.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Resources {
    #[serde(deserialize_with = "or_default")]
    pub requests: BTreeMap<String, Quantity>,
    #[serde(deserialize_with = "or_default")]
    pub limits: BTreeMap<String, Quantity>,
}

/// Reads `null` as the default, as Kubernetes does: templates often leave `resources: null`.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Resources {
    /// Requests. A limit without a request counts as a request, because the API server sets it so.
    fn requested(&self) -> Result<Requests, NotAQuantity> {
        let mut all = Requests::read(&self.limits)?;
        all.0.extend(Requests::read(&self.requests)?.0);
        Ok(all)
    }
}

impl PodSpec {
    /// Effective requests, as the scheduler counts them: the containers' sum and the sidecars (init containers with
    /// `restartPolicy: Always`), or the largest single init container beside the sidecars started before it, whichever is
    /// more; pod-level requests replace the sum; the overhead is added.
    ///
    /// # Errors
    /// A quantity is malformed.
    pub fn requests(&self) -> Result<Requests, NotAQuantity> {
        let mut running = Requests::default();
        for container in &self.containers {
            running.add(&container.resources.requested()?);
        }
        let (mut sidecars, mut highest) = (Requests::default(), Requests::default());
        for container in &self.init_containers {
            let mut now = container.resources.requested()?;
            if container.restart_policy.as_deref() == Some("Always") {
                sidecars.add(&now);
                now = sidecars.clone();
            } else {
                now.add(&sidecars);
            }
            highest.raise(&now);
        }
        running.add(&sidecars);
        running.raise(&highest);
        if let Some(resources) = &self.resources {
            running.0.extend(resources.requested()?.0);
        }
        running.add(&Requests::read(&self.overhead)?);
        Ok(running)
    }
}

/// Amounts by resource, in thousandths of its unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests(BTreeMap<String, i128>);

impl Requests {
    /// The amounts of a resource list (`requests`, `allocatable`) of an object.
    ///
    /// # Errors
    /// A quantity is malformed.
    pub fn read(list: &BTreeMap<String, Quantity>) -> Result<Self, NotAQuantity> {
        list.iter().map(|(name, quantity)| Ok((name.clone(), quantity.thousandths()?))).collect::<Result<_, _>>().map(Self)
    }

    /// Thousandths of a resource; 0 if it is not in the list.
    pub fn thousandths(&self, resource: &str) -> i128 {
        self.0.get(resource).copied().unwrap_or_default()
    }

    /// As [`Requests::thousandths`], limited to the range of i64.
    pub fn milli(&self, resource: &str) -> i64 {
        narrow(self.thousandths(resource))
    }

    /// In whole units, rounded up.
    pub fn units(&self, resource: &str) -> i64 {
        narrow(up(self.thousandths(resource), 1000))
    }

    /// Names of the resources.
    pub fn resources(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    fn add(&mut self, more: &Self) {
        for (name, amount) in &more.0 {
            *self.0.entry(name.clone()).or_default() += amount;
        }
    }

    fn raise(&mut self, at_least: &Self) {
        for (name, amount) in &at_least.0 {
            let entry = self.0.entry(name.clone()).or_default();
            *entry = (*entry).max(*amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn requests(spec: Value) -> (i64, i64) {
        let requests = PodSpec::deserialize(&spec).unwrap().requests().unwrap();
        (requests.milli("cpu"), requests.units("memory"))
    }
    fn asks(cpu: &str) -> Value {
        json!({"resources": {"requests": {"cpu": cpu}}})
    }

    #[test]
    fn requests_are_those_that_the_scheduler_counts() {
        assert_eq!(requests(json!({"containers": [asks("1"), asks("250m")]})), (1250, 0));
        // An init container ends before the others start, so the larger of the two counts.
        assert_eq!(requests(json!({"containers": [asks("1")], "initContainers": [asks("3")]})), (3000, 0));
        // A sidecar keeps running beside the containers, and beside the init containers that come after it.
        let sidecar = json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}});
        assert_eq!(requests(json!({"containers": [asks("1")], "initContainers": [sidecar, asks("2")]})), (2500, 0));
        assert_eq!(requests(json!({"containers": [asks("1")], "initContainers": [asks("1200m"), sidecar]})), (1500, 0));
        assert_eq!(requests(json!({"containers": [asks("1")], "overhead": {"cpu": "100m", "memory": "1Mi"}})), (1100, 1 << 20));
        assert_eq!(requests(json!({"containers": [{"resources": {"limits": {"memory": "1Ki"}}}]})), (0, 1024));
        let whole = json!({"requests": {"cpu": "2"}, "limits": {"memory": 2048}});
        assert_eq!(requests(json!({"containers": [asks("1")], "resources": whole})), (2000, 2048));
        let nothing = json!({"image": null, "resources": {"requests": null}});
        assert_eq!(
            requests(json!({"containers": [asks("1"), nothing], "initContainers": null, "overhead": null, "resources": null})),
            (1000, 0)
        );
    }

    #[test]
    fn requests_with_a_malformed_quantity_are_an_error() {
        let spec = PodSpec::deserialize(&json!({"containers": [asks("1"), asks("lots")]})).unwrap();
        assert_eq!(spec.requests(), Err(NotAQuantity("lots".to_owned())));
    }
}
