//! Hardware intents: what the containers of a workload request, and which nodes its pods accept. Placement reads both from the objects, so
//! a cluster without such nodes has no room for the app.

use drover_resources::{TypedDocument, children};
use serde_json::{Value, json};
use sqlx::PgConnection;

use super::change;
use crate::app::Error;
use crate::resources::controllers::hpa::{HPA_CONSUMER, HPA_REQUIREMENT, HpaConsumerSpec, HpaIntentSpec, HpaRequirementSpec, HpaResource};

/// What a workload of an app needs.
#[derive(Clone, Debug)]
pub struct Needs {
    pub app: String,
    /// How the document is named to people.
    name: String,
    consumer: HpaConsumerSpec,
    requirements: Vec<HpaRequirementSpec>,
}

/// Reads what the workloads of a hardware intent need.
pub(super) async fn of(tx: &mut PgConnection, intent: &TypedDocument<HpaIntentSpec>) -> Result<Vec<Needs>, Error> {
    let mut needs = Vec::new();
    for consumer in children::<HpaConsumerSpec>(&mut *tx, &HPA_CONSUMER, intent.id).await? {
        let requirements = children::<HpaRequirementSpec>(&mut *tx, &HPA_REQUIREMENT, consumer.id).await?;
        needs.push(Needs {
            app: intent.spec.app.clone(),
            name: consumer.name,
            consumer: consumer.spec,
            requirements: requirements.into_iter().map(|requirement| requirement.spec).collect(),
        });
    }
    Ok(needs)
}

impl Needs {
    /// Writes the needs into the workload.
    pub(super) fn carry_out(&self, objects: &mut [Value]) -> Result<(), String> {
        let HpaConsumerSpec { name, container, replicas, .. } = &self.consumer;
        let kind = self.consumer.kind.as_deref().filter(|kind| !kind.is_empty()).unwrap_or("Deployment");
        let workload = objects
            .iter_mut()
            .find(|object| object["kind"] == kind && object["metadata"]["name"] == name.as_str())
            .ok_or_else(|| format!("{}: the app has no {kind} {name}", self.name))?;
        if let Some(replicas) = replicas {
            workload["spec"]["replicas"] = json!(replicas);
        }
        let pod = match kind {
            "Pod" => "/spec",
            "CronJob" => "/spec/jobTemplate/spec/template/spec",
            _ => "/spec/template/spec",
        };
        let pod = workload.pointer_mut(pod).ok_or_else(|| format!("{}: {kind} {name} has no pods", self.name))?;
        for requirement in &self.requirements {
            let HpaResource { key, value, .. } = &requirement.resource;
            if requirement.allocatable {
                change::merge(
                    contained(pod, container.as_deref()).map_err(|reason| format!("{}: {reason}", self.name))?,
                    &requested(&requirement.resource),
                );
            } else {
                change::merge(pod, &json!({"nodeSelector": {key.clone().unwrap_or_default(): value}}));
            }
        }
        Ok(())
    }
}

/// The container of this name; without a name the first.
fn contained<'a>(pod: &'a mut Value, name: Option<&str>) -> Result<&'a mut Value, String> {
    let name = name.filter(|name| !name.is_empty());
    let containers = pod["containers"].as_array_mut().into_iter().flatten();
    let mut named = containers.filter(|container| name.is_none_or(|name| container["name"] == name));
    named.next().ok_or_else(|| format!("its pods have no container {}", name.unwrap_or_default()))
}

/// Requests and limits. An extended resource needs a limit that is equal to the request.
fn requested(resource: &HpaResource) -> Value {
    let name = resource.name.as_deref().unwrap_or_default();
    let unit = match (name, resource.units.as_deref().unwrap_or_default()) {
        ("memory", "" | "M" | "MB") => "M",
        ("memory", "K" | "KB") => "k",
        ("memory", "G" | "GB") => "G",
        (_, unit @ ("m" | "k" | "M" | "G" | "Ki" | "Mi" | "Gi")) => unit,
        _ => "",
    };
    let amount = |number: i64| format!("{number}{unit}");
    let requests = resource.requests.unwrap_or_default();
    let limit = resource.limits.filter(|limit| *limit > 0).or_else(|| name.contains('/').then_some(requests));
    let mut resources = json!({"requests": {name: amount(requests)}});
    if let Some(limit) = limit {
        resources["limits"] = json!({name: amount(limit)});
    }
    json!({"resources": resources})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirement(spec: Value) -> HpaRequirementSpec {
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn needs_become_requests_of_the_container_and_labels_of_nodes() {
        let pod = json!({"containers": [
            {"name": "side", "image": "i"}, {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}]});
        let mut objects = vec![json!({"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"template": {"spec": pod}}})];
        let needs = Needs {
            app: "web".into(),
            name: "consumer".into(),
            consumer: HpaConsumerSpec { name: "web".into(), container: Some("main".into()), replicas: Some(2), ..Default::default() },
            requirements: vec![
                requirement(json!({"allocatable": true, "resource": {"name": "memory", "requests": 512, "limits": 1024, "units": "MB"}})),
                requirement(json!({"allocatable": true, "resource": {"name": "intel.com/qat", "requests": 2}})),
                requirement(
                    json!({"allocatable": false, "resource": {"key": "feature.node.kubernetes.io/cpu-cpuid.AVX", "value": "true"}}),
                ),
            ],
        };
        needs.carry_out(&mut objects).unwrap();
        let pod = &objects[0]["spec"]["template"]["spec"];
        assert_eq!(
            pod["containers"][1]["resources"],
            json!({"requests": {"cpu": "1", "memory": "512M", "intel.com/qat": "2"}, "limits": {"memory": "1024M", "intel.com/qat": "2"}})
        );
        assert_eq!(pod["containers"][0].get("resources"), None);
        assert_eq!(pod["nodeSelector"], json!({"feature.node.kubernetes.io/cpu-cpuid.AVX": "true"}));
        assert_eq!(objects[0]["spec"]["replicas"], 2);
    }

    #[test]
    fn missing_workload_or_container_is_an_error() {
        let mut objects =
            vec![json!({"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"template": {"spec": {"containers": []}}}})];
        let needs = |name: &str| Needs {
            app: "web".into(),
            name: "consumer".into(),
            consumer: HpaConsumerSpec { name: name.into(), container: Some("main".into()), ..Default::default() },
            requirements: vec![requirement(json!({"allocatable": true, "resource": {"name": "cpu", "requests": 1}}))],
        };
        assert_eq!(needs("db").carry_out(&mut objects).unwrap_err(), "consumer: the app has no Deployment db");
        assert_eq!(needs("web").carry_out(&mut objects).unwrap_err(), "consumer: its pods have no container main");
    }
}
