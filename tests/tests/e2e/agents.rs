//! Drover's own agents, pushed to all members through REST.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_e2e::apps::App;
use drover_e2e::emco::Group;
use drover_e2e::{Backend, System, scenario, succeeded};
use drover_testkit::{Image, eventually};
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
scenario!(autoscaler_is_rolled_out_and_a_bad_version_goes_back, &[drover_e2e::SOON_READY]);

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

/// The archive of an image with the agents of this build, as it is imported on nodes or pushed to a registry.
fn image(folder: &std::path::Path) -> std::path::PathBuf {
    let programs = std::env::current_exe().unwrap().parent().and_then(std::path::Path::parent).unwrap().to_owned();
    ["drover-autoscaler", "drover-memory-guard"]
        .into_iter()
        .fold(Image::new("drover.local/drover:pushed", "/bin/drover-autoscaler"), |image, name| {
            image.built(&programs.join(name), &format!("/bin/{name}"))
        })
        .write(folder)
}

/// Both agents run in real containers with no more than their manifests give them, scale and report; a version whose image nobody has reaches one
/// cluster only, and goes back by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "long: two real nodes; part of make test-long"]
async fn agents_run_on_real_kubelets_as_they_are_pushed() {
    if !Backend::kubelets_run_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let given_up = [("orchestrator", "--ready-seconds=120")];
    let system = System::on_kubelets_with(vec![image(folder.path())], &given_up).await;
    let spec = |version: &str| json!({"version": version, "image": "drover.local/drover", "on": [{}], "healthySeconds": 1});
    set(&system, "autoscaler", spec("pushed")).await;
    runs_everywhere(&system, "autoscaler", "Done", "pushed").await;
    set(&system, "memory-guard", spec("pushed")).await;
    runs_everywhere(&system, "memory-guard", "Done", "pushed").await;
    for name in ["autoscaler", "memory-guard"] {
        eventually(PATIENCE, async || {
            let agent = agent(&system, name).await?;
            agent["copies"].as_array()?.iter().all(|copy| copy["report"]["version"].is_string()).then_some(())
        })
        .await;
    }
    // It scales a real workload into its bounds.
    let member = system.member("private-a");
    let container = json!({"name": "app", "image": "drover.local/drover:pushed", "command": ["/bin/drover-autoscaler", "demo-app"],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}});
    let labels = json!({"app": "web"});
    let deployment: Deployment = serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": {"replicas": 1,
        "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}}))
    .unwrap();
    member.deployments().create(&PostParams::default(), &deployment).await.unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("drover.io", "v1alpha1", "ScalingPolicy"));
    let policy: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "drover.io/v1alpha1", "kind": "ScalingPolicy", "metadata": {"name": "web"},
        "spec": {"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "policy": "threshold", "mode": "apply",
            "minReplicas": 3, "maxReplicas": 4}}))
    .unwrap();
    let policies: Api<DynamicObject> = Api::namespaced_with(member.client.clone(), "default", &resource);
    policies.create(&PostParams::default(), &policy).await.unwrap();
    eventually(PATIENCE, async || (member.ready("web").await == 3).then_some(())).await;

    set(&system, "autoscaler", spec("nobody-has-it")).await;
    let stopped = runs_everywhere(&system, "autoscaler", "Stopped", "pushed").await;
    assert!(stopped["reason"].is_string(), "{stopped:#}");
    let images = images(&system).await;
    assert!(images.values().all(|image| image == "drover.local/drover:pushed"), "{images:?}");
    for name in ["autoscaler", "memory-guard"] {
        system.client.delete(&format!("/v2/agents/{name}")).await.unwrap();
        eventually(PATIENCE, async || agent(&system, name).await.is_none().then_some(())).await;
    }
    policies.delete("web", &Default::default()).await.unwrap();
    system.end().await;
}
