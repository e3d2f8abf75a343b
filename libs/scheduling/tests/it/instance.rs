//! Random fleets: members, running apps and a newcomer.

use std::sync::Arc;

use drover_scheduling::*;
use proptest::prelude::*;

use crate::test_fleet::{TestFleet, app, dig, id, key};

pub const NAMES: [&str; 6] = ["x+a", "x+b", "y+c", "y+d", "z+e", "z+f"];

#[derive(Clone, Debug)]
pub struct MemberSpec {
    priority: u8,
    known: bool,
    nodes: Vec<NodeSpec>,
}

#[derive(Clone, Debug)]
struct NodeSpec {
    cpu: i64,
    memory: i64,
    tainted: bool,
    foreign: i64,
}

#[derive(Clone, Debug)]
pub struct AppSpec {
    member: usize,
    allowed: u8,
    pods: u32,
    cpu: i64,
    memory: i64,
    tolerates: bool,
    migration: bool,
    volume: bool,
    priority: u8,
    state: u8,
}

#[derive(Clone, Debug)]
pub struct Instance {
    pub members: Vec<MemberSpec>,
    pub apps: Vec<AppSpec>,
    pub newcomers: Vec<AppSpec>,
}

fn often(probability: f64) -> impl Strategy<Value = bool> {
    prop::bool::weighted(probability)
}

fn node() -> impl Strategy<Value = NodeSpec> {
    (2..=6i64, 2..=6i64, often(0.1), prop_oneof![6 => Just(0), 1 => 1..=3i64]).prop_map(|(cpu, memory, tainted, foreign)| NodeSpec {
        cpu,
        memory,
        tainted,
        foreign,
    })
}

fn member(nodes: usize) -> impl Strategy<Value = MemberSpec> {
    (1..=2u8, often(0.95), prop::collection::vec(node(), 1..=nodes)).prop_map(|(priority, known, nodes)| MemberSpec {
        priority,
        known,
        nodes,
    })
}

fn one_app(members: usize) -> impl Strategy<Value = AppSpec> {
    let what = (prop_oneof![3 => Just(1u32), 1 => Just(2u32)], 1..=4i64, 1..=4i64, often(0.2));
    let owner = (often(0.85), often(0.05), 1..=3u8, prop_oneof![10 => Just(0u8), 1 => Just(1u8), 1 => Just(2u8)]);
    ((0..members, 1..1u8 << members), what, owner).prop_map(
        |((member, allowed), (pods, cpu, memory, tolerates), (migration, volume, priority, state))| AppSpec {
            member,
            allowed,
            pods,
            cpu,
            memory,
            tolerates,
            migration,
            volume,
            priority,
            state,
        },
    )
}

