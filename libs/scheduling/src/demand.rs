//! The demand of an app, derived from its rendered manifests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Amounts, Reachability, StatefulPods};

/// What one app needs on each member where it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Demand {
    /// The pods of its workloads.
    pub groups: Vec<PodGroup>,
    /// Reasons why the app can never be moved, each as `<code>: <sentence>` with the code `volume`, `host_path`, `daemon_set` or
    /// `node_bound`. Empty if it can be moved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub immovable: Vec<String>,
    /// Number of persistent volumes, used by `MoveCost`.
    #[serde(default)]
    pub volumes: u32,
    /// The pods that take their volumes along when the app is moved, one after the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stateful: Vec<StatefulPods>,
    /// Whether it must not run twice: a move stops the old copy before it starts the new one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not", alias = "at_most_once")]
    pub at_most_once: bool,
    /// Its Services as `namespace/name`, which other pods of the same member may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
    /// Those of its Services that have a way in from outside the member, with the ways.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", alias = "open_services")]
    pub open_services: BTreeMap<String, Vec<Reachability>>,
    /// These are additional pods of the copy with this claim, on the member of that: somebody else has scaled it. What runs of it beyond its
    /// claim is a part of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grows: Option<Uuid>,
    /// Container images without duplicates, under the name that nodes report (`drover_quantity::image_name`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
}

/// Equal pods of one workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PodGroup {
    /// `Kind/name` of the workload.
    pub workload: String,
    /// Number of pods; ignored if `perNode`.
    pub replicas: u32,
    /// Additional pods during an update (`maxSurge`); counted only then.
    #[serde(default)]
    pub surge: u32,
    /// One pod on each matching node (DaemonSet).
    #[serde(default, alias = "per_node")]
    pub per_node: bool,
    /// Effective requests of one pod, with init containers, sidecars and overhead; `pods` is 1.
    pub requests: Amounts,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// `nodeSelector`: the node must have every label.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", alias = "node_selector")]
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: one term must hold, with all its requirements. Empty: no restriction.
    #[serde(default, skip_serializing_if = "Vec::is_empty", alias = "node_affinity")]
    pub node_affinity: Vec<Vec<NodeRequirement>>,
}

/// A toleration of a pod, as in Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Toleration {
    /// Taint key; empty together with `exists`: every taint.
    #[serde(default)]
    pub key: String,
    /// Whether the operator is `Exists`; else it is `Equal`.
    #[serde(default)]
    pub exists: bool,
    /// Value that the taint must have (operator `Equal`).
    #[serde(default)]
    pub value: String,
    /// Taint effect; empty: every effect.
    #[serde(default)]
    pub effect: String,
}

/// One requirement on a node's labels (node affinity `matchExpressions`; `matchFields` on `metadata.name` uses the key
/// `metadata.name`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NodeRequirement {
    pub key: String,
    pub operator: Operator,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// Node selector operators of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

/// Pods of one group on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PodsOnNode {
    pub node: String,
    /// Index into [`crate::Demand::groups`].
    pub group: usize,
    pub count: u32,
}
