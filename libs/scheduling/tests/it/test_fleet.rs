//! Small fleets for tests. CPU is in millicores; memory is ample unless a test sets it.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_scheduling::*;
use uuid::Uuid;

pub const GI: i64 = 1 << 30;

/// The number of random cases: `PROPTEST_CASES`, or `usual`.
pub fn cases(usual: u32) -> proptest::test_runner::Config {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(usual);
    proptest::test_runner::Config { cases, failure_persistence: None, ..Default::default() }
}

/// An id derived from a name.
pub fn id(name: &str) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes())
}

pub fn key(name: &str) -> MemberKey {
    MemberKey(name.into())
}

pub fn node(name: &str, cpu: i64) -> Node {
    let allocatable = Amounts { cpu, memory: 64 * GI, pods: 110, ..Amounts::default() };
    Node { name: name.into(), allocatable, ..Node::default() }
}

pub fn dig(name: &str) -> DigRef {
    DigRef { id: id(name), project: "p".into(), composite_app: name.into(), version: "v1".into(), name: name.into() }
}

pub fn group(replicas: u32, cpu: i64) -> PodGroup {
    PodGroup { workload: "Deployment/main".into(), replicas, requests: Amounts::pod(cpu, GI), ..PodGroup::default() }
}

pub fn demand(replicas: u32, cpu: i64) -> Demand {
    Demand { groups: vec![group(replicas, cpu)], ..Demand::default() }
}

fn element(member: &str) -> Element {
    let member = key(member);
    Element { cluster_provider: Some(member.provider().into()), cluster: Some(member.cluster().into()), ..Element::default() }
}

/// Any one of these members.
pub fn any_of(members: &[&str]) -> PlacementTerms {
    PlacementTerms {
        intent: Intent { all_of: vec![], any_of: members.iter().map(|m| element(m)).collect() },
        logical_cloud: members.iter().map(|m| key(m)).collect(),
        allow_dependants: Some(true),
        ..PlacementTerms::default()
    }
}

/// Each of these members.
pub fn all_of(members: &[&str]) -> PlacementTerms {
    let any = any_of(members);
    PlacementTerms { intent: Intent { all_of: any.intent.any_of, any_of: vec![] }, ..any }
}

pub fn app(name: &str, demand: Demand, terms: PlacementTerms) -> AppRequest {
    AppRequest { app: name.into(), demand, terms }
}

/// A fleet with the consent of the owners and a policy.
#[derive(Clone, Debug, Default)]
pub struct TestFleet {
    pub fleet: Fleet,
    pub movability: Vec<Movability>,
    pub policy: Policy,
}

impl TestFleet {
    /// Adds a member with nodes `n1`, `n2`, … with these amounts of CPU.
    pub fn member(mut self, name: &str, priority: u8, nodes: &[i64]) -> Self {
        let nodes = nodes.iter().enumerate().map(|(i, cpu)| node(&format!("n{}", i + 1), *cpu)).collect();
        self.fleet.members.insert(
            key(name),
            FleetMember { key: key(name), priority, labels: vec![], state: MemberState::Ready, reason: None, cordoned: None, link: None },
        );
        self.fleet.capacity.insert(key(name), Arc::new(Capacity { nodes: Arc::new(nodes), ..Capacity::default() }));
        self
    }

    pub fn change_member(mut self, name: &str, change: impl FnOnce(&mut FleetMember)) -> Self {
        change(self.fleet.members.get_mut(&key(name)).unwrap());
        self
    }

    pub fn change_capacity(mut self, name: &str, change: impl FnOnce(&mut Capacity)) -> Self {
        change(Arc::make_mut(self.fleet.capacity.get_mut(&key(name)).unwrap()));
        self
    }

    /// Adds an app in a group of its own that runs on `n1`, or on the node after `@` (`onprem+a@n2`). Its owner agrees to moves.
    pub fn running(self, name: &str, at: &str, cpu: i64, allowed: &[&str]) -> Self {
        self.running_as(app(name, demand(1, cpu), any_of(allowed)), at)
    }

