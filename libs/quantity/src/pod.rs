//! What a pod asks of a node.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use crate::{NotAQuantity, Quantity, narrow, up};

/// The part of a pod's spec, or of its template's, that counts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Node it is bound to.
    pub node_name: Option<String>,
    /// Containers.
    #[serde(deserialize_with = "or_default")]
    pub containers: Vec<Container>,
    /// Init containers, sidecars among them.
    #[serde(deserialize_with = "or_default")]
    pub init_containers: Vec<Container>,
    /// What running it costs beside its containers.
    #[serde(deserialize_with = "or_default")]
    pub overhead: BTreeMap<String, Quantity>,
    /// Pod-level resources.
    pub resources: Option<Resources>,
}

/// A container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Its image.
    #[serde(deserialize_with = "or_default")]
    pub image: String,
    /// `Always` makes an init container a sidecar.
    pub restart_policy: Option<String>,
    /// What it asks for.
    #[serde(deserialize_with = "or_default")]
    pub resources: Resources,
}

/// Requests and limits.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// What it must have.
    #[serde(deserialize_with = "or_default")]
    pub requests: BTreeMap<String, Quantity>,
    /// What it may have at most.
    #[serde(deserialize_with = "or_default")]
    pub limits: BTreeMap<String, Quantity>,
}

/// Templates leave `resources: null` behind; Kubernetes takes it for nothing.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Resources {
    /// A limit without a request is a request too (the API server fills it in that way).
    fn requested(&self) -> Result<Requests, NotAQuantity> {
        let mut all = Requests::read(&self.limits)?;
        all.0.extend(Requests::read(&self.requests)?.0);
        Ok(all)
    }
}

impl PodSpec {
    /// Effective requests, as the scheduler counts them: the containers' sum and the sidecars (init containers with
    /// `restartPolicy: Always`), or the largest single init container beside the sidecars started before it, whichever is
    /// more; pod-level requests replace the sum; overhead comes on top.
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
    /// A resource list (`requests`, `allocatable`) of an object.
    pub fn read(list: &BTreeMap<String, Quantity>) -> Result<Self, NotAQuantity> {
        list.iter().map(|(name, quantity)| Ok((name.clone(), quantity.thousandths()?))).collect::<Result<_, _>>().map(Self)
    }

    /// Thousandths of a resource; nothing asked for is 0.
    pub fn thousandths(&self, resource: &str) -> i128 {
        self.0.get(resource).copied().unwrap_or_default()
    }

    /// The same as far as i64 goes.
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
        let whole = json!({"requests": {"cpu": "2"}, "limits": {"memory": 2048}});
        assert_eq!(requests(json!({"containers": [asks("1")], "resources": whole})), (2000, 2048));
        let nothing = json!({"image": null, "resources": {"requests": null}});
        assert_eq!(
            requests(json!({"containers": [asks("1"), nothing], "initContainers": null, "overhead": null, "resources": null})),
            (1000, 0)
        );
    }

    #[test]
    fn nonsense_is_told_not_counted() {
        let spec = PodSpec::deserialize(&json!({"containers": [asks("1"), asks("lots")]})).unwrap();
        assert_eq!(spec.requests(), Err(NotAQuantity("lots".to_owned())));
    }
}
