//! The fleet: members, their nodes, and the claims on them.
//!
//! Two sums per node:
//! ```text
//! present = foreign + Σ held + Σ leaving      claim held:     present and future must fit
//! future  = foreign + Σ held + Σ promised     claim promised: future must fit;  promised -> held: present must fit
//! ```
//! A claim counts the larger of its own amounts and the observed amounts of its binding; observed nodes replace assumed ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;

use crate::{Amounts, AppRequest, ByNode, DigRef, Labels, MemberKey, PodsOnNode, Storage};

/// The input of decisions and plans.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Fleet {
    pub members: BTreeMap<MemberKey, FleetMember>,
    /// Capacity of the members. It is unknown, and nothing new is claimed there, if there is no entry or `age_ms` exceeds
    /// [`Capacity::FRESH_MS`].
    pub capacity: BTreeMap<MemberKey, Arc<Capacity>>,
    pub claims: BTreeMap<Uuid, Arc<Claim>>,
}

/// Before the name of a pod network in a label of a cluster.
const POD_NETWORK: &str = "pod-network=";

/// The pod network of a cluster with these labels, if it has one: pods reach the pods of all clusters of the same network by their
/// addresses. Names of Services follow an app there.
pub fn pod_network(labels: &[String]) -> Option<&str> {
    labels.iter().find_map(|label| label.strip_prefix(POD_NETWORK)).filter(|name| !name.is_empty())
}

/// A registered cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FleetMember {
    pub key: MemberKey,
    /// Priority of its provider, 1 (best) to 10.
    pub priority: u8,
    #[serde(default)]
    pub labels: Vec<String>,
    pub state: MemberState,
    /// Reason of the state, for users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Set while the member is closed to new copies; what runs there is not affected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordoned: Option<Cordon>,
    /// Set for a member that is reached through the connection of its agent, and in no other way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<MemberLink>,
}

/// How the agent of a linked member (`drover-link`) is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct MemberLink {
    /// Since when the agent has been connected, RFC 3339; absent while it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected_since: Option<String>,
    /// Until when the certificate of its connection is valid, RFC 3339. It is renewed after two thirds of its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_expires: Option<String>,
    /// Version of the agent that is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Since when, and why, a member is closed to new copies of apps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Cordon {
    /// RFC 3339.
    pub since: String,
    /// Reason, for users.
    pub reason: String,
}

/// State of the connection to a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum MemberState {
    /// Registered but not probed yet.
    #[default]
    Unknown,
    /// It answers; its nodes and pods are watched.
    Ready,
    /// It does not answer.
    Unreachable,
    /// It answers 401 or 403.
    Unauthorized,
    /// It is being removed; nothing new is claimed there.
    Deregistering,
}

impl MemberState {
    /// Whether room may be claimed on a member in this state whose capacity was observed `age_ms` milliseconds ago (`None`: never).
    pub fn is_known(self, age_ms: Option<u64>) -> bool {
        self == Self::Ready && age_ms.is_some_and(|age| age <= Capacity::FRESH_MS)
    }

    /// Whether the capacity is unknown but expected soon: the member is not reported as unreachable, and its capacity is missing or
    /// outdated.
    pub fn is_awaited(self, age_ms: Option<u64>) -> bool {
        matches!(self, Self::Unknown | Self::Ready) && !self.is_known(age_ms)
    }
}

/// The capacity of one member as last observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Capacity {
    /// Nodes, sorted by name.
    pub nodes: Arc<Vec<Node>>,
    /// Observed pods of Drover's bindings, by binding id.
    #[serde(default, deserialize_with = "filled")]
    pub observed: BTreeMap<Uuid, Observed>,
    /// Age of the observation in milliseconds when the fleet was assembled; readers add the time since then.
    #[serde(default, alias = "age_ms")]
    pub age_ms: u64,
    /// Whether metrics.k8s.io is available.
    #[serde(default)]
    pub metrics: bool,
    /// Images on its nodes, used by `MoveCost`: the largest that the nodes report, and those of Drover's pods.
    #[serde(default, skip_serializing_if = "is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, u64>))]
    pub images: Arc<Images>,
    /// Its volumes; absent while they are not known or may not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Storage>))]
    pub storage: Option<Arc<Storage>>,
}

impl Capacity {
    /// Age in milliseconds beyond which an observation is ignored and the capacity counts as unknown.
    pub const FRESH_MS: u64 = 30_000;
}

/// Images of a member under their normalised name (`drover_quantity::image_name`), with their sizes in bytes; 0 if the size is not
/// reported.
pub type Images = BTreeMap<Arc<str>, u64>;

/// A node of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Node {
    pub name: String,
    /// Amounts that pods may request in total.
    pub allocatable: Amounts,
    /// Requests of the node's pods that Drover does not manage.
    pub foreign: Amounts,
    /// Usage reported by metrics.k8s.io, if available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Amounts>,
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, String>))]
    pub labels: Arc<Labels>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Cordoned or not Ready: it gets no new pods.
    #[serde(default)]
    pub unschedulable: bool,
}

/// A taint of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Taint {
    pub key: String,
    #[serde(default)]
    pub value: String,
    /// `NoSchedule`, `NoExecute` or `PreferNoSchedule`; the last one forbids nothing.
    pub effect: String,
}

/// Observations of one binding on its member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    /// Requests of its pods, by node.
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, Amounts>))]
    pub requests: ByNode,
    /// CPU in millicores and memory in bytes used by its pods. Absent if not reported; 0 never stands for unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Amounts>,
    /// Age of its oldest running pod, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "age_s")]
    pub age_s: Option<u64>,
    /// Median time of its pods from creation to Ready, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "ready_s")]
    pub ready_s: Option<f64>,
    /// Memory in use in percent, as a memory guard reports it, on the fullest of the nodes where its pods run. Absent without a guard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_pressure: Option<u64>,
    /// Pods that its load needs beyond the upper bounds of its scaling policies. Absent if no autoscaler reports any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmet_pods: Option<u64>,
}

/// Collects the map anew: a B-tree that grew at its end is half empty, one built from sorted entries is full.
fn filled<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<Uuid, Observed>, D::Error> {
    Ok(BTreeMap::deserialize(deserializer)?.into_iter().collect())
}

fn is_empty(images: &Images) -> bool {
    images.is_empty()
}

/// Room on a member that is reserved for a binding. The claim and the binding have the same id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Claim {
    pub id: Uuid,
    pub dig: Arc<DigRef>,
    /// The app with its demand and terms, so that plans need no other source.
    pub request: Arc<AppRequest>,
    pub member: MemberKey,
    pub state: ClaimState,
    /// The witness: a packing of the pods on nodes that proves that they fit. The member's scheduler is free to choose other nodes.
    pub pods: Vec<PodsOnNode>,
    /// The additional pods of a running update count too.
    #[serde(default)]
    pub surging: bool,
    /// Fence of the last writer; a writer with a lower one is refused.
    pub fence: i64,
    /// The operation that wrote it last.
    pub operation: Uuid,
}

/// State of a claim; see the module for what each state counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ClaimState {
    /// The room is used now and later.
    #[default]
    Held,
    /// The room will be used once leaving claims are gone.
    Promised,
    /// The room is used now and will be freed.
    Leaving,
}
