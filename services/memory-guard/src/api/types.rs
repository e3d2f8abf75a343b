//! The few fields of Kubernetes objects that the agent reads, and nothing else, so that a node's pods take only a few kilobytes of
//! memory.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_memguard::{Probe, QosClass};
use serde::Deserialize;

#[derive(Deserialize)]
pub(super) struct List<T> {
    #[serde(default = "Vec::new")]
    pub(super) items: Vec<T>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) owner_references: Vec<Owner>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Owner {
    pub(super) kind: String,
    pub(super) controller: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pod {
    pub(super) metadata: Metadata,
    pub(super) spec: PodSpec,
    status: PodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    pub(super) priority: Option<i32>,
    pub(super) priority_class_name: Option<String>,
    #[serde(rename = "hostPID")]
    host_pid: bool,
    #[serde(rename = "hostIPC")]
    host_ipc: bool,
    init_containers: Vec<ContainerSpec>,
    containers: Vec<ContainerSpec>,
    volumes: Vec<Volume>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodStatus {
    qos_class: Option<QosClass>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerSpec {
    name: String,
    security_context: SecurityContext,
    liveness_probe: Option<ProbeSpec>,
    startup_probe: Option<ProbeSpec>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SecurityContext {
    privileged: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProbeSpec {
    #[serde(default = "ten")]
    period_seconds: u64,
    #[serde(default = "one")]
    timeout_seconds: u64,
    #[serde(default = "three")]
    failure_threshold: u32,
}

// The defaults of Kubernetes for probes.
fn ten() -> u64 {
    10
}

fn one() -> u64 {
    1
}

fn three() -> u32 {
    3
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Volume {
    host_path: Option<HostPath>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct HostPath {
    path: String,
}

impl Pod {
    pub(super) fn qos(&self) -> Option<QosClass> {
        self.status.qos_class
    }

    pub(super) fn privileged(&self) -> bool {
        let containers = self.spec.containers.iter().chain(&self.spec.init_containers);
        self.spec.host_pid || self.spec.host_ipc || containers.into_iter().any(|container| container.security_context.privileged)
    }

    pub(super) fn host_paths(&self) -> impl Iterator<Item = &str> {
        self.spec.volumes.iter().filter_map(|volume| volume.host_path.as_ref()).map(|host| host.path.as_str())
    }

    /// Liveness and startup probes of a container; `None` if the pod has no container of that name.
    pub(super) fn probes(&self, name: &str) -> Option<Vec<Probe>> {
        let container = self.spec.containers.iter().chain(&self.spec.init_containers).find(|container| container.name == name)?;
        Some([&container.liveness_probe, &container.startup_probe].into_iter().flatten().map(ProbeSpec::probe).collect())
    }
}

impl ProbeSpec {
    fn probe(&self) -> Probe {
        Probe {
            period: Duration::from_secs(self.period_seconds),
            timeout: Duration::from_secs(self.timeout_seconds),
            failure_threshold: self.failure_threshold,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct KubeLease {
    pub(super) metadata: Metadata,
    pub(super) spec: LeaseSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct LeaseSpec {
    pub(super) holder_identity: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct DisruptionBudget {
    pub(super) metadata: Metadata,
    pub(super) spec: BudgetSpec,
    pub(super) status: BudgetStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct BudgetSpec {
    pub(super) selector: Option<Selector>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct BudgetStatus {
    pub(super) disruptions_allowed: u32,
}

/// A label selector. An empty one selects every pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Selector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Expression>,
}

#[derive(Clone, Debug, Deserialize)]
struct Expression {
    key: String,
    operator: String,
    #[serde(default)]
    values: Vec<String>,
}

impl Selector {
    pub(super) fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|expression| expression.holds(labels))
    }
}

impl Expression {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match self.operator.as_str() {
            "In" => value.is_some_and(|value| self.values.contains(value)),
            "NotIn" => value.is_none_or(|value| !self.values.contains(value)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            // An unknown operator selects the pod, so that the budget protects rather too many pods than too few.
            _ => true,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Node {
    pub(super) metadata: Metadata,
    pub(super) spec: NodeSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeSpec {
    pub(super) taints: Vec<serde_json::Map<String, serde_json::Value>>,
}
