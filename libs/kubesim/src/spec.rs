//! The initial content of simulated clusters.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

/// An initial node.
#[derive(Debug, Clone)]
pub struct NodeSpec {
    /// Its name.
    pub name: String,
    /// Allocatable cpu, e.g. `4`.
    pub cpu: String,
    /// Allocatable memory, e.g. `16Gi`.
    pub memory: String,
    /// Allocatable pods.
    pub pods: u32,
    /// Allocatable space on the node's disk, e.g. `100Gi`.
    pub ephemeral_storage: String,
    /// Labels besides those that every node has.
    pub labels: BTreeMap<String, String>,
    /// Taints, as in a Node's spec.
    pub taints: Vec<Value>,
}

impl NodeSpec {
    /// A node with room for 110 pods and a disk of 100 GiB.
    pub fn new(name: impl Into<String>, cpu: impl Into<String>, memory: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            cpu: cpu.into(),
            memory: memory.into(),
            pods: 110,
            ephemeral_storage: "100Gi".into(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
        }
    }
}

impl NodeSpec {
    /// What the node reports as allocatable.
    pub(crate) fn room(&self) -> Value {
        json!({"cpu": self.cpu, "memory": self.memory, "ephemeral-storage": self.ephemeral_storage, "pods": self.pods.to_string()})
    }
}

/// An initial cluster.
#[derive(Debug, Clone)]
pub struct ClusterSpec {
    /// Its nodes.
    pub nodes: Vec<NodeSpec>,
    /// Accept requests without a token, because kubectl and helm send none over plain HTTP. A wrong token is still refused.
    pub anonymous: bool,
    /// Serve metrics.k8s.io.
    pub metrics: bool,
    /// Run controllers, scheduler and kubelet. Without them the cluster is only an API server.
    pub controllers: bool,
    /// Pause between a change and its controllers.
    pub controller_delay: Duration,
    /// How many changes the log keeps for watches.
    pub log: usize,
    /// Keep every write for `Sim::effects` and `Sim::created`. Without it, a cluster that lives long stays small.
    pub journal: bool,
    /// Number of equal running pods in the namespace `default`, spread evenly over the nodes.
    pub pods: usize,
    /// Pods answer on the ports of their containers, each at an address of its own on loopback (127.64.0.1 and on).
    pub stand_ins: bool,
}

impl Default for ClusterSpec {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            anonymous: false,
            metrics: true,
            controllers: true,
            controller_delay: Duration::from_millis(5),
            log: 2_000,
            journal: true,
            pods: 0,
            stand_ins: false,
        }
    }
}

impl ClusterSpec {
    /// A cluster of `count` equal nodes: `node-1`, `node-2`, …
    pub fn with_nodes(count: usize, cpu: &str, memory: &str) -> Self {
        Self { nodes: (1..=count).map(|at| NodeSpec::new(format!("node-{at}"), cpu, memory)).collect(), ..Self::default() }
    }
}
