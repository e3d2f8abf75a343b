//! The members of a system under test: simulated by kubesim, or real control planes that all tests of this process share.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use base64::Engine;
use drover::hub::code;
use drover_lab::dev::kube as local;
use drover_lab::dev::sim::Simulated;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tokio::sync::{Mutex, OnceCell, OwnedMutexGuard};

use crate::emco::{patiently, patiently_again};

/// What the members of a system are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Simulated by kubesim.
    Simulated,
    /// Real control planes with simulated nodes.
    Real,
}

impl Backend {
    /// Whether Kubernetes has been built on this machine.
    #[track_caller]
    pub fn real_is_built() -> bool {
        drover_testkit::needs("DROVER_KUBE_BIN").is_some()
    }

    /// Whether real kubelets can run here as well: they need root.
    #[track_caller]
    pub fn kubelets_run_here() -> bool {
        Self::real_is_built() && nix::unistd::geteuid().is_root()
    }
}

/// A member, which tests access directly and not through Drover.
#[derive(Clone)]
pub struct Member {
    pub name: &'static str,
    pub provider: &'static str,
    /// The priority of the provider.
    pub priority: u8,
    pub kubeconfig: Vec<u8>,
    pub client: kube::Client,
}

/// The number and size of simulated members.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Name, provider and provider's priority of each.
    pub members: Vec<(&'static str, &'static str, u8)>,
    /// The number of nodes of each member.
    pub nodes: usize,
    /// The number of CPUs of each node.
    pub cpu: u32,
    /// Whether pods answer on the ports of their containers.
    pub answering: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self { members: MEMBERS.into(), nodes: NODES.into(), cpu: 2, answering: false }
    }
}

/// Name, provider and priority: two private members that are filled first, and a public one. Each has two nodes of 2 CPUs and 4 GiB.
pub const MEMBERS: [(&str, &str, u8); 3] = [("private-a", "onprem", 1), ("private-b", "onprem", 1), ("public-c", "aws", 5)];
const NODES: u16 = 2;
const CPU: &str = "2";
const MEMORY: &str = "4Gi";

