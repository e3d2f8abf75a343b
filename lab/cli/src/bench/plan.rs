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
/// CPU of a node and of a candidate in milli-cores.
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
        let request = request(members, candidates, policy);
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

fn keys(members: usize) -> Vec<MemberKey> {
    (0..members).map(|at| MemberKey(world::key(at, PROVIDERS))).collect()
}

fn anywhere(keys: &[MemberKey]) -> PlacementTerms {
    let element = |at| Element { cluster_provider: Some(world::provider(at)), cluster_label: Some("all".into()), ..Element::default() };
    let any_of = (0..PROVIDERS.min(keys.len())).map(element).collect();
    PlacementTerms {
        intent: Intent { any_of, ..Intent::default() },
        logical_cloud: keys.into(),
        allow_dependants: true,
        ..PlacementTerms::default()
    }
}

fn demand(replicas: u32, cpu: i64) -> Demand {
    let group = PodGroup { workload: "Deployment/app".into(), replicas, requests: Amounts::pod(cpu, 64 << 20), ..PodGroup::default() };
    Demand { groups: vec![group], ..Demand::default() }
}

fn dig(name: &str) -> DigRef {
    let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes());
    DigRef { id, project: "default".into(), composite_app: name.into(), version: "v1".into(), name: name.into() }
}

fn app(at: usize) -> String {
    format!("app-{at:04}")
}

/// A fleet with all candidates on the first member, one pod each, with observed requests and measured use.
fn fleet(members: usize, candidates: usize) -> Fleet {
    let keys = keys(members);
    let mut fleet = Fleet::default();
    for (at, key) in keys.iter().enumerate() {
        let priority = u8::try_from(1 + at % PROVIDERS).unwrap_or(10);
        let labels = vec!["all".to_owned()];
        let member = FleetMember { key: key.clone(), priority, labels, state: MemberState::Ready, ..FleetMember::default() };
        fleet.members.insert(key.clone(), member);
        let allocatable = Amounts { cpu: NODE, memory: 64 << 30, pods: 110, ..Amounts::default() };
        let node = |n| Node { name: format!("n{n:02}"), allocatable: allocatable.clone(), ..Node::default() };
        fleet.capacity.insert(key.clone(), Arc::new(Capacity { nodes: Arc::new((0..NODES).map(node).collect()), ..Capacity::default() }));
    }
    let mut observed = BTreeMap::new();
    for at in 0..candidates {
        let (dig, node) = (Arc::new(dig(&app(at))), format!("n{:02}", at % NODES));
        let id = dig.id;
        let requests = BTreeMap::from([(node.clone(), Amounts::pod(APP, 64 << 20))]).into();
        let used = Some(Amounts { cpu: (at * 7919 % 300) as i64, memory: 32 << 20, ..Amounts::default() });
        observed.insert(id, Observed { requests, used, age_s: Some(3_600), ready_s: Some(3.0) });
        let request = AppRequest { app: app(at), demand: demand(1, APP), terms: anywhere(&keys) };
        let claim = Claim {
            id,
            dig,
            request: Arc::new(request),
            member: keys[0].clone(),
            state: ClaimState::Held,
            pods: vec![PodsOnNode { node, group: 0, count: 1 }],
            surging: false,
            fence: 1,
            operation: Uuid::nil(),
        };
        fleet.claims.insert(id, Arc::new(claim));
    }
    if let Some(first) = fleet.capacity.get_mut(&keys[0]) {
        Arc::make_mut(first).observed = observed;
    }
    fleet
}

/// A plan request for a newcomer with a pod for each node of the first member, the only one where it may run.
fn request(members: usize, candidates: usize, policy: Policy) -> PlanRequest {
    let first = keys(members).swap_remove(0);
    let only = Element { cluster_provider: Some(first.provider().into()), cluster: Some(first.cluster().into()), ..Element::default() };
    let intent = Intent { any_of: vec![only], ..Intent::default() };
    let terms = PlacementTerms { intent, logical_cloud: [first].into(), ..PlacementTerms::default() };
    // So much that about every tenth candidate has to move.
    let taken = (candidates / NODES) as i64 * APP;
    let newcomer = AppRequest { app: "newcomer".into(), demand: demand(NODES as u32, NODE - taken + taken / 10), terms };
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
