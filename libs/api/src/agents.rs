//! Agents that Drover itself runs in clusters: which clusters are to run them (cluster-manager), and how far that is (orchestrator).

use std::collections::BTreeMap;

use drover_scheduling::{MemberKey, MemberState};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// What clusters are to run of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentOrder {
    /// Version of the agent; also the tag of its image.
    pub version: String,
    /// Image without its tag.
    #[serde(default = "image")]
    pub image: String,
    /// The clusters that run the agent: those that match one of these.
    pub on: Vec<AgentPlace>,
    /// Clusters that do not run it although they match, as `<provider>+<cluster>`.
    #[serde(default)]
    pub except: Vec<MemberKey>,
    /// Settings, as environment variables of the agent.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// More settings for single clusters, by `<provider>+<cluster>`.
    #[serde(default)]
    pub members: BTreeMap<String, BTreeMap<String, String>>,
    /// Annotations of its pods.
    #[serde(default)]
    pub pod_annotations: BTreeMap<String, String>,
    /// Seconds for which a new version must have been ready in a cluster before the next cluster gets it; at most 3600.
    #[serde(default = "healthy_seconds")]
    pub healthy_seconds: u32,
    /// No cluster gets a new version while this is set.
    #[serde(default)]
    pub paused: bool,
}

fn image() -> String {
    "drover".to_owned()
}

fn healthy_seconds() -> u32 {
    10
}

/// Clusters: those that have everything that is given. Nothing given: all clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentPlace {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Label of the cluster, as `gpu` or `zone=kr-1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

impl AgentPlace {
    /// Whether a cluster with these labels is meant.
    pub fn matches(&self, member: &MemberKey, labels: &[String]) -> bool {
        let same = |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
        same(&self.provider, member.provider())
            && same(&self.cluster, member.cluster())
            && self.label.as_ref().is_none_or(|wanted| labels.contains(wanted))
    }
}

impl AgentOrder {
    /// Whether a cluster with these labels is to run the agent.
    pub fn includes(&self, member: &MemberKey, labels: &[String]) -> bool {
        !self.except.contains(member) && self.on.iter().any(|place| place.matches(member, labels))
    }
}

/// The orders of all agents, as cluster-manager has them for orchestrator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentOrders {
    pub items: Vec<AgentDocument>,
}

/// The order of one agent, with the clusters that it means now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentDocument {
    /// Name of the agent.
    pub name: String,
    /// Grows with every change of the document.
    pub generation: i64,
    pub order: AgentOrder,
    /// Sorted by key.
    pub members: Vec<AgentMember>,
}

/// A cluster that is to run an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentMember {
    pub member: MemberKey,
    pub state: MemberState,
    /// It is closed to new copies of apps.
    pub cordoned: bool,
    /// What the agent reports there; absent if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<AgentReport>,
}

/// What an agent in a cluster reports of itself by its Leases; of several nodes the sums, except where it is said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentReport {
    /// Version of the program that reports; with several, the lowest as a text.
    pub version: String,
    /// Seconds since the last sign of life, of the longest silent node.
    pub age_seconds: u64,
    /// Policies (autoscaler) or containers (memory guard) that it watches.
    pub watches: u64,
    /// Nodes that report (memory guard).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nodes: u64,
    /// Policies about which nothing could be decided because a reading was missing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub undecided: u64,
    /// Pods that loads need beyond the upper bounds of their policies.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unmet_pods: u64,
    /// The policies with the most of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmet: Vec<UnmetDemand>,
    /// Containers that are held now.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub held: u64,
    /// Containers that were killed for memory since the guard started.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub oom_kills: u64,
    /// Seconds until the memory of a node would be exhausted at its present growth, of the node with the fewest; absent if none grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_to_exhaustion: Option<u64>,
    /// Memory in use in percent, of the fullest node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_percent: Option<u64>,
}

/// A policy whose load needs more pods than its upper bound allows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnmetDemand {
    /// `namespace/name`
    pub policy: String,
    /// Pods beyond the bound.
    pub pods: u64,
    /// The copy of an app that the policy belongs to, if Drover applied the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<Uuid>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Answer of `GET /v2/agent-copies`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentList {
    /// Sorted by name.
    pub items: Vec<AgentView>,
}

/// An agent and its copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentView {
    pub name: String,
    /// The version that was asked for.
    pub version: String,
    /// Generation of the document that is rolled out; it grows with every change.
    pub generation: i64,
    /// `Rolling`, `Done`, `Paused`, or `Stopped`: a version failed in a cluster, and the version before it runs, or is about to.
    pub state: String,
    /// Why it was stopped, or what the rollout waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Sorted by cluster.
    pub copies: Vec<AgentCopy>,
}

/// An agent in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentCopy {
    pub member: MemberKey,
    /// The version that runs; absent before the first one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// `Waiting`, `Installing`, `Updating`, `Healthy`, `NotReady`, `Failed` or `Removing`.
    pub state: String,
    /// Since when this version is ready there, in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy_since: Option<String>,
    /// Why it is not healthy, or what the last attempt failed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The operation that changes it now, or that changed it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Uuid>,
    /// What it reports of itself; absent if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<AgentReport>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_select_clusters_by_provider_name_and_label() {
        let place = |provider: Option<&str>, cluster: Option<&str>, label: Option<&str>| AgentPlace {
            provider: provider.map(str::to_owned),
            cluster: cluster.map(str::to_owned),
            label: label.map(str::to_owned),
        };
        let (member, labels) = (MemberKey::new("onprem", "a"), ["gpu".to_owned(), "zone=kr-1".to_owned()]);
        for (wanted, expected) in [
            (place(None, None, None), true),
            (place(Some("onprem"), None, None), true),
            (place(Some("aws"), None, None), false),
            (place(Some("onprem"), Some("b"), None), false),
            (place(None, Some("a"), Some("zone=kr-1")), true),
            (place(None, None, Some("zone")), false),
        ] {
            assert_eq!(wanted.matches(&member, &labels), expected, "{wanted:?}");
        }
        let order = AgentOrder { on: vec![place(Some("onprem"), None, None)], ..AgentOrder::default() };
        assert!(order.includes(&member, &labels));
        assert!(!AgentOrder { except: vec![member.clone()], ..order }.includes(&member, &labels));
    }
}