impl Member {
    /// A member with this kubeconfig.
    pub async fn connect(name: &'static str, provider: &'static str, priority: u8, kubeconfig: Vec<u8>) -> Self {
        let text = String::from_utf8_lossy(&kubeconfig).into_owned();
        let parsed = kube::config::Kubeconfig::from_yaml(&text).expect("a kubeconfig");
        let config = kube::Config::from_custom_kubeconfig(parsed, &Default::default()).await.expect("a client configuration");
        let client = kube::Client::try_from(config).expect("a client");
        Self { name, provider, priority, kubeconfig, client }
    }
    /// Registers the member, and its provider, with Drover.
    pub async fn register(&self, drover: &drover::hub::Client) {
        let file = base64::engine::general_purpose::STANDARD.encode(&self.kubeconfig);
        self.register_as(drover, &json!({"metadata": {"name": self.name}, "file": file})).await;
    }
    /// Registers the member's provider, and the member with this document.
    pub async fn register_as(&self, drover: &drover::hub::Client, cluster: &serde_json::Value) {
        let provider = json!({"metadata": {"name": self.provider}, "spec": {"priority": self.priority}});
        patiently(async || drover.ensure("/v2/cluster-providers", &provider).await).await.expect("the provider is accepted");
        let path = format!("/v2/cluster-providers/{}/clusters", self.provider);
        let sent = patiently_again(async |again| match drover.post(&path, Some(cluster)).await {
            // An earlier request was carried out, and only its answer was lost.
            Err(error) if again && code(&error) == Some("already_exists") => Ok(()),
            sent => sent.map(drop),
        });
        sent.await.expect("the cluster is accepted");
    }
    /// Host and port of its API server.
    pub fn api_server(&self) -> String {
        let text = String::from_utf8_lossy(&self.kubeconfig).into_owned();
        let parsed = kube::config::Kubeconfig::from_yaml(&text).expect("a kubeconfig");
        let server = parsed.clusters.first().and_then(|named| named.cluster.as_ref()?.server.clone()).expect("a server");
        let server: url::Url = server.parse().expect("a URL");
        format!("{}:{}", server.host_str().expect("a host"), server.port_or_known_default().expect("a port"))
    }
    /// The Deployments of the default namespace.
    pub fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), "default")
    }
    /// The pods of the default namespace.
    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }
    /// The sorted names of its Deployments.
    pub async fn deployed(&self) -> Vec<String> {
        let list = self.deployments().list(&ListParams::default()).await.expect("the member answers");
        let mut names: Vec<String> = list.items.into_iter().filter_map(|d| d.metadata.name).collect();
        names.sort();
        names
    }
    /// The number of ready replicas of a Deployment, 0 if there is no such Deployment.
    pub async fn ready(&self, name: &str) -> i32 {
        let deployment = self.deployments().get_opt(name).await.expect("the member answers");
        deployment.and_then(|d| d.status?.ready_replicas).unwrap_or(0)
    }
    /// The nodes of the pods of these Deployments.
    pub async fn nodes_of(&self, names: &[&str]) -> std::collections::BTreeSet<String> {
        let list = self.pods().list(&ListParams::default()).await.expect("the member answers");
        let app = |pod: &Pod| pod.metadata.labels.as_ref().and_then(|labels| labels.get("app").cloned()).unwrap_or_default();
        list.items.into_iter().filter(|pod| names.contains(&app(pod).as_str())).filter_map(|pod| pod.spec?.node_name).collect()
    }
    /// Creates a pod that is not Drover's and requests `cpu_m` millicores.
    pub async fn foreign_pod(&self, name: &str, cpu_m: u32) {
        let pod = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"containers": [{
                "name": "c", "image": "registry.example/foreign:1",
                "resources": {"requests": {"cpu": format!("{cpu_m}m"), "memory": "64Mi"}},
            }]},
        }));
        self.pods().create(&PostParams::default(), &pod.expect("a pod")).await.expect("the member accepts the pod");
    }

    /// Deletes what other tests left, in the default namespace and of nodes with a label `scene` ([`App::on_nodes`](crate::apps::App::on_nodes)),
    /// and waits until it is gone.
    async fn wipe(&self) {
        let all = ListParams::default();
        let now = DeleteParams::background().grace_period(0);
        self.deployments().delete_collection(&now, &all).await.expect("Deployments can be deleted");
        self.pods().delete_collection(&DeleteParams::default().grace_period(0), &all).await.expect("pods can be deleted");
        let claims: Api<k8s_openapi::api::core::v1::PersistentVolumeClaim> = Api::namespaced(self.client.clone(), "default");
        claims.delete_collection(&DeleteParams::default(), &all).await.expect("volume claims can be deleted");
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.client.clone());
        nodes.delete_collection(&DeleteParams::default(), &ListParams::default().labels("scene")).await.expect("nodes can be deleted");
        drover_testkit::eventually(std::time::Duration::from_secs(180), async || {
            let left = self.pods().list(&all).await.ok()?.items.len() + self.deployed().await.len();
            (left == 0).then_some(())
        })
        .await;
    }
}

/// The members. While this value exists no other test of the process gets the real ones.
pub struct Members {
    /// The members in the order of [`MEMBERS`] or of their shape.
    pub each: Vec<Member>,
    /// The simulator, if they are simulated.
    pub simulated: Option<Simulated>,
    _alone: Option<OwnedMutexGuard<()>>,
    /// The directory of clusters that only this system has.
    own: Option<PathBuf>,
}

impl Members {
    /// Two clusters of a real node each, with real kubelets and containers, and these images. Needs root.
    pub async fn with_kubelets(images: Vec<PathBuf>) -> Self {
        // Clusters of these names are in one directory, and each system takes its own down.
        static ALONE: LazyLock<Arc<Mutex<()>>> = LazyLock::new(Arc::default);
        let alone = ALONE.clone().lock_owned().await;
        let dir = std::env::temp_dir().join(format!("drover-kubelets-{}", std::process::id()));
        let options = local::Up {
            clusters: 2,
            names: vec![MEMBERS[0].0.to_owned(), MEMBERS[2].0.to_owned()],
            nodes: 1,
            cpu: Some(CPU.into()),
            memory: Some("2Gi".into()),
            metrics: false,
            real: true,
            images,
            owner: Some(std::process::id()),
            set: local::Set { dir: Some(dir.clone()) },
        };
        let clusters = local::up(&options).await.expect("two clusters with kubelets start");
        let files = clusters.iter().map(|c| std::fs::read(&c.kubeconfig).expect("its kubeconfig")).collect();
        Self { each: connected(&[MEMBERS[0], MEMBERS[2]], files).await, simulated: None, _alone: Some(alone), own: Some(dir) }
    }

