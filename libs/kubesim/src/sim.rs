//! The simulator: the handle for tests and for the command line.

use std::sync::{Arc, PoisonError, RwLock};

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::clusters::Clusters;
use crate::effects::{Effect, Operation, ReadyRecorder};
use crate::error::ApiError;
use crate::faults::Fault;
use crate::key::Key;
use crate::selectors::Labels;
use crate::spec::{ClusterSpec, NodeSpec};
use crate::state::Settings;
use crate::timers::Timers;
use crate::{controllers, kubelet, nodes, server};

/// Kubernetes API servers in memory. Dropping the last handle ends them.
#[derive(Clone)]
pub struct Sim(Arc<Inner>);

struct Inner {
    clusters: Arc<Clusters>,
    recorders: RwLock<Vec<ReadyRecorder>>,
    timers: Arc<Timers>,
    clock: Clock,
    driver: JoinHandle<()>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Default for Sim {
    fn default() -> Self {
        Self::new()
    }
}

impl Sim {
    /// A simulator without clusters. Must be called inside a tokio runtime, whose (possibly paused) time it follows.
    pub fn new() -> Self {
        let timers = Arc::new(Timers::default());
        let driver = tokio::spawn(timers.clone().run());
        Self(Arc::new(Inner { clusters: Arc::default(), recorders: RwLock::default(), timers, clock: Clock::new(), driver }))
    }

