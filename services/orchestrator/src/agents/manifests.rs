//! The objects of an agent, from the manifests of `deploy/`, which users without Drover apply by hand.

use std::collections::BTreeMap;

use drover_api::agents::AgentOrder;
use drover_api::scheduling::MemberKey;
use drover_manifest::{Limits, yaml};
use drover_members::labels::SERVING_AFTER;
use serde_json::{Value, json};

/// Where agents run.
pub const NAMESPACE: &str = "kube-system";

/// The manifests of an agent and the workload that its settings are for.
struct Source {
    files: &'static [&'static str],
    workload: (&'static str, &'static str),
    defaults: &'static [(&'static str, &'static str)],
}

const AUTOSCALER: Source = Source {
    files: &[
        include_str!("../../../../deploy/autoscaler/crd.yaml"),
        include_str!("../../../../deploy/autoscaler/rbac.yaml"),
        include_str!("../../../../deploy/autoscaler/agent.yaml"),
        include_str!("../../../../deploy/autoscaler/activator.yaml"),
    ],
    workload: ("Deployment", "drover-autoscaler"),
    defaults: &[],
};

const MEMORY_GUARD: Source = Source {
    files: &[include_str!("../../../../deploy/memory-guard/rbac.yaml"), include_str!("../../../../deploy/memory-guard/daemonset.yaml")],
    workload: ("DaemonSet", "drover-memory-guard"),
    defaults: &[],
};

fn source(agent: &str) -> Option<&'static Source> {
    match agent {
        "autoscaler" => Some(&AUTOSCALER),
        "memory-guard" => Some(&MEMORY_GUARD),
        _ => None,
    }
}

/// The objects of an agent in a cluster.
///
/// # Errors
/// There is no such agent.
pub fn of(agent: &str, order: &AgentOrder, member: &MemberKey) -> Result<Vec<Value>, String> {
    let source = source(agent).ok_or_else(|| format!("this version knows no agent {agent}"))?;
    let image = format!("{}:{}", order.image, order.version);
    let mut settings: BTreeMap<&str, &str> = source.defaults.iter().copied().collect();
    let own = order.members.get(&member.0);
    for (key, value) in order.settings.iter().chain(own.into_iter().flatten()) {
        settings.insert(key, value);
    }
    let mut objects = Vec::new();
    for file in source.files {
        let documents = yaml::documents_within(file, Limits::MANIFESTS).map_err(|error| error.to_string())?;
        objects.extend(documents.into_iter().map(|document| document.value).filter(|value| !value.is_null()));
    }
    for object in &mut objects {
        let workload = (object["kind"].as_str().unwrap_or_default(), object["metadata"]["name"].as_str().unwrap_or_default());
        let configured = workload == source.workload;
        if !object["spec"]["template"]["spec"]["containers"].is_array() {
            continue;
        }
        if order.healthy_seconds > 0 {
            object["metadata"]["annotations"][SERVING_AFTER] = json!(format!("{}s", order.healthy_seconds));
        }
        let template = &mut object["spec"]["template"];
        for (key, value) in &order.pod_annotations {
            template["metadata"]["annotations"][key] = json!(value);
        }
        for container in template["spec"]["containers"].as_array_mut().into_iter().flatten() {
            container["image"] = json!(image);
            if configured {
                set_environment(container, &settings);
            }
        }
    }
    Ok(objects)
}

/// Sets environment variables of a container; those of the manifest with the same names give way.
fn set_environment(container: &mut Value, settings: &BTreeMap<&str, &str>) {
    if settings.is_empty() {
        return;
    }
    if !container["env"].is_array() {
        container["env"] = json!([]);
    }
    let Some(environment) = container["env"].as_array_mut() else { return };
    environment.retain(|variable| !variable["name"].as_str().is_some_and(|name| settings.contains_key(name)));
    environment.extend(settings.iter().map(|(name, value)| json!({"name": name, "value": value})));
}

#[cfg(test)]
mod tests {
    use drover_api::agents::AgentPlace;

    use super::*;

    fn order() -> AgentOrder {
        AgentOrder {
            version: "1.2".into(),
            image: "registry/drover".into(),
            on: vec![AgentPlace::default()],
            healthy_seconds: 5,
            ..AgentOrder::default()
        }
    }

    fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
        objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name).unwrap()
    }

    #[test]
    fn autoscaler_has_its_definition_two_replicas_and_the_image_of_the_order() {
        let objects = of("autoscaler", &order(), &MemberKey::new("onprem", "a")).unwrap();
        find(&objects, "CustomResourceDefinition", "scalingpolicies.drover.io");
        let agent = find(&objects, "Deployment", "drover-autoscaler");
        assert_eq!(agent["spec"]["replicas"], 2);
        assert_eq!(agent["metadata"]["annotations"][SERVING_AFTER], "5s");
        for workload in objects.iter().filter(|object| object["kind"] == "Deployment") {
            assert_eq!(workload["spec"]["template"]["spec"]["containers"][0]["image"], "registry/drover:1.2");
        }
    }

    #[test]
    fn settings_of_a_cluster_come_before_those_of_all() {
        let mut order = order();
        order.settings = [("A".into(), "all".into()), ("AUTOSCALER_ADVERTISE".into(), "none".into())].into();
        order.members = [("onprem+a".into(), [("A".into(), "own".into())].into())].into();
        let environment = |member: &str| {
            let objects = of("autoscaler", &order, &MemberKey::new("onprem", member)).unwrap();
            let agent = find(&objects, "Deployment", "drover-autoscaler");
            let variables = agent["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap().clone();
            let value = |name: &str| variables.iter().filter(|one| one["name"] == name).map(|one| one["value"].clone()).collect::<Vec<_>>();
            (value("A"), value("AUTOSCALER_ADVERTISE"))
        };
        assert_eq!(environment("a"), (vec![json!("own")], vec![json!("none")]));
        assert_eq!(environment("b"), (vec![json!("all")], vec![json!("none")]));
    }

    #[test]
    fn memory_guard_runs_on_every_node_without_privileges() {
        let objects = of("memory-guard", &order(), &MemberKey::new("onprem", "a")).unwrap();
        let guard = find(&objects, "DaemonSet", "drover-memory-guard");
        let pod = &guard["spec"]["template"]["spec"];
        assert!(pod.get("hostPID").is_none() && pod.get("hostNetwork").is_none() && pod.get("hostIPC").is_none());
        for container in pod["containers"].as_array().unwrap() {
            let security = &container["securityContext"];
            assert_eq!((&security["privileged"], &security["allowPrivilegeEscalation"]), (&Value::Null, &json!(false)));
            assert_eq!((&security["capabilities"]["drop"], &security["capabilities"]["add"]), (&json!(["ALL"]), &Value::Null));
        }
        assert!(of("other", &order(), &MemberKey::new("onprem", "a")).is_err());
    }
}
