//! The fleet as the ledger sees it: members, their nodes, and the claims on them.
//!
//! Two sums per node (design.md section 2):
//! ```text
//! present = foreign + Σ held + Σ leaving      claim held:     present and future must fit
//! future  = foreign + Σ held + Σ promised     claim promised: future must fit;  promised -> held: present must fit
//! ```
//! A claim counts the larger of what it claims and what is observed of its binding; observed nodes replace assumed ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;

use crate::{Amounts, AppRequest, ByNode, DigRef, Labels, MemberKey, PodsOnNode};

/// Everything a decision looks at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Fleet {
    /// Members by key.
    pub members: BTreeMap<MemberKey, FleetMember>,
    /// What is known of their room. No entry, or `age_ms` over [`Capacity::FRESH_MS`]: unknown, nothing new is claimed there.
    pub capacity: BTreeMap<MemberKey, Arc<Capacity>>,
    /// Claims by id.
    pub claims: BTreeMap<Uuid, Arc<Claim>>,
}

/// A registered cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FleetMember {
    /// Key.
    pub key: MemberKey,
    /// Priority of its provider, 1 (best) to 10.
    pub priority: u8,
    /// Its labels.
    #[serde(default)]
    pub labels: Vec<String>,
    /// State.
    pub state: MemberState,
    /// Why it is in that state, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// State of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum MemberState {
    /// Registered, not probed yet.
    #[default]
    Unknown,
    /// Answers; its nodes and pods are being watched.
    Ready,
    /// Does not answer.
    Unreachable,
    /// Answers 401 or 403.
    Unauthorized,
    /// Being removed: nothing new is claimed there.
    Deregistering,
}

impl MemberState {
    /// Whether something may be claimed in a member of this state whose capacity was seen so many milliseconds ago, if ever.
    pub fn is_known(self, age_ms: Option<u64>) -> bool {
        self == Self::Ready && age_ms.is_some_and(|age| age <= Capacity::FRESH_MS)
    }

    /// Whether it is not known yet, or not any more, though nobody says that it is silent: then it may soon be heard of.
    pub fn is_awaited(self, age_ms: Option<u64>) -> bool {
        matches!(self, Self::Unknown | Self::Ready) && !self.is_known(age_ms)
    }
}

/// The room of one member, as last seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Capacity {
    /// Nodes, by name.
    pub nodes: Arc<Vec<Node>>,
    /// What is observed of Drover's bindings, by binding id.
    #[serde(default, deserialize_with = "filled")]
    pub observed: BTreeMap<Uuid, Observed>,
    /// Age of this knowledge in milliseconds when the fleet was put together (readers add their own delay).
    #[serde(default)]
    pub age_ms: u64,
    /// Whether metrics.k8s.io answers there.
    #[serde(default)]
    pub metrics: bool,
    /// Images on its nodes (for `MoveCost`): the largest that they report, and those of Drover's own pods.
    #[serde(default, skip_serializing_if = "is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, u64>))]
    pub images: Arc<Images>,
}

impl Capacity {
    /// Older knowledge than this is no knowledge.
    pub const FRESH_MS: u64 = 30_000;
}

/// Images of a member by their one name (`drover_quantity::image_name`), with their sizes in bytes. 0: it is there, and nobody says
/// how large it is.
pub type Images = BTreeMap<Arc<str>, u64>;

/// A node of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Node {
    /// Name.
    pub name: String,
    /// What pods may request in all.
    pub allocatable: Amounts,
    /// Requests of pods on it that are not Drover's.
    pub foreign: Amounts,
    /// Use reported by metrics.k8s.io, where it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Amounts>,
    /// Labels.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, String>))]
    pub labels: Arc<Labels>,
    /// Taints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Cordoned or not Ready: no new pod goes there.
    #[serde(default)]
    pub unschedulable: bool,
}

/// A taint of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value.
    #[serde(default)]
    pub value: String,
    /// `NoSchedule`, `NoExecute` or `PreferNoSchedule` (the last never forbids).
    pub effect: String,
}

/// What is observed of one binding in its member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Observed {
    /// Requests of its pods by node.
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, Amounts>))]
    pub requests: ByNode,
    /// CPU in milli-cores and memory in bytes that its pods use; absent: not reported (never zero instead).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Amounts>,
    /// Age of its oldest running pod in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_s: Option<u64>,
    /// Median seconds from creation to Ready of its pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_s: Option<f64>,
}

/// A B-tree that grows at its end is half empty; one that is made of all its entries is full.
fn filled<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<Uuid, Observed>, D::Error> {
    Ok(BTreeMap::deserialize(deserializer)?.into_iter().collect())
}

fn is_empty(images: &Images) -> bool {
    images.is_empty()
}

/// Room that a binding takes. Its id is the binding's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Claim {
    /// Claim id = binding id.
    pub id: Uuid,
    /// Whose it is.
    pub dig: Arc<DigRef>,
    /// The app with its demand and terms (so that a plan needs no one else).
    pub request: Arc<AppRequest>,
    /// Where.
    pub member: MemberKey,
    /// State.
    pub state: ClaimState,
    /// The witness that a packing exists: pods on nodes. No order to the member's scheduler.
    pub pods: Vec<PodsOnNode>,
    /// Counts surge too (an update runs).
    #[serde(default)]
    pub surging: bool,
    /// Fence of the last writer.
    pub fence: i64,
    /// Operation that wrote it last.
    pub operation: Uuid,
}

/// State of a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ClaimState {
    /// The room is taken, now and later.
    #[default]
    Held,
    /// The room will be taken when those who leave have left.
    Promised,
    /// The room is taken now and will be free.
    Leaving,
}
