//! Drover's own agents, pushed to all members through REST.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_e2e::apps::App;
use drover_e2e::emco::Group;
use drover_e2e::{System, scenario, succeeded};
use drover_testkit::eventually;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(240);

async fn set(system: &System, agent: &str, spec: Value) {
    let document = json!({"metadata": {"name": agent}, "spec": spec});
    system.client.put(&format!("/v2/agents/{agent}"), &document).await.unwrap();
}

async fn agent(system: &System, name: &str) -> Option<Value> {
    let list: Value = system.client.get("/v2/agent-copies").await.unwrap();
    list["items"].as_array().unwrap().iter().find(|agent| agent["name"] == name).cloned()
}

/// Waits until the rollout is in this state and every copy is healthy in this version.
async fn runs_everywhere(system: &System, name: &str, state: &str, version: &str) -> Value {
    let mut last = Value::Null;
    let reached = tokio::time::timeout(PATIENCE, async {
        loop {
            last = agent(system, name).await.unwrap_or_default();
            let copies = last["copies"].as_array().cloned().unwrap_or_default();
            let healthy = copies.iter().all(|copy| copy["state"] == "Healthy" && copy["version"] == version);
            if last["state"] == state && !copies.is_empty() && healthy {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    reached.await.unwrap_or_else(|_| panic!("{name} {version} is not {state} everywhere"));
    last
}

/// The image of the autoscaler in each member that has one.
async fn images(system: &System) -> BTreeMap<&'static str, String> {
    let mut images = BTreeMap::new();
    for member in system.members() {
        let api: Api<Deployment> = Api::namespaced(member.client.clone(), "kube-system");
        let found = api.get_opt("drover-autoscaler").await.unwrap().and_then(|deployment| deployment.spec?.template.spec);
        if let Some(image) = found.and_then(|pod| pod.containers.into_iter().next()?.image) {
            images.insert(member.name, image);
        }
    }
    images
}

async fn autoscaler_is_rolled_out_and_a_bad_version_goes_back(system: &System) {
    // The kit's pods obey these annotations: such a version never becomes ready.
    let spec = |version: &str, annotations: Value| {
        json!({"version": version, "image": "registry.example/drover", "on": [{}], "healthySeconds": 1, "podAnnotations": annotations,
            "settings": {"AUTOSCALER_LOG": "info"}})
    };
    set(system, "autoscaler", spec("1", json!({}))).await;
    let done = runs_everywhere(system, "autoscaler", "Done", "1").await;
    assert_eq!(done["copies"].as_array().unwrap().len(), 3, "{done:#}");
    let all = |version: &str| -> BTreeMap<&str, String> {
        ["private-a", "private-b", "public-c"].map(|name| (name, format!("registry.example/drover:{version}"))).into()
    };
    assert_eq!(images(system).await, all("1"));

    // The kind that its definition adds is served, and its room is claimed.
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("drover.io", "v1alpha1", "ScalingPolicy"));
    let policy: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "drover.io/v1alpha1", "kind": "ScalingPolicy", "metadata": {"name": "web"},
        "spec": {"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "policy": "kpa", "maxReplicas": 3}}))
    .unwrap();
    let policies: Api<DynamicObject> = Api::namespaced_with(system.member("private-a").client.clone(), "default", &resource);
    policies.create(&PostParams::default(), &policy).await.unwrap();
    policies.delete("web", &Default::default()).await.unwrap();
    let claims = system.claims().await.unwrap();
    let mut rooms: Vec<&str> = claims.iter().filter(|claim| claim.dig.is_agent()).map(|claim| claim.member.cluster()).collect();
    rooms.sort_unstable();
    assert_eq!(rooms, ["private-a", "private-b", "public-c"]);

    // A version that does not become ready in the first cluster reaches no other one, and that cluster goes back.
    set(system, "autoscaler", spec("2", json!({"kit/start-delay": "7200s", "kit/start-delay-max": "7200s"}))).await;
    let stopped = runs_everywhere(system, "autoscaler", "Stopped", "1").await;
    assert!(stopped["reason"].as_str().unwrap().starts_with("aws+public-c: "), "{stopped:#}");
    assert_eq!(images(system).await, all("1"));

    set(system, "autoscaler", spec("3", json!({}))).await;
    runs_everywhere(system, "autoscaler", "Done", "3").await;
    assert_eq!(images(system).await, all("3"));

    // A drain moves applications; the agents stay as long as the cluster does.
    let app = Group::new("web", App::new("web", 200)).on(&["onprem/private-a", "onprem/private-b"]).movable(1);
    succeeded(&app.deploy(&system.client).await.unwrap());
    let home = system.home("web").await;
    let plan =
        system.client.post("/v2/plans", Some(&json!({"kind": "drain", "clusterProvider": "onprem", "cluster": home}))).await.unwrap();
    assert!(plan.body["plan"].is_object(), "agents do not keep a cluster from being drained: {:#}", plan.body);

    system.client.delete("/v2/agents/autoscaler").await.unwrap();
    eventually(PATIENCE, async || images(system).await.is_empty().then_some(())).await;
    eventually(PATIENCE, async || agent(system, "autoscaler").await.is_none().then_some(())).await;
    eventually(PATIENCE, async || (!system.claims().await.ok()?.iter().any(|claim| claim.dig.is_agent())).then_some(())).await;
}
scenario!(autoscaler_is_rolled_out_and_a_bad_version_goes_back);

async fn memory_guard_runs_on_every_node_of_the_clusters_that_are_meant(system: &System) {
    let spec = json!({"version": "1", "on": [{"provider": "onprem"}], "except": ["onprem+private-b"], "healthySeconds": 0,
        "settings": {"MEMGUARD_MODE": "recommend"}, "members": {"onprem+private-a": {"MEMGUARD_MODE": "apply"}}});
    set(system, "memory-guard", spec).await;
    let done = runs_everywhere(system, "memory-guard", "Done", "1").await;
    assert_eq!(done["copies"].as_array().unwrap().len(), 1, "{done:#}");
    let guards: Api<DaemonSet> = Api::namespaced(system.member("private-a").client.clone(), "kube-system");
    let guard = guards.get("drover-memory-guard").await.unwrap();
    assert_eq!(guard.status.unwrap().number_ready, 2, "one per node");
    let containers = guard.spec.unwrap().template.spec.unwrap().containers;
    let mode = containers[0].env.iter().flatten().find(|variable| variable.name == "MEMGUARD_MODE").and_then(|mode| mode.value.clone());
    assert_eq!(mode.as_deref(), Some("apply"), "the setting of the cluster counts");

    system.client.delete("/v2/agents/memory-guard").await.unwrap();
    eventually(PATIENCE, async || guards.get_opt("drover-memory-guard").await.ok()?.is_none().then_some(())).await;
}
scenario!(memory_guard_runs_on_every_node_of_the_clusters_that_are_meant);
