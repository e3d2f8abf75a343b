//! Nodes, pods and applied objects as they are watched: only the fields that capacity and readiness need.
//!
//! A full Pod of a busy cluster takes some 10 kB of memory, these types take a few hundred bytes; sums are made while decoding, so
//! that nothing larger is kept. Use these types with `kube::Api` and `kube::runtime::watcher` like any other resource.
//!
//! Invariant: a missing or unreadable field counts as zero or absent; the API server has validated the object before.

use std::borrow::Cow;
use std::collections::BTreeMap;

use drover_quantity::{PodSpec, Quantity};
use drover_scheduling::{Amounts, Taint};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::core::{ApiResource, ClusterResourceScope, DynamicResourceScope, NamespaceResourceScope};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{amounts, labels};

/// A pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "RawPod")]
pub struct Pod {
    /// See [`Object::metadata`].
    pub metadata: ObjectMeta,
    /// Effective requests, see [`amounts::of_pod`].
    pub requests: Amounts,
    /// Node to which it is bound.
    pub node: Option<String>,
    /// `Pending`, `Running`, `Succeeded`, `Failed`, `Unknown`.
    pub phase: String,
    /// Condition Ready.
    pub ready: bool,
    /// When the condition Ready last changed.
    pub ready_changed: Option<Timestamp>,
    /// The scheduler's message if the pod fits on no node.
    pub unschedulable: Option<String>,
    /// Why a container waits or ended (`CrashLoopBackOff: back-off …`).
    pub trouble: Option<String>,
    /// Images of its containers.
    pub images: Vec<String>,
}

impl Pod {
    /// Whether it uses resources of a node: bound, and not ended.
    pub fn takes_room(&self) -> bool {
        self.node.is_some() && !self.ended()
    }
    /// Whether it succeeded or failed, so that it will never run again.
    pub fn ended(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }
    /// The binding to which the pod belongs; `None` if it is not Drover's.
    pub fn binding(&self) -> Option<Uuid> {
        labels::binding(&self.metadata)
    }
    /// When it was created.
    pub fn created(&self) -> Option<Timestamp> {
        self.metadata.creation_timestamp.as_ref().map(|time| time.0)
    }
    /// Seconds from its creation until it was ready; `None` while it is not ready.
    pub fn seconds_to_ready(&self) -> Option<f64> {
        let (created, ready) = (self.created()?, self.ready_changed.filter(|_| self.ready)?);
        Some((ready - created).total(jiff::Unit::Second).ok()?.max(0.0))
    }
}

/// A node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "RawNode")]
pub struct Node {
    /// See [`Object::metadata`].
    pub metadata: ObjectMeta,
    /// The sum that its pods may request.
    pub allocatable: Amounts,
    pub taints: Vec<Taint>,
    /// Whether it is cordoned, so that no further pod is scheduled to it.
    pub cordoned: bool,
    /// Whether its kubelet is ready for pods: the condition Ready is true, and Kubernetes has removed its taint for nodes that are not.
    pub ready: bool,
    /// Images on it, with their size in bytes.
    pub images: Vec<NodeImage>,
}

/// An object of any kind.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "RawObject")]
pub struct Object {
    /// Name, namespace, uid, labels, owners, version, times and the annotations [`labels::DIGEST`],
    /// [`labels::SERVING_WHEN`] and [`labels::RESOURCE_POLICY`]; nothing else is kept.
    pub metadata: ObjectMeta,
    /// `spec` and `status`, as far as [`crate::readiness`] looks at them.
    pub judged: Value,
}

/// An image that a node reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeImage {
    /// Its names.
    pub names: Vec<String>,
    /// Size in bytes.
    pub size_bytes: u64,
}