    pub fn running_as(mut self, request: AppRequest, at: &str) -> Self {
        let (member, node) = at.split_once('@').unwrap_or((at, "n1"));
        let name = request.app.clone();
        let pods = request.demand.groups.iter().enumerate();
        let pods = pods.map(|(group, g)| PodsOnNode { node: node.into(), group, count: g.replicas.max(1) }).collect();
        let claim = Claim {
            id: id(&name),
            dig: Arc::new(dig(&name)),
            request: Arc::new(request),
            member: key(member),
            state: ClaimState::Held,
            pods,
            surging: false,
            fence: 1,
            operation: id("deployed"),
        };
        self.fleet.claims.insert(claim.id, Arc::new(claim));
        self.movability.push(Movability { dig: id(&name), app: name, migration: true, priority: 10 });
        self
    }

    pub fn change_claim(mut self, name: &str, change: impl FnOnce(&mut Claim)) -> Self {
        change(Arc::make_mut(self.fleet.claims.get_mut(&id(name)).unwrap()));
        self
    }

    pub fn change_request(self, name: &str, change: impl FnOnce(&mut AppRequest)) -> Self {
        self.change_claim(name, |claim| change(Arc::make_mut(&mut claim.request)))
    }

    pub fn priority(mut self, name: &str, priority: u8) -> Self {
        self.movability.iter_mut().find(|m| m.app == name).unwrap().priority = priority;
        self
    }

    pub fn observed(self, name: &str, observed: Observed) -> Self {
        let member = self.fleet.claims[&id(name)].member.0.clone();
        self.change_capacity(&member, |c| {
            c.observed.insert(id(name), observed);
        })
    }

    pub fn ledger(&self) -> Ledger {
        Ledger::from(&self.fleet)
    }

    pub fn decide(&self, apps: Vec<AppRequest>) -> Decision {
        self.ledger().decide(id("decision"), &request(apps))
    }

    pub fn newcomer(&self, apps: Vec<AppRequest>) -> PlanRequest {
        PlanRequest {
            kind: PlanKind::Newcomer { dig: dig("newcomer"), apps },
            movability: self.movability.clone(),
            policy: self.policy.clone(),
            excluded: BTreeMap::new(),
            refused: Vec::new(),
            external: BTreeMap::new(),
            fewest_moves: false,
        }
    }

    /// A plan without a practical limit on the search.
    pub fn plan(&self, apps: Vec<AppRequest>) -> PlanResult {
        self.plan_with_steps(apps, 1_000_000)
    }

    pub fn plan_with_steps(&self, apps: Vec<AppRequest>, steps: u64) -> PlanResult {
        plan_within(&self.ledger(), &self.newcomer(apps), &mut StepMeter::new(steps))
    }

    pub fn drain(&self, member: &str) -> PlanResult {
        let request = PlanRequest { kind: PlanKind::Drain { member: key(member) }, ..self.newcomer(vec![]) };
        plan_within(&self.ledger(), &request, &mut StepMeter::new(1_000_000))
    }
}

pub fn request(apps: Vec<AppRequest>) -> DecisionRequest {
    DecisionRequest { dig: dig("newcomer"), apps, overflow: false, refused: Vec::new(), operation: id("operation"), fence: 7 }
}

pub fn feasible(result: PlanResult) -> Plan {
    match result {
        PlanResult::Feasible(plan) => plan,
        PlanResult::Infeasible(why) => panic!("no plan: {why:#?}"),
    }
}

pub fn infeasible(result: PlanResult) -> Infeasible {
    match result {
        PlanResult::Feasible(plan) => panic!("a plan: {plan:#?}"),
        PlanResult::Infeasible(why) => why,
    }
}

/// `app>member` of each move, in order.
pub fn moves(plan: &Plan) -> Vec<String> {
    plan.waves.iter().flatten().map(|m| format!("{}>{}", m.app, m.to)).collect()
}

/// Why a candidate was not taken.
pub fn code<'a>(candidates: &'a [Candidate], app: &str) -> &'a str {
    let candidate = candidates.iter().find(|c| c.app == app).unwrap_or_else(|| panic!("{app} was not looked at"));
    candidate.why_not.as_ref().map_or("", |why| why.code.as_str())
}

/// `app>member` for each group of each app; `-` for no member.
pub fn places(decision: &Decision) -> Vec<String> {
    let groups = decision.apps.iter().flat_map(|app| app.groups.iter().map(|g| (app.app.clone(), g)));
    groups.map(|(app, g)| format!("{app}>{}", g.placement.as_ref().map_or("-".into(), |p| p.member.0.clone()))).collect()
}
