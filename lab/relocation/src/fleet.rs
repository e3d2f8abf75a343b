//! The three clusters and the applications as the product sees them.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_scheduling::{
    Amounts, AppRequest, Capacity, DigRef, Element, FleetMember, Intent, Ledger, MemberKey, MemberState, Node, Observed, PlacementTerms,
    PodGroup, WhenFull,
};
use uuid::Uuid;

use crate::draw::{Allowed, Application, CLUSTERS, Microservice, NodeSize, PRIVATE};

/// Bytes of a MiB.
pub const MIB: i64 = 1 << 20;
/// Pods that a node takes, as kubelet's default.
const PODS: i64 = 110;

/// The key of a cluster; those of one owner have the same provider.
pub fn key(cluster: usize) -> MemberKey {
    MemberKey::new(provider(cluster), CLUSTERS[cluster])
}

/// The index of a cluster.
pub fn index(key: &MemberKey) -> usize {
    CLUSTERS.iter().position(|name| *name == key.cluster()).unwrap_or_default()
}

fn provider(cluster: usize) -> &'static str {
    if cluster < PRIVATE { "private" } else { "public" }
}

/// An empty fleet. `private` and `public` are the priorities of the providers.
pub fn fleet(size: NodeSize, private: u8, public: u8) -> Ledger {
    let mut ledger = Ledger::default();
    for cluster in 0..CLUSTERS.len() {
        let labels = Allowed::ALL.map(Allowed).filter(|allowed| allowed.contains(cluster)).map(Allowed::label).collect();
        let priority = if cluster < PRIVATE { private } else { public };
        ledger.set_member(FleetMember { key: key(cluster), priority, labels, state: MemberState::Ready, ..FleetMember::default() });
        ledger.set_capacity(&key(cluster), Some(Arc::new(capacity(size, BTreeMap::new()))));
    }
    ledger
}

/// The capacity of a cluster with these pods.
pub fn capacity(size: NodeSize, observed: BTreeMap<Uuid, Observed>) -> Capacity {
    let allocatable = Amounts { cpu: size.cpu, memory: size.memory * MIB, pods: PODS, ..Amounts::default() };
    Capacity { nodes: Arc::new(vec![Node { name: "node".into(), allocatable, ..Node::default() }]), observed, ..Capacity::default() }
}

/// The deployment intent group of the application that arrives as number `arrival`.
pub fn dig(arrival: usize) -> DigRef {
    let name = format!("app-{:02}", arrival + 1);
    let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes());
    DigRef { id, project: "experiment".into(), composite_app: name.clone(), version: "v1".into(), name }
}

/// The name of a microservice, by its position in the application.
pub fn name(microservice: usize) -> String {
    format!("m{}", microservice + 1)
}

/// The position of a microservice, by its name.
pub fn position(name: &str) -> usize {
    name.strip_prefix('m').and_then(|number| number.parse::<usize>().ok()).map_or(0, |number| number - 1)
}

/// The microservices of an application as a request for room.
pub fn requests(application: &Application, when_full: WhenFull) -> Vec<AppRequest> {
    application.microservices.iter().enumerate().map(|(at, one)| request(at, one, when_full)).collect()
}

fn request(at: usize, microservice: &Microservice, when_full: WhenFull) -> AppRequest {
    let requests = Amounts::pod(microservice.cpu, microservice.memory * MIB);
    let pods = PodGroup { workload: "Deployment/main".into(), replicas: 1, requests, ..PodGroup::default() };
    // A label of a provider's clusters: one element for each provider that has such clusters.
    let mut providers: Vec<&str> = microservice.allowed.clusters().map(provider).collect();
    providers.dedup();
    let element = |provider: &str| Element {
        cluster_provider: Some(provider.to_owned()),
        cluster_label: Some(microservice.allowed.label()),
        ..Element::default()
    };
    let terms = PlacementTerms {
        intent: Intent { all_of: Vec::new(), any_of: providers.into_iter().map(element).collect() },
        logical_cloud: (0..CLUSTERS.len()).map(key).collect(),
        when_full,
        allow_dependants: Some(true),
        ..PlacementTerms::default()
    };
    AppRequest { app: name(at), demand: drover_scheduling::Demand { groups: vec![pods], ..Default::default() }, terms }
}

/// Requested / allocatable, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    pub cpu: f64,
    pub memory: f64,
}

/// The occupancy of the clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Occupancy {
    /// The private clusters A and B together.
    pub private: Share,
    /// The public cluster C.
    pub public: Share,
    /// All three clusters together.
    pub total: Share,
}

impl Occupancy {
    /// The occupancy by what the ledger counts as used.
    pub fn of(ledger: &Ledger) -> Self {
        let share = |clusters: std::ops::Range<usize>| {
            let (mut all, mut free) = (Amounts::default(), Amounts::default());
            for room in clusters.filter_map(|cluster| ledger.room(&key(cluster))) {
                room.nodes().iter().for_each(|node| all.add(&node.allocatable, 1));
                room.free().now.iter().for_each(|left| free.add(left, 1));
            }
            Share { cpu: 1.0 - free.cpu as f64 / all.cpu as f64, memory: 1.0 - free.memory as f64 / all.memory as f64 }
        };
        Self { private: share(0..PRIVATE), public: share(PRIVATE..CLUSTERS.len()), total: share(0..CLUSTERS.len()) }
    }
}