#[derive(Deserialize)]
struct RawPod {
    #[serde(default)]
    metadata: RawMeta,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: RawPodStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawPodStatus {
    phase: String,
    conditions: Vec<Condition>,
    container_statuses: Vec<ContainerStatus>,
    init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    r#type: String,
    status: String,
    reason: String,
    message: String,
    last_transition_time: Option<Time>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerStatus {
    name: String,
    state: ContainerState,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    waiting: Option<Cause>,
    terminated: Option<Cause>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Cause {
    reason: String,
    message: String,
    exit_code: i64,
}

#[derive(Deserialize)]
struct RawObject {
    #[serde(default)]
    metadata: RawMeta,
    #[serde(default)]
    spec: RawSpec,
    #[serde(default)]
    status: Value,
}

/// Without templates, which are larger than all other fields.
#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct RawSpec {
    #[serde(skip_serializing_if = "Value::is_null")]
    replicas: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    suspend: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    update_strategy: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    r#type: Value,
    #[serde(rename = "clusterIP", skip_serializing_if = "Value::is_null")]
    cluster_ip: Value,
}

impl From<RawObject> for Object {
    fn from(RawObject { metadata, spec, status }: RawObject) -> Self {
        Self { metadata: metadata.into(), judged: json!({"spec": spec, "status": status}) }
    }
}

/// Metadata without managed fields and most annotations, which are larger than all other fields.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    generation: Option<i64>,
    owner_references: Option<Vec<OwnerReference>>,
    annotations: Option<RawAnnotations>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawAnnotations {
    #[serde(rename = "drover.io/digest")]
    digest: Option<String>,
    #[serde(rename = "drover.io/serving-when")]
    serving_when: Option<String>,
    #[serde(rename = "helm.sh/resource-policy")]
    resource_policy: Option<String>,
}

impl RawAnnotations {
    fn known(self) -> Option<BTreeMap<String, String>> {
        let known =
            [(labels::DIGEST, self.digest), (labels::SERVING_WHEN, self.serving_when), (labels::RESOURCE_POLICY, self.resource_policy)];
        let known: BTreeMap<_, _> = known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        (!known.is_empty()).then_some(known)
    }
}

impl From<RawMeta> for ObjectMeta {
    fn from(raw: RawMeta) -> Self {
        Self {
            name: raw.name,
            namespace: raw.namespace,
            uid: raw.uid,
            resource_version: raw.resource_version,
            labels: raw.labels,
            creation_timestamp: raw.creation_timestamp,
            deletion_timestamp: raw.deletion_timestamp,
            generation: raw.generation,
            owner_references: raw.owner_references,
            annotations: raw.annotations.and_then(RawAnnotations::known),
            ..Self::default()
        }
    }
}

impl From<RawPod> for Pod {
    fn from(RawPod { metadata, spec, status }: RawPod) -> Self {
        let condition = |kind: &str| status.conditions.iter().find(|condition| condition.r#type == kind);
        let ready = condition("Ready");
        let scheduled = condition("PodScheduled").filter(|c| c.status == "False" && c.reason == "Unschedulable");
        let trouble = status.init_container_statuses.iter().chain(&status.container_statuses).find_map(ContainerStatus::trouble);
        Self {
            requests: amounts::of_pod(&spec).unwrap_or_else(|_| Amounts { pods: 1, ..Amounts::default() }),
            ready: ready.is_some_and(|condition| condition.status == "True"),
            ready_changed: ready.and_then(|condition| condition.last_transition_time.as_ref()).map(|time| time.0),
            unschedulable: scheduled.map(|condition| condition.message.clone()),
            trouble,
            images: spec.containers.into_iter().map(|container| container.image).filter(|image| !image.is_empty()).collect(),
            metadata: metadata.into(),
            node: spec.node_name,
            phase: status.phase,
        }
    }
}

impl ContainerStatus {
    fn trouble(&self) -> Option<String> {
        let (cause, text) = match &self.state {
            ContainerState { waiting: Some(cause), .. }
                if !matches!(cause.reason.as_str(), "" | "ContainerCreating" | "PodInitializing") =>
            {
                (cause, cause.reason.clone())
            }
            ContainerState { terminated: Some(cause), .. } if cause.exit_code != 0 => (cause, format!("exit code {}", cause.exit_code)),
            _ => return None,
        };
        let separator = if cause.message.is_empty() { "" } else { ": " };
        Some(format!("container {}: {text}{separator}{}", self.name, cause.message))
    }
}

#[derive(Deserialize)]
struct RawNode {
    #[serde(default)]
    metadata: RawMeta,
    #[serde(default)]
    spec: RawNodeSpec,
    #[serde(default)]
    status: RawNodeStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawNodeSpec {
    taints: Vec<Taint>,
    unschedulable: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawNodeStatus {
    allocatable: BTreeMap<String, Quantity>,
    conditions: Vec<Condition>,
    images: Vec<NodeImage>,
}

/// The taints that keep pods from a node that is not ready. Kubernetes removes them some time after the condition Ready is true.
const NOT_READY_TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

impl From<RawNode> for Node {
    fn from(RawNode { metadata, spec, status }: RawNode) -> Self {
        let told_ready = status.conditions.iter().any(|condition| condition.r#type == "Ready" && condition.status == "True");
        let kept_from = spec.taints.iter().any(|taint| NOT_READY_TAINTS.contains(&taint.key.as_str()));
        Self {
            metadata: metadata.into(),
            allocatable: amounts::of_list(&status.allocatable).unwrap_or_default(),
            taints: spec.taints,
            cordoned: spec.unschedulable,
            ready: told_ready && !kept_from,
            images: status.images,
        }
    }
}

macro_rules! core_resource {
    ($kind:ident, $plural:literal, $scope:ty) => {
        impl kube::Resource for $kind {
            type DynamicType = ();
            type Scope = $scope;
            fn kind((): &()) -> Cow<'_, str> {
                stringify!($kind).into()
            }
            fn group((): &()) -> Cow<'_, str> {
                "".into()
            }
            fn version((): &()) -> Cow<'_, str> {
                "v1".into()
            }
            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

impl kube::Resource for Object {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;
    fn kind(of: &ApiResource) -> Cow<'_, str> {
        of.kind.as_str().into()
    }
    fn group(of: &ApiResource) -> Cow<'_, str> {
        of.group.as_str().into()
    }
    fn version(of: &ApiResource) -> Cow<'_, str> {
        of.version.as_str().into()
    }
    fn api_version(of: &ApiResource) -> Cow<'_, str> {
        of.api_version.as_str().into()
    }
    fn plural(of: &ApiResource) -> Cow<'_, str> {
        of.plural.as_str().into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

core_resource!(Pod, "pods", NamespaceResourceScope);
core_resource!(Node, "nodes", ClusterResourceScope);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pod_keeps_requests_conditions_and_trouble() {
        let binding = Uuid::from_u128(7);
        let pod: Pod = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "labels": {"drover.io/binding": binding}, "managedFields": [{"manager": "x"}], "annotations": {"a": "b"},
                         "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i:1"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"}],
                       "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}}]}
        }))
        .unwrap();
        assert_eq!((pod.binding(), pod.seconds_to_ready(), pod.takes_room()), (Some(binding), Some(5.0), true));
        assert_eq!((pod.metadata.managed_fields, pod.metadata.annotations), (None, None));
        assert_eq!(pod.trouble.as_deref(), Some("container c: CrashLoopBackOff: back-off"));
        let waiting: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p"}, "spec": {"containers": []},
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]}
        }))
        .unwrap();
        assert_eq!((waiting.unschedulable.as_deref(), waiting.takes_room()), (Some("0/3 nodes"), false));
    }

    #[test]
    fn object_keeps_the_fields_that_readiness_needs() {
        let strategy = json!({"type": "OnDelete"});
        let object: Object = serde_json::from_value(json!({
            "metadata": {"name": "d", "generation": 3, "annotations": {"a": "b", labels::DIGEST: "0f"}, "managedFields": [{"manager": "x"}],
                         "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u", "controller": true}]},
            "spec": {"replicas": 2, "updateStrategy": strategy, "template": {"spec": {"containers": []}}},
            "status": {"readyReplicas": 1}
        }))
        .unwrap();
        assert_eq!(object.judged, json!({"spec": {"replicas": 2, "updateStrategy": strategy}, "status": {"readyReplicas": 1}}));
        assert_eq!(object.metadata.annotations, Some(BTreeMap::from([(labels::DIGEST.to_owned(), "0f".to_owned())])));
        assert_eq!((object.metadata.generation, object.metadata.owner_references.unwrap()[0].controller), (Some(3), Some(true)));
        let service: Object = serde_json::from_value(json!({"spec": {"type": "ExternalName", "clusterIP": "10.0.0.1"}})).unwrap();
        assert_eq!(service.judged, json!({"spec": {"type": "ExternalName", "clusterIP": "10.0.0.1"}, "status": null}));
    }

    #[test]
    fn node_keeps_capacity_taints_and_images() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n", "labels": {"zone": "a"}},
            "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}], "unschedulable": true},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110", "nvidia.com/gpu": "2"},
                       "conditions": [{"type": "Ready", "status": "True"}], "images": [{"names": ["i:1"], "sizeBytes": 5}]}
        }))
        .unwrap();
        assert_eq!((node.allocatable.cpu, node.allocatable.memory, node.allocatable.pods), (4000, 8 << 30, 110));
        assert_eq!(node.allocatable.extra["nvidia.com/gpu"], 2);
        assert!(node.ready && node.cordoned && node.taints.len() == 1 && node.images[0].size_bytes == 5);
    }

    #[test]
    fn node_is_ready_when_kubernetes_has_removed_its_taint() {
        let with = |taint: &str| {
            let node = json!({
                "spec": {"taints": [{"key": taint, "effect": "NoSchedule"}]},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            });
            serde_json::from_value::<Node>(node).unwrap().ready
        };
        assert!(with("example.com/gpu"));
        assert!(!with("node.kubernetes.io/not-ready") && !with("node.kubernetes.io/unreachable"));
    }
}