    /// Adds a cluster with ready nodes; one of the same name is replaced.
    pub fn add_cluster(&self, name: &str, spec: ClusterSpec) {
        let settings = Settings {
            metrics: spec.metrics,
            controllers: spec.controllers,
            controller_delay: spec.controller_delay,
            log: spec.log,
            journal: spec.journal,
            stand_ins: spec.stand_ins,
        };
        let token = format!("sim-{}", uuid::Uuid::new_v4());
        let cluster = Cluster::new(token, spec.anonymous, settings, self.0.clock, self.0.timers.clone());
        cluster.with(|state| {
            state.recorders = self.0.recorders.read().unwrap_or_else(PoisonError::into_inner).clone();
            let now = state.clock.stamp();
            let seed = |resource: &str, mut object: Value| {
                object["metadata"]["uid"] = json!(uuid::Uuid::new_v4().to_string());
                object["metadata"]["creationTimestamp"] = json!(now);
                let key = Key::new(&resource.into(), "", crate::object::name(&object));
                (key, object)
            };
            for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
                let (key, object) = seed(
                    "namespaces",
                    json!({"apiVersion": "v1", "kind": "Namespace",
                    "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                    "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}),
                );
                state.put(key, object);
            }
            for node in &spec.nodes {
                let room = node.room();
                let (key, object) = seed("nodes", nodes::new(&node.name, &json!(node.labels), &json!(node.taints), &room));
                let node = state.put(key.clone(), object);
                nodes::reconcile(state, &key, &node);
            }
            for (at, node) in spec.nodes.iter().cycle().take(spec.pods).enumerate() {
                let name = format!("pod-{at}");
                let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": name, "namespace": "default", "labels": {"app": "seeded"}},
                    "spec": {"nodeName": node.name, "restartPolicy": "Always", "schedulerName": "default-scheduler",
                        "containers": [{"name": "app", "image": "registry.example/seeded:1",
                            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}]},
                    "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": now}]}});
                pod["metadata"]["uid"] = json!(uuid::Uuid::new_v4().to_string());
                pod["metadata"]["creationTimestamp"] = json!(now);
                kubelet::start(&mut pod, &now);
                state.put(Key::new(&"pods".into(), "default", &name), pod);
            }
            // Revisions from before the first request are compacted, like on a real server.
            state.store.compact();
        });
        self.0.clusters.insert(name, cluster);
    }

    /// Removes a cluster and ends its watches.
    pub fn remove_cluster(&self, name: &str) {
        if let Some(cluster) = self.0.clusters.remove(name) {
            cluster.faults.cut_watches();
        }
    }

    /// The names of all clusters.
    pub fn clusters(&self) -> Vec<String> {
        self.0.clusters.names()
    }

    fn cluster(&self, name: &str) -> Arc<Cluster> {
        self.0.clusters.get(name).unwrap_or_else(|| panic!("no simulated cluster is called {name}"))
    }

    /// A client inside the process, without TCP and token.
    ///
    /// # Panics
    /// When there is no cluster of that name, like all functions below that take one.
    pub fn client(&self, name: &str) -> kube::Client {
        let cluster = self.cluster(name);
        kube::Client::new(tower::service_fn(move |request| server::in_process(cluster.clone(), request)), "default")
    }

    /// Serves all clusters, including those added later, below `/clusters/<name>`, until the simulator is dropped.
    pub fn serve(&self, listener: TcpListener) -> JoinHandle<()> {
        tokio::spawn(server::serve(Arc::downgrade(&self.0.clusters), listener))
    }

    /// A kubeconfig with a token. `base_url` is where [`Sim::serve`] listens, without the path.
    pub fn kubeconfig(&self, name: &str, base_url: &str) -> String {
        let token = self.cluster(name).token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let server = format!("{}/clusters/{name}", base_url.trim_end_matches('/'));
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: {name}\n  cluster:\n    server: {server}\nusers:\n- name: {name}\n  user:\n    \
             token: {token}\ncontexts:\n- name: {name}\n  context:\n    cluster: {name}\n    user: {name}\n    namespace: default\n\
             current-context: {name}\n"
        )
    }

    /// Makes a new token the only valid one; [`Sim::kubeconfig`] has it from now on.
    pub fn rotate_token(&self, name: &str) {
        *self.cluster(name).token.lock().unwrap_or_else(PoisonError::into_inner) = format!("sim-{}", uuid::Uuid::new_v4());
    }

    /// Injects a fault.
    pub fn fault(&self, name: &str, fault: Fault) {
        let cluster = self.cluster(name);
        match fault {
            Fault::CutWatches => cluster.faults.cut_watches(),
            Fault::Gone410 => cluster.with(|state| state.store.compact()),
            Fault::ClockSkew(skew) => {
                cluster.with(|state| state.clock.skew = skew);
            }
            lasting => cluster.faults.set(lasting),
        }
    }

    /// Clears all lasting faults.
    pub fn clear_faults(&self, name: &str) {
        let cluster = self.cluster(name);
        cluster.with(|state| state.clock.skew = jiff::SignedDuration::ZERO);
        cluster.faults.clear();
    }

    /// Adds a node to a running cluster.
    ///
    /// # Errors
    /// When the API server refuses it, for example because a node of that name exists.
    pub async fn add_node(&self, name: &str, node: &NodeSpec) -> Result<(), kube::Error> {
        let room = node.room();
        let node = nodes::new(&node.name, &json!(node.labels), &json!(node.taints), &room);
        let node = serde_json::from_value(node).map_err(kube::Error::SerdeError)?;
        kube::Api::<k8s_openapi::api::core::v1::Node>::all(self.client(name)).create(&kube::api::PostParams::default(), &node).await?;
        Ok(())
    }

    /// Takes a node and its kubelet away: Ready=Unknown at once, tainted, its pods not ready; after five minutes they are evicted.
    pub fn node_down(&self, name: &str, node: &str) {
        self.cluster(name).with(|state| {
            state.lost.insert(node.into());
            controllers::enqueue(state, Key::new(&"nodes".into(), "", node));
        });
    }

    /// Brings a node back, with the pods that it had.
    pub fn node_up(&self, name: &str, node: &str) {
        self.cluster(name).with(|state| {
            state.lost.remove(node);
            controllers::enqueue(state, Key::new(&"nodes".into(), "", node));
            kubelet::resume(state, node);
        });
    }

    /// From now on pods that start in this cluster answer nothing, although they are ready: their network is cut off.
    pub fn silence_pods(&self, name: &str) {
        self.cluster(name).with(|state| state.silent = true);
    }

    /// Every write that took effect, oldest first.
    pub fn effects(&self, name: &str) -> Vec<Effect> {
        self.cluster(name).with(|state| state.store.journal().to_vec())
    }

    /// How many objects of this name were ever created: 1 means exactly once.
    pub fn created(&self, name: &str, resource: &str, namespace: &str, object: &str) -> usize {
        let key = Key::new(&resource.into(), namespace, object);
        self.cluster(name)
            .with(|state| state.store.journal().iter().filter(|effect| effect.operation == Operation::Create && effect.key == key).count())
    }

    /// Counts ready pods with these labels (`app=web`), in one namespace or in all, over all clusters, from now on.
    ///
    /// # Errors
    /// When the selector cannot be parsed.
    pub fn record_ready(&self, namespace: Option<&str>, selector: &str) -> Result<ReadyRecorder, ApiError> {
        let recorder = ReadyRecorder::new(namespace.map(String::from), Labels::parse(selector)?);
        self.0.recorders.write().unwrap_or_else(PoisonError::into_inner).push(recorder.clone());
        for name in self.clusters() {
            self.cluster(&name).with(|state| {
                for (_, pod) in state.store.list(&"pods".into(), "") {
                    recorder.observe(None, Some(&pod));
                }
                state.recorders.push(recorder.clone());
            });
        }
        recorder.arm();
        Ok(recorder)
    }
}
