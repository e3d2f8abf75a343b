//! Time of a plan for a newcomer with 1,000 candidates on 100 members; calls the planner directly, as migration does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail};
use drover_api::scheduling::{
    AlgorithmUse, Amounts, AppRequest, Capacity, Claim, ClaimState, Demand, DigRef, Element, Fleet, FleetMember, Intent, Ledger, MemberKey,
    MemberState, Movability, Node, Observed, PlacementTerms, PlanKind, PlanRequest, PlanResult, PodGroup, PodsOnNode, Policy,
    builtin_algorithms, builtin_parameters, plan,
};
use drover_report::{Check, Report, Table};
use uuid::Uuid;

use super::{Size, cell, spread, world};

const PROVIDERS: usize = 10;
const NODES: usize = 20;
/// CPU of a node and of a candidate in millicores.
const NODE: i64 = 16_000;
const APP: i64 = 300;

/// Measures how long a plan takes.
///
/// # Errors
/// No plan is found.
pub async fn run(size: Size, report: &mut Report) -> Result<()> {
    let (members, candidates, rounds) = size.of((100, 1_000, 100), (5, 40, 2));
    let ledger = Ledger::from(&fleet(members, candidates));
    let mut table = Table::new("plan", ["policy", "moves", "candidates", "examined", "p50 [ms]", "p90 [ms]", "p99 [ms]"]);
    // The newcomer needs a part of every node of the first member, over which the candidates are spread evenly.
    for (name, policy) in [("none (intent priority, cost)", Policy::default()), ("CPU use, then cost of the move", by_use())] {
        // So much that about every tenth candidate has to move.
        let taken = (candidates / NODES) as i64 * APP;
        let newcomer = newcomer(&keys(members), NODES as u32, NODE - taken + taken / 10, 64 << 20);
        let request = request(newcomer, candidates, policy);
        let (mut took, mut last) = (Vec::new(), None);
        for _ in 0..rounds {
            let began = Instant::now();
            last = Some(plan(&ledger, &request));
            took.push(began.elapsed());
        }
        let Some(PlanResult::Feasible(made)) = last else { bail!("no plan: {last:#?}") };
        let [p50, p90, p99, _]: [f64; 4] = spread(&took);
        let counts = [made.waves.iter().map(Vec::len).sum::<usize>(), made.candidates.len()].map(|count| count.to_string());
        let mut row = vec![name.to_owned()];
        row.extend(counts);
        row.push(made.examined.to_string());
        row.extend([p50, p90, p99].map(cell));
        table.row(row);
        report.checks.push(Check::at_most(format!("plan over {candidates} candidates, policy {name}, p99"), 50.0, p99, "ms"));
    }
    report.tables.push(table);
    Ok(())
}

fn by_use() -> Policy {
    let of = |algorithm: &str| AlgorithmUse { algorithm: algorithm.into(), ..AlgorithmUse::default() };
    Policy {
        name: "by-use".into(),
        algorithms: vec![of("CPUUtilization"), of("MoveCost")],
        definitions: builtin_algorithms(),
        parameters: builtin_parameters(),
        ..Policy::default()
    }
}

/// The keys of so many members.
pub fn keys(members: usize) -> Vec<MemberKey> {
    (0..members).map(|at| MemberKey(world::key(at, PROVIDERS))).collect()
}

fn anywhere(keys: &[MemberKey]) -> PlacementTerms {
    let element = |at| Element { cluster_provider: Some(world::provider(at)), cluster_label: Some("all".into()), ..Element::default() };
    let any_of = (0..PROVIDERS.min(keys.len())).map(element).collect();
    PlacementTerms {
        intent: Intent { any_of, ..Intent::default() },
        logical_cloud: keys.into(),
        allow_dependants: Some(true),
        ..PlacementTerms::default()
    }
}

fn demand(replicas: u32, cpu: i64, memory: i64) -> Demand {
    let group = PodGroup { workload: "Deployment/app".into(), replicas, requests: Amounts::pod(cpu, memory), ..PodGroup::default() };
    Demand { groups: vec![group], ..Demand::default() }
}

fn dig(name: &str) -> DigRef {
    let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes());
    DigRef { id, project: "default".into(), composite_app: name.into(), version: "v1".into(), name: name.into() }
}

fn app(at: usize) -> String {
    format!("app-{at:04}")
}

