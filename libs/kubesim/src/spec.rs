//! What a simulated cluster begins with.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

/// A node to begin with.
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
    /// Labels besides those of every node.
    pub labels: BTreeMap<String, String>,
    /// Taints, as in a Node's spec.
    pub taints: Vec<Value>,
}

impl NodeSpec {
    /// A node with room for 110 pods.
    pub fn new(name: impl Into<String>, cpu: impl Into<String>, memory: impl Into<String>) -> Self {
        Self { name: name.into(), cpu: cpu.into(), memory: memory.into(), pods: 110, labels: BTreeMap::new(), taints: Vec::new() }
    }
}

/// A cluster to begin with.
#[derive(Debug, Clone)]
pub struct ClusterSpec {
    /// Its nodes.
    pub nodes: Vec<NodeSpec>,
    /// Answer requests without a token. kubectl and helm send none over plain HTTP; a wrong one is refused all the same.
    pub anonymous: bool,
    /// Serve metrics.k8s.io.
    pub metrics: bool,
    /// Run controllers, scheduler and kubelet; without them it is an API server alone.
    pub controllers: bool,
    /// Between a change and the controllers' answer.
    pub controller_delay: Duration,
    /// How many changes a watch can look back.
    pub log: usize,
    /// Remember every write ([`Sim::effects`], [`Sim::created`]); without it a cluster that lives long stays small.
    pub journal: bool,
    /// Running pods to begin with, all alike, in the namespace `default` and evenly on the nodes.
    pub pods: usize,
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
        }
    }
}

impl ClusterSpec {
    /// So many equal nodes, `node-1` and on.
    pub fn with_nodes(count: usize, cpu: &str, memory: &str) -> Self {
        Self { nodes: (1..=count).map(|at| NodeSpec::new(format!("node-{at}"), cpu, memory)).collect(), ..Self::default() }
    }
}