fn instance_of(members: usize, nodes: usize, apps: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = Instance> {
    let apps = prop::collection::vec(one_app(members), apps);
    (prop::collection::vec(member(nodes), 2..=members), apps, prop::collection::vec(one_app(members), 1..=2))
        .prop_map(|(members, apps, newcomers)| Instance { members, apps, newcomers })
}

/// Small enough for an exhaustive search: two or three members with at most four nodes each, and two to eight apps.
pub fn instance() -> impl Strategy<Value = Instance> {
    instance_of(3, 4, 2..=8)
}

/// Full enough that a newcomer needs moves, with several members to choose from: two to six members with one or two nodes each, and ten to
/// thirty apps.
pub fn full_instance() -> impl Strategy<Value = Instance> {
    instance_of(6, 2, 10..=30)
}

/// Too large for an exhaustive search: two to six members with at most eight nodes each, and ten to forty apps.
pub fn larger_instance() -> impl Strategy<Value = Instance> {
    instance_of(6, 8, 10..=40)
}

impl AppSpec {
    pub fn request(&self, name: &str, members: usize) -> AppRequest {
        let allowed: Vec<&str> = (0..members).filter(|m| self.allowed & (1 << m) != 0).map(|m| NAMES[m]).collect();
        let mut request = app(name, Demand::default(), crate::test_fleet::any_of(&allowed));
        request.demand.groups = vec![PodGroup {
            workload: "Deployment/main".into(),
            replicas: self.pods,
            requests: Amounts::pod(self.cpu, self.memory),
            tolerations: if self.tolerates { vec![Toleration { exists: true, ..Toleration::default() }] } else { vec![] },
            ..PodGroup::default()
        }];
        request.demand.volumes = u32::from(self.volume);
        request
    }
}

/// For half of the seeds: puts the running apps into one group and adds calls among them and among the newcomer's apps.
pub fn calling((mut fleet, mut apps): (TestFleet, Vec<AppRequest>), seed: u64) -> (TestFleet, Vec<AppRequest>) {
    let mut random = fastrand::Rng::with_seed(seed);
    if random.bool() {
        return (fleet, apps);
    }
    let mut terms = |among: &[String]| CallTerms {
        to: among.iter().map(|app| CallTo { app: app.clone(), micro_calls: random.u64(0..5) * 1_000_000 }).collect(),
        rho: 3,
        keep_together: seed.is_multiple_of(3),
        policy: if seed.is_multiple_of(2) { GroupPolicy::Learned } else { GroupPolicy::CgsGreedy },
        latencies: vec![Latency { from: key(NAMES[0]), to: key(NAMES[1]), us: random.u32(0..9) }],
    };
    let names: Vec<String> = fleet.fleet.claims.values().map(|claim| claim.request.app.clone()).collect();
    for claim in fleet.fleet.claims.values_mut() {
        let claim = Arc::make_mut(claim);
        claim.dig = dig("shop").into();
        Arc::make_mut(&mut claim.request).terms.calls = Some(terms(&names));
    }
    fleet.movability.iter_mut().for_each(|word| word.dig = id("shop"));
    let names: Vec<String> = apps.iter().map(|app| app.app.clone()).collect();
    apps.iter_mut().for_each(|app| app.terms.calls = Some(terms(&names)));
    (fleet, apps)
}

impl Instance {
    /// The fleet and the newcomer's apps. Running apps that do not fit on their member are left out.
    pub fn build(&self) -> (TestFleet, Vec<AppRequest>) {
        let mut fleet = TestFleet::default();
        for (m, spec) in self.members.iter().enumerate() {
            fleet = fleet.member(NAMES[m], spec.priority, &vec![0; spec.nodes.len()]);
            fleet = fleet.change_capacity(NAMES[m], |c| {
                for (node, spec) in Arc::make_mut(&mut c.nodes).iter_mut().zip(&spec.nodes) {
                    node.allocatable = Amounts { cpu: spec.cpu, memory: spec.memory, pods: 5, ..Amounts::default() };
                    node.foreign = Amounts::pod(spec.foreign.min(spec.cpu), 0);
                    if spec.tainted {
                        node.taints = vec![Taint { key: "t".into(), value: String::new(), effect: "NoSchedule".into() }];
                    }
                }
                c.age_ms = if spec.known { 0 } else { 60_000 };
            });
        }
        for (i, spec) in self.apps.iter().enumerate() {
            let name = format!("app{i}");
            let member = key(NAMES[spec.member % self.members.len()]);
            let request = Arc::new(AppRequest {
                terms: PlacementTerms { allow_dependants: Some(true), ..spec.request(&name, self.members.len()).terms },
                ..spec.request(&name, self.members.len())
            });
            let ledger = fleet.ledger();
            let free = ledger.room(&member).unwrap().free();
            let Some(mut packing) = pack(free, &[Ask::held(&request.demand)]) else { continue };
            let state = match spec.state {
                1 => ClaimState::Leaving,
                2 => ClaimState::Promised,
                _ => ClaimState::Held,
            };
            let claim = Claim {
                id: id(&name),
                dig: Arc::new(crate::test_fleet::dig(&name)),
                request,
                member,
                state,
                pods: packing.remove(0),
                surging: false,
                fence: 1,
                operation: id("deployed"),
            };
            fleet.fleet.claims.insert(claim.id, Arc::new(claim));
            fleet.movability.push(Movability { dig: id(&name), app: name, migration: spec.migration, priority: spec.priority });
        }
        let newcomers = self.newcomers.iter().enumerate().map(|(i, s)| s.request(&format!("new{i}"), self.members.len())).collect();
        (fleet, newcomers)
    }
}