/// Adds a member with nodes of these CPUs in millicores.
pub fn add_member(fleet: &mut Fleet, key: &MemberKey, priority: u8, nodes: &[i64]) {
    let labels = vec!["all".to_owned()];
    let member = FleetMember { key: key.clone(), priority, labels, state: MemberState::Ready, ..FleetMember::default() };
    fleet.members.insert(key.clone(), member);
    let allocatable = |cpu| Amounts { cpu, memory: 64 << 30, pods: 110, ..Amounts::default() };
    let node = |(n, cpu): (usize, &i64)| Node { name: node(n), allocatable: allocatable(*cpu), ..Node::default() };
    let nodes = Arc::new(nodes.iter().enumerate().map(node).collect());
    fleet.capacity.insert(key.clone(), Arc::new(Capacity { nodes, ..Capacity::default() }));
}

fn node(n: usize) -> String {
    format!("n{n:02}")
}

/// An app with one pod on the first member that may move to all others.
pub struct Running {
    pub at: usize,
    /// The number of its node.
    pub node: usize,
    /// CPU request of its pod, in millicores.
    pub cpu: i64,
    /// Memory request of its pod, in bytes.
    pub memory: i64,
}

/// Adds its claim and what is observed of it: its requests and a use that differs from app to app.
pub fn add_claim(fleet: &mut Fleet, keys: &[MemberKey], Running { at, node: n, cpu, memory }: Running) {
    let (dig, node) = (Arc::new(dig(&app(at))), node(n));
    let id = dig.id;
    let requests = BTreeMap::from([(node.clone(), Amounts::pod(cpu, memory))]).into();
    let used = Some(Amounts { cpu: (at * 7919 % 300) as i64, memory: memory / 2, ..Amounts::default() });
    if let Some(first) = fleet.capacity.get_mut(&keys[0]) {
        let observed = Observed { requests, used, age_s: Some(3_600), ready_s: Some(3.0), ..Observed::default() };
        Arc::make_mut(first).observed.insert(id, observed);
    }
    let claim = Claim {
        id,
        dig,
        request: Arc::new(AppRequest { app: app(at), demand: demand(1, cpu, memory), terms: anywhere(keys) }),
        member: keys[0].clone(),
        state: ClaimState::Held,
        pods: vec![PodsOnNode { node, group: 0, count: 1 }],
        surging: false,
        fence: 1,
        operation: Uuid::nil(),
    };
    fleet.claims.insert(id, Arc::new(claim));
}

/// A fleet with all candidates on the first member, one pod each.
fn fleet(members: usize, candidates: usize) -> Fleet {
    let keys = keys(members);
    let mut fleet = Fleet::default();
    for (at, key) in keys.iter().enumerate() {
        add_member(&mut fleet, key, u8::try_from(1 + at % PROVIDERS).unwrap_or(10), &[NODE; NODES]);
    }
    for at in 0..candidates {
        add_claim(&mut fleet, &keys, Running { at, node: at % NODES, cpu: APP, memory: 64 << 20 });
    }
    fleet
}

/// An app of so many pods that may run only on the first member.
pub fn newcomer(keys: &[MemberKey], pods: u32, cpu: i64, memory: i64) -> AppRequest {
    let first = keys[0].clone();
    let only = Element { cluster_provider: Some(first.provider().into()), cluster: Some(first.cluster().into()), ..Element::default() };
    let intent = Intent { any_of: vec![only], ..Intent::default() };
    let terms = PlacementTerms { intent, logical_cloud: [first].into(), ..PlacementTerms::default() };
    AppRequest { app: "newcomer".into(), demand: demand(pods, cpu, memory), terms }
}

/// A plan request for a newcomer; all candidates may be moved.
pub fn request(newcomer: AppRequest, candidates: usize, policy: Policy) -> PlanRequest {
    let movable = |at: usize| Movability { dig: dig(&app(at)).id, app: app(at), migration: true, priority: 5 };
    PlanRequest {
        kind: PlanKind::Newcomer { dig: dig("newcomer"), apps: vec![newcomer] },
        movability: (0..candidates).map(movable).collect(),
        policy,
        excluded: BTreeMap::new(),
        refused: Vec::new(),
        external: BTreeMap::new(),
        fewest_moves: false,
    }
}
