//! What an app needs of a member, derived from its rendered manifests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Amounts;

/// What one app needs wherever it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Demand {
    /// Its workloads' pods.
    pub groups: Vec<PodGroup>,
    /// Why it can never be moved, one sentence each behind its code (`volume`, `host_path`, `daemon_set`, `node_bound`) and a colon;
    /// empty: it can.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub immovable: Vec<String>,
    /// Number of persistent volumes (for `MoveCost`).
    #[serde(default)]
    pub volumes: u32,
    /// Names of its Services, `namespace/name`, that other pods of the same member may call by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
    /// Container images, each once and by the one name that nodes report it by (`drover_quantity::image_name`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
}

/// Equal pods of one workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PodGroup {
    /// `Kind/name` of the workload.
    pub workload: String,
    /// How many; ignored where `per_node`.
    pub replicas: u32,
    /// More pods at once while the workload is updated (`maxSurge`), counted only during an update.
    #[serde(default)]
    pub surge: u32,
    /// One on each matching node (DaemonSet).
    #[serde(default)]
    pub per_node: bool,
    /// Effective requests of one pod (init containers, sidecars and overhead included; `pods` is 1).
    pub requests: Amounts,
    /// Tolerations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// `nodeSelector`: every label must be equal.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: the terms are or-ed, the requirements in a term and-ed. Empty: none asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_affinity: Vec<Vec<NodeRequirement>>,
}

/// A toleration of a pod, as in Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Toleration {
    /// Taint key; empty with `exists`: every taint.
    #[serde(default)]
    pub key: String,
    /// Operator `Exists` (else `Equal`).
    #[serde(default)]
    pub exists: bool,
    /// Value that must be equal (operator `Equal`).
    #[serde(default)]
    pub value: String,
    /// Effect; empty: every effect.
    #[serde(default)]
    pub effect: String,
}

/// One requirement on a node's labels (node affinity `matchExpressions`; `matchFields` on `metadata.name` uses the key
/// `metadata.name`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NodeRequirement {
    /// Label key.
    pub key: String,
    /// Operator.
    pub operator: Operator,
    /// Values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// Kubernetes' node selector operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[allow(missing_docs)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

/// Some pods of a group on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PodsOnNode {
    /// Node name.
    pub node: String,
    /// Index into [`crate::Demand::groups`].
    pub group: usize,
    /// How many.
    pub count: u32,
}