    /// Stops clusters that only this system has.
    pub async fn end(&self) {
        if let Some(dir) = &self.own {
            let set = local::Set { dir: Some(dir.clone()) };
            local::down(&local::Down { set, ..local::Down::default() }).await.expect("the clusters stop");
            // Empty now; if it is not, what is in it says why.
            let _ = std::fs::remove_dir(dir);
        }
    }
}

/// Starts simulated members; or waits for the real ones, starts them if they do not run, and deletes what other tests left.
pub async fn start(backend: Backend) -> Members {
    match backend {
        Backend::Simulated => simulated(&Shape::default()).await,
        Backend::Real => {
            static ALONE: LazyLock<Arc<Mutex<()>>> = LazyLock::new(Arc::default);
            let alone = ALONE.clone().lock_owned().await;
            let each = connected(&MEMBERS, real().await).await;
            for member in &each {
                member.wipe().await;
            }
            Members { each, simulated: None, _alone: Some(alone), own: None }
        }
    }
}

/// Starts simulated members.
pub async fn simulated(shape: &Shape) -> Members {
    let names: Vec<&str> = shape.members.iter().map(|(name, ..)| *name).collect();
    let memory = format!("{}Gi", 2 * shape.cpu);
    let cpu = shape.cpu.to_string();
    let started = match shape.answering {
        true => Simulated::answering(&names, shape.nodes, &cpu, &memory).await,
        false => Simulated::start(&names, shape.nodes, &cpu, &memory).await,
    };
    let started = started.expect("kubesim starts");
    let each = connected(&shape.members, started.kubeconfigs.clone()).await;
    Members { each, simulated: Some(started), _alone: None, own: None }
}

async fn connected(members: &[(&'static str, &'static str, u8)], kubeconfigs: Vec<Vec<u8>>) -> Vec<Member> {
    let members = members.iter().zip(kubeconfigs);
    futures::future::join_all(members.map(|((name, provider, priority), file)| Member::connect(name, provider, *priority, file))).await
}

/// The kubeconfigs of the real members, which are started once per process and end with it.
async fn real() -> Vec<Vec<u8>> {
    static CLUSTERS: OnceCell<Vec<Vec<u8>>> = OnceCell::const_new();
    let start = || async {
        let options = local::Up {
            clusters: 3,
            names: MEMBERS.map(|(name, ..)| name.to_owned()).into(),
            nodes: NODES,
            cpu: Some(CPU.into()),
            memory: Some(MEMORY.into()),
            metrics: true,
            real: false,
            images: Vec::new(),
            owner: Some(std::process::id()),
            set: local::Set { dir: Some(directory()) },
        };
        let clusters = local::up(&options).await.expect("three control planes start");
        clusters.iter().map(|c| std::fs::read(&c.kubeconfig).expect("its kubeconfig")).collect()
    };
    CLUSTERS.get_or_init(start).await.clone()
}

fn directory() -> PathBuf {
    std::env::temp_dir().join(format!("drover-e2e-{}", std::process::id()))
}

/// Stops the API server of a real member (SIGSTOP), or lets it continue.
pub fn stop(member: &str, off: bool) {
    let recorded = std::fs::read_to_string(directory().join(member).join("pid/kube-apiserver")).expect("its pid is recorded");
    let pid = recorded.split_whitespace().next().and_then(|pid| pid.parse().ok()).expect("a pid");
    let signal = if off { Signal::SIGSTOP } else { Signal::SIGCONT };
    kill(Pid::from_raw(pid), signal).expect("it runs");
}
