//! What the agent reads from an API server and writes there, on a real one (`DROVER_CONTRACT_KUBECONFIG`, see deploy/test.sh). Owners,
//! probes, Leases and PodDisruptionBudgets decide which containers are held; Events, evictions and the taint of the node are the server's
//! own objects.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use drover_memory_guard::fake::FakeContainer;
use drover_memory_guard::wire::Status;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod, ServiceAccount, Taint};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::support::machine::FakeMachine;
use crate::support::{PATIENCE, say};

/// The kubeconfig of the server's admin; `None` where there is no server, which is allowed only outside `make test`.
fn kubeconfig(test: &str) -> Option<PathBuf> {
    let path = std::env::var_os("DROVER_CONTRACT_KUBECONFIG").map(PathBuf::from);
    if path.is_none() {
        let skipped = format!("SKIPPED, proves nothing: {test} lacks DROVER_CONTRACT_KUBECONFIG");
        assert!(std::env::var_os("DROVER_NO_SKIPS").is_none(), "{skipped}");
        say(&skipped);
    }
    path
}

/// A node object without a kubelet, with pods bound to it, and a namespace. The machine behind it is made of files.
struct Cluster {
    machine: FakeMachine,
    client: kube::Client,
    kubeconfig: PathBuf,
    name: String,
}

impl Cluster {
    async fn new(kubeconfig: PathBuf, part: &str) -> Self {
        let file = Kubeconfig::read_from(&kubeconfig).unwrap();
        let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
        let client = kube::Client::try_from(config).unwrap();
        let name = format!("memguard-{part}-{}", std::process::id());
        let cluster = Self { machine: FakeMachine::new(), client, kubeconfig, name };
        cluster.make::<Namespace>(Api::all(cluster.client.clone()), json!({"metadata": {"name": cluster.name}})).await;
        let taints = json!([{"key": "example.com/mine", "effect": "NoSchedule"}]);
        cluster
            .make::<Node>(Api::all(cluster.client.clone()), json!({"metadata": {"name": cluster.name}, "spec": {"taints": taints}}))
            .await;
        // Without its service account the namespace admits no pod.
        let accounts: Api<ServiceAccount> = cluster.here();
        eventually("the namespace has its service account", async || accounts.get_opt("default").await.unwrap().is_some()).await;
        cluster
    }

    fn here<T: kube::Resource<Scope = kube::core::NamespaceResourceScope>>(&self) -> Api<T>
    where
        T::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    async fn make<T>(&self, api: Api<T>, object: Value) -> T
    where
        T: Clone + DeserializeOwned + serde::Serialize + std::fmt::Debug,
    {
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
    }

    /// Creates a pod `pod-ID` of this node in the API and in the runtime.
    async fn pod(&self, id: &str, labels: Value, owner: Option<&str>, probe: Value) {
        let owners: Vec<Value> = owner
            .iter()
            .map(|kind| json!({"apiVersion": "batch/v1", "kind": kind, "name": "owner", "uid": "00000000-0000-0000-0000-000000000001", "controller": true}))
            .collect();
        let mut container = json!({"name": "main", "image": "example.com/job:1", "resources": {"requests": {"memory": "50Mi"}}});
        if !probe.is_null() {
            container["livenessProbe"] = probe;
        }
        let metadata = json!({"name": format!("pod-{id}"), "labels": labels, "ownerReferences": owners});
        let spec = json!({"nodeName": self.name, "containers": [container], "terminationGracePeriodSeconds": 3600});
        let pod: Pod = self.make(self.here(), json!({"metadata": metadata, "spec": spec})).await;
        let labels: BTreeMap<String, String> = serde_json::from_value(labels).unwrap();
        let uid = pod.metadata.uid.unwrap();
        let started = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap();
        let container = self.machine.container(id);
        self.machine.fake.put(id, FakeContainer { namespace: self.name.clone(), uid, labels, started, ..container });
    }

    fn frozen(&self, id: &str) -> bool {
        self.machine.read(id, "cgroup.freeze") == "1"
    }

    async fn taints(&self) -> Vec<String> {
        let node = Api::<Node>::all(self.client.clone()).get(&self.name).await.unwrap();
        node.spec.unwrap().taints.unwrap_or_default().into_iter().map(|taint| taint.key).collect()
    }

