//! Members with prices, as the product sees them.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_scheduling::{
    Amounts, AppRequest, Capacity, Demand, DigRef, Element, FleetMember, Intent, Ledger, MemberKey, MemberState, Node, Observed,
    PlacementTerms, PodGroup, WhenFull,
};
use uuid::Uuid;

use super::trace::App;

/// Millicores and MiB of the one node of each member.
pub const NODE: (i64, i64) = (16_000, 32_768);
const MIB: i64 = 1 << 20;
/// Number of members of a zone. Where the number of zones is a multiple of ten, a zone has members of one provider.
const ZONE: usize = 5;

/// A provider: its members have one price.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Provider {
    pub name: &'static str,
    /// Priority in Drover: the cheaper, the more preferred.
    pub priority: u8,
    /// Price of a requested core for an hour. The unit is that of the own members.
    pub price: f64,
    /// How many of every ten members belong to it.
    share: usize,
}

/// The cheapest first.
pub const PROVIDERS: [Provider; 4] = [
    Provider { name: "own", priority: 1, price: 1.0, share: 5 },
    Provider { name: "cloud-a", priority: 4, price: 2.5, share: 2 },
    Provider { name: "cloud-b", priority: 7, price: 3.0, share: 2 },
    Provider { name: "cloud-c", priority: 10, price: 5.0, share: 1 },
];

/// The members.
#[derive(Clone, Debug)]
pub struct Market {
    /// By number of the member.
    pub keys: Arc<[MemberKey]>,
    labels: Vec<Vec<String>>,
    /// Index of its provider in [`PROVIDERS`], by number of the member.
    pub provider: Vec<usize>,
}

impl Market {
    /// A market of this many members, of the providers in turn.
    pub fn new(members: usize) -> Self {
        // The providers take turns.
        let turns: Vec<usize> = (0..PROVIDERS.iter().map(|one| one.share).max().unwrap_or(0))
            .flat_map(|turn| (0..PROVIDERS.len()).filter(move |at| turn < PROVIDERS[*at].share))
            .collect();
        let provider: Vec<usize> = (0..members).map(|at| turns[at % turns.len()]).collect();
        let keys = (0..members).map(|at| MemberKey::new(PROVIDERS[provider[at]].name, &format!("member-{at:04}"))).collect();
        let zones = Self::zones_of(members);
        let labels = |at: usize| {
            let own = (provider[at] == 0).then(|| "private".to_owned());
            ["all".to_owned(), format!("zone-{}", 1 + at % zones)].into_iter().chain(own).collect()
        };
        Self { keys, labels: (0..members).map(labels).collect(), provider }
    }

    fn zones_of(members: usize) -> usize {
        (members / ZONE).max(1)
    }

    /// Number of zones.
    pub fn zones(&self) -> usize {
        Self::zones_of(self.keys.len())
    }

    /// Millicores of all members.
    pub fn millicores(&self) -> i64 {
        NODE.0 * self.keys.len() as i64
    }

    /// Whether a member has a label.
    pub fn has(&self, member: usize, label: &str) -> bool {
        self.labels[member].iter().any(|one| one == label)
    }

    /// Whether any member has a label.
    pub fn knows(&self, label: &str) -> bool {
        self.labels.iter().flatten().any(|one| one == label)
    }

    /// The number of a member.
    pub fn index(&self, key: &MemberKey) -> usize {
        key.cluster().strip_prefix("member-").and_then(|number| number.parse().ok()).unwrap_or_default()
    }

    /// The price of a core for an hour on a member.
    pub fn price(&self, member: usize) -> f64 {
        PROVIDERS[self.provider[member]].price
    }

    /// An empty fleet.
    pub fn fleet(&self) -> Ledger {
        let mut ledger = Ledger::default();
        for (at, key) in self.keys.iter().enumerate() {
            ledger.set_member(FleetMember {
                key: key.clone(),
                priority: PROVIDERS[self.provider[at]].priority,
                labels: self.labels[at].clone(),
                state: MemberState::Ready,
                ..FleetMember::default()
            });
            ledger.set_capacity(key, Some(Arc::new(capacity(BTreeMap::new()))));
        }
        ledger
    }

    /// An application as a request for room on one member.
    pub fn request(&self, app: &App, when_full: WhenFull) -> AppRequest {
        let requests = Amounts::pod(app.cpu, app.memory * MIB);
        let replicas = u32::try_from(app.pods).unwrap_or(u32::MAX);
        let pods = PodGroup { workload: "Deployment/main".into(), replicas, requests, ..PodGroup::default() };
        let of = |provider: &Provider| Element {
            cluster_provider: Some(provider.name.to_owned()),
            cluster_label: Some(app.label.clone()),
            ..Element::default()
        };
        let terms = PlacementTerms {
            intent: Intent { all_of: Vec::new(), any_of: PROVIDERS.iter().map(of).collect() },
            logical_cloud: Arc::clone(&self.keys),
            when_full,
            allow_dependants: Some(true),
            ..PlacementTerms::default()
        };
        AppRequest { app: "main".to_owned(), demand: Demand { groups: vec![pods], ..Demand::default() }, terms }
    }
}

/// The capacity of a member with these pods.
pub fn capacity(observed: BTreeMap<Uuid, Observed>) -> Capacity {
    let allocatable = Amounts { cpu: NODE.0, memory: NODE.1 * MIB, pods: 110, ..Amounts::default() };
    Capacity { nodes: Arc::new(vec![Node { name: "node".into(), allocatable, ..Node::default() }]), observed, ..Capacity::default() }
}

/// The deployment intent group of the application with this number.
pub fn dig(number: usize) -> DigRef {
    let name = format!("app-{number:06}");
    let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes());
    DigRef { id, project: "replay".into(), composite_app: name.clone(), version: "v1".into(), name }
}

/// The number of an application, by its group.
pub fn number(dig: &DigRef) -> usize {
    dig.name.strip_prefix("app-").and_then(|number| number.parse().ok()).unwrap_or_default()
}