    async fn remove_taint(&self, key: &str) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let kept: Vec<Taint> = nodes.get(&self.name).await.unwrap().spec.unwrap().taints.unwrap_or_default();
        let kept: Vec<Taint> = kept.into_iter().filter(|taint| taint.key != key).collect();
        let patch = Patch::Merge(json!({"spec": {"taints": kept}}));
        nodes.patch(&self.name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Removes everything again. A test that fails leaves it for inspection.
    async fn remove(self) {
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.here::<Pod>().delete_collection(&now, &ListParams::default()).await.unwrap();
        Api::<Namespace>::all(self.client.clone()).delete(&self.name, &DeleteParams::default()).await.unwrap();
        Api::<Node>::all(self.client.clone()).delete(&self.name, &DeleteParams::default()).await.unwrap();
    }
}

/// Waits until the server answers as expected.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < PATIENCE, "timed out waiting until {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn verdict<'a>(status: &'a Status, id: &str) -> &'a str {
    status.containers.iter().find(|container| container.id == id).map_or("", |container| container.verdict.as_str())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_honours_owners_leases_probes_and_budgets_and_writes_events_and_evictions() {
    let Some(kubeconfig) = kubeconfig("agent_honours_owners_leases_probes_and_budgets_and_writes_events_and_evictions") else { return };
    let cluster = Cluster::new(kubeconfig, "held").await;
    let pausable = json!({"memguard/pausable": "true"});
    let tight = json!({"httpGet": {"port": 80}, "periodSeconds": 3, "failureThreshold": 3});
    // Only its owner, which the runtime does not know, makes it eligible.
    cluster.pod("job", json!({}), Some("Job"), Value::Null).await;
    cluster.pod("leader", pausable.clone(), None, Value::Null).await;
    cluster.pod("probed", pausable.clone(), None, tight).await;
    cluster.pod("budgeted", json!({"memguard/pausable": "true", "app": "budgeted"}), None, Value::Null).await;
    // The youngest pod.
    cluster.pod("free", pausable, None, Value::Null).await;
    let lease = json!({"metadata": {"name": "leader"}, "spec": {"holderIdentity": "pod-leader_5f3c"}});
    cluster.make::<Lease>(cluster.here(), lease).await;
    let budget = json!({"metadata": {"name": "all"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "budgeted"}}}});
    cluster.make::<PodDisruptionBudget>(cluster.here(), budget).await;

    let (state, socket) = (cluster.machine.dir.path().join("state"), cluster.machine.socket());
    // Pauses all, and a round later evicts one of the paused pods.
    let settings = json!({
        "policy": {"policy": "paper", "upper": 0.0, "lower": 0.0, "perRound": 100, "round": 6.0},
        "safety": {"keepRunning": 0, "levers": ["freeze"], "highFirst": false,
                   "sacrifices": {"allow": "governed", "every": 1.0, "perHour": 100}},
    });
    let mut start = cluster.machine.start(&state, &socket).settings(settings);
    start.args.extend(["--kubeconfig".into(), cluster.kubeconfig.display().to_string(), "--node".into(), cluster.name.clone()]);
    // A governed sacrifice needs a node on which no container can grow to its limit.
    std::fs::write(cluster.machine.proc().join("meminfo"), "MemTotal: 1048576 kB\nMemAvailable: 10 kB\n").unwrap();
    let agent = start.start().unwrap();

    eventually("the eligible pods are frozen", async || cluster.frozen("free") && cluster.frozen("job")).await;
    let status = agent
        .status_when("the API server was read", |status| status.api_server && verdict(status, "leader").contains("Lease"))
        .await
        .unwrap();
    assert!(!cluster.frozen("leader"), "{}", verdict(&status, "leader"));
    // Its probe would restart it after 9 s, so it may not be frozen.
    assert!(!cluster.frozen("probed"), "{}", verdict(&status, "probed"));
    // The budget allows no disruption, because its pod is not ready.
    assert!(!cluster.frozen("budgeted"), "{}", verdict(&status, "budgeted"));

    let events: Api<Event> = cluster.here();
    let about = async |reason: &str| -> Vec<Event> {
        let all = events.list(&ListParams::default()).await.unwrap().items;
        all.into_iter().filter(|event| event.reason.as_deref() == Some(reason)).collect()
    };
    eventually("the pauses are written as Events", async || about("MemoryGuardPaused").await.len() >= 2).await;
    let told = about("MemoryGuardPaused").await;
    let free = told.iter().find(|event| event.involved_object.name.as_deref() == Some("pod-free")).unwrap();
    assert_eq!(free.involved_object.field_path.as_deref(), Some("spec.containers{main}"));
    assert!(free.message.as_deref().unwrap().starts_with("held: "), "{free:#?}");
    assert!(free.source.as_ref().unwrap().host.as_deref() == Some(cluster.name.as_str()) && free.last_timestamp.is_some());

    // The sacrifice goes through the Eviction API.
    let pods: Api<Pod> = cluster.here();
    let leaving = async || -> Vec<String> {
        let all = pods.list(&ListParams::default()).await.unwrap().items;
        let names = all.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()).filter_map(|pod| pod.metadata.name);
        names.collect()
    };
    eventually("the youngest is evicted", async || leaving().await.contains(&"pod-free".to_owned())).await;
    // The owner of pod-job does not exist, so the garbage collector may delete that pod.
    let others: Vec<String> = leaving().await.into_iter().filter(|name| !["pod-free", "pod-job"].contains(&name.as_str())).collect();
    assert!(others.is_empty(), "{others:?}");

    agent.stop().await.unwrap();
    assert!(!cluster.frozen("free") && !cluster.frozen("job"), "on exit everything is released");
    cluster.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_taints_the_node_while_the_gate_is_closed() {
    let Some(kubeconfig) = kubeconfig("agent_taints_the_node_while_the_gate_is_closed") else { return };
    let cluster = Cluster::new(kubeconfig, "gate").await;
    // Each may take 200 of 1024 MiB, and more than four are not expected to fit.
    let ids = ["a", "b", "c", "d", "e", "f"];
    for id in ids {
        cluster.pod(id, json!({"memguard/pausable": "true"}), None, Value::Null).await;
    }
    let meminfo = cluster.machine.proc().join("meminfo");
    std::fs::write(&meminfo, "MemTotal: 1048576 kB\nMemAvailable: 433152 kB\n").unwrap();
    let (state, socket) = (cluster.machine.dir.path().join("state"), cluster.machine.socket());
    let mut start = cluster.machine.start(&state, &socket).settings(json!({"policy": {"policy": "gate-bank"}}));
    let node = ["--kubeconfig".into(), cluster.kubeconfig.display().to_string(), "--node".into(), cluster.name.clone(), "--taint".into()];
    start.args.extend(node);
    let agent = start.start().unwrap();
    let ours = "drover.dev/memory-gate".to_owned();
    agent.status_when("the gate is closed", |status| status.gate.open == Some(false)).await.unwrap();
    eventually("the node is tainted", async || cluster.taints().await.contains(&ours)).await;
    // A taint that was removed by somebody else, or could not be written, is written again.
    cluster.remove_taint(&ours).await;
    eventually("the node is tainted again", async || cluster.taints().await.contains(&ours)).await;
    for id in &ids[1..] {
        cluster.machine.fake.remove(id);
        std::fs::remove_dir_all(cluster.machine.group(id)).unwrap();
    }
    std::fs::write(&meminfo, "MemTotal: 1048576 kB\nMemAvailable: 945152 kB\n").unwrap();
    eventually("the taint is gone", async || !cluster.taints().await.contains(&ours)).await;
    assert!(cluster.taints().await.contains(&"example.com/mine".to_owned()), "the taint of others must stay");
    agent.stop().await.unwrap();
    cluster.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_that_stops_removes_its_taint() {
    let Some(kubeconfig) = kubeconfig("agent_that_stops_removes_its_taint") else { return };
    let cluster = Cluster::new(kubeconfig, "stop").await;
    for id in ["a", "b", "c", "d", "e", "f"] {
        cluster.pod(id, json!({"memguard/pausable": "true"}), None, Value::Null).await;
    }
    std::fs::write(cluster.machine.proc().join("meminfo"), "MemTotal: 1048576 kB\nMemAvailable: 433152 kB\n").unwrap();
    let (state, socket) = (cluster.machine.dir.path().join("state"), cluster.machine.socket());
    let mut start = cluster.machine.start(&state, &socket).settings(json!({"policy": {"policy": "gate-bank"}}));
    let node = ["--kubeconfig".into(), cluster.kubeconfig.display().to_string(), "--node".into(), cluster.name.clone(), "--taint".into()];
    start.args.extend(node);
    let agent = start.start().unwrap();
    let ours = "drover.dev/memory-gate".to_owned();
    eventually("the node is tainted", async || cluster.taints().await.contains(&ours)).await;
    agent.stop().await.unwrap();
    let left = cluster.taints().await;
    assert!(!left.contains(&ours) && left.contains(&"example.com/mine".to_owned()), "{left:?}");
    cluster.remove().await;
}
