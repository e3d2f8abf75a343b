//! Compares plans with a naive exhaustive search over all members, sets of victims, destinations and packings. The search shares no code
//! with the planner, not even the definition of free room.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_scheduling::*;
use proptest::prelude::*;

use crate::instance::{NAMES, calling, full_instance, instance, larger_instance};
use crate::test_fleet::{TestFleet, any_of, dig, id, key};

/// CPU, memory, pods.
type Three = [i64; 3];
/// A node and its free amounts now and later.
type FreeNode<'a> = (&'a Node, Three, Three);

struct Naive<'a> {
    fleet: &'a TestFleet,
    nodes: BTreeMap<&'a MemberKey, Vec<FreeNode<'a>>>,
}

fn three(a: &Amounts) -> Three {
    [a.cpu, a.memory, a.pods]
}

fn minus(a: &mut Three, b: &Amounts) {
    for (a, b) in a.iter_mut().zip(three(b)) {
        *a -= b;
    }
}

fn plus(a: &mut Three, b: &Amounts) {
    for (a, b) in a.iter_mut().zip(three(b)) {
        *a += b;
    }
}

fn covers(a: &Three, b: &Amounts) -> bool {
    a.iter().zip(three(b)).all(|(a, b)| b == 0 || *a >= b)
}

/// A pod to be placed: its requests, whether it needs room now, and whether it tolerates taints.
type Pod<'a> = (&'a Amounts, bool, bool);

impl<'a> Naive<'a> {
    fn new(fleet: &'a TestFleet) -> Self {
        let mut nodes = BTreeMap::new();
        for (key, capacity) in &fleet.fleet.capacity {
            let mut list = Vec::new();
            for node in capacity.nodes.iter() {
                let mut now = three(&node.allocatable);
                minus(&mut now, &node.foreign);
                let mut later = now;
                for claim in fleet.fleet.claims.values().filter(|c| c.member == *key) {
                    for pods in claim.pods.iter().filter(|p| p.node == node.name) {
                        for _ in 0..pods.count {
                            let requests = &claim.request.demand.groups[pods.group].requests;
                            if claim.state != ClaimState::Promised {
                                minus(&mut now, requests);
                            }
                            if claim.state != ClaimState::Leaving {
                                minus(&mut later, requests);
                            }
                        }
                    }
                }
                list.push((node, now, later));
            }
            nodes.insert(key, list);
        }
        Self { fleet, nodes }
    }

    fn known(&self, key: &MemberKey) -> bool {
        self.fleet.fleet.capacity[key].age_ms <= 30_000
    }

    fn allowed(&self, terms: &'a PlacementTerms) -> Vec<&'a MemberKey> {
        terms.logical_cloud.iter().filter(|k| self.known(k)).collect()
    }

    fn may_move(&self, claim: &Claim) -> bool {
        let word = self.fleet.movability.iter().find(|m| m.dig == claim.dig.id && m.app == claim.request.app);
        claim.state == ClaimState::Held && claim.request.demand.volumes == 0 && word.is_some_and(|w| w.migration)
    }

    /// Whether all of this fits at once: victims leave later, their new copies need room now and later, newcomers later.
    fn fits(&self, victims: &[(&'a Claim, &'a MemberKey)], newcomers: &[(&'a AppRequest, &'a MemberKey)]) -> bool {
        self.nodes.keys().all(|key| {
            let mut list = self.nodes[key].clone();
            for (claim, _) in victims.iter().filter(|(claim, _)| claim.member == **key) {
                for pods in &claim.pods {
                    let node = list.iter_mut().find(|(n, ..)| n.name == pods.node).unwrap();
                    for _ in 0..pods.count {
                        plus(&mut node.2, &claim.request.demand.groups[pods.group].requests);
                    }
                }
            }
            let mut pods: Vec<Pod<'_>> = Vec::new();
            let mut add = |request: &'a AppRequest, now: bool| {
                for group in &request.demand.groups {
                    for _ in 0..group.replicas {
                        pods.push((&group.requests, now, !group.tolerations.is_empty()));
                    }
                }
            };
            victims.iter().filter(|(_, to)| to == key).for_each(|(claim, _)| add(&claim.request, true));
            newcomers.iter().filter(|(_, to)| to == key).for_each(|(request, _)| add(request, false));
            packs(&mut list, &pods)
        })
    }

    /// Whether no order of pods and choice of nodes leaves a pod without a node: new copies of victims now, then the newcomer's pods
    /// beside them after the victims have left.
    fn holds_in_any_order(&self, victims: &[(&'a Claim, &'a MemberKey)], newcomers: &[(&'a AppRequest, &'a MemberKey)]) -> bool {
        self.nodes.keys().all(|key| {
            let now: Vec<FreeNode<'_>> = self.nodes[key].iter().map(|(node, now, _)| (*node, *now, *now)).collect();
            let mut later = self.nodes[key].clone();
            for (claim, _) in victims.iter().filter(|(claim, _)| claim.member == **key) {
                for pods in &claim.pods {
                    let node = later.iter_mut().find(|(n, ..)| n.name == pods.node).unwrap();
                    (0..pods.count).for_each(|_| plus(&mut node.2, &claim.request.demand.groups[pods.group].requests));
                }
            }
            let pods = |request: &'a AppRequest| {
                request
                    .demand
                    .groups
                    .iter()
                    .flat_map(|g| std::iter::repeat_n((&g.requests, false, !g.tolerations.is_empty()), g.replicas as usize))
            };
            let mut all: Vec<Pod<'_>> = victims.iter().filter(|(_, to)| to == key).flat_map(|(claim, _)| pods(&claim.request)).collect();
            let first = never_stuck(&now, &all, &mut BTreeSet::new());
            let new: Vec<Pod<'_>> = newcomers.iter().filter(|(_, to)| to == key).flat_map(|(request, _)| pods(request)).collect();
            let waits = !new.is_empty();
            all.extend(new);
            first && (!waits || never_stuck(&later, &all, &mut BTreeSet::new()))
        })
    }

    /// Whether a plan exists.
    fn plan_exists(&self, apps: &'a [AppRequest]) -> bool {
        let mut homes = Vec::new();
        self.choose_homes(apps, &mut homes)
    }

    fn choose_homes(&self, apps: &'a [AppRequest], homes: &mut Vec<(&'a AppRequest, &'a MemberKey)>) -> bool {
        let Some(app) = apps.get(homes.len()) else {
            let victims: Vec<&Claim> = self
                .fleet
                .fleet
                .claims
                .values()
                .map(|c| &**c)
                .filter(|c| homes.iter().any(|(_, home)| **home == c.member) && self.may_move(c))
                .collect();
            return self.choose_victims(&victims, 0, &mut Vec::new(), homes);
        };
        self.allowed(&app.terms).into_iter().any(|home| {
            homes.push((app, home));
            let found = self.choose_homes(apps, homes);
            homes.pop();
            found
        })
    }

    /// Whether all apps on `member` have destinations at once.
    fn drain_exists(&self, member: &MemberKey) -> bool {
        let there = || self.fleet.fleet.claims.values().filter(|c| c.member == *member && c.state != ClaimState::Leaving);
        let claims: Vec<&Claim> = there().map(|c| &**c).collect();
        claims.iter().all(|c| self.may_move(c)) && self.choose_all(&claims, &mut Vec::new())
    }

    fn choose_all(&self, claims: &[&'a Claim], victims: &mut Vec<(&'a Claim, &'a MemberKey)>) -> bool {
        let Some(claim) = claims.get(victims.len()) else { return self.fits(victims, &[]) };
        self.allowed(&claim.request.terms).into_iter().filter(|to| **to != claim.member).any(|to| {
            victims.push((claim, to));
            let found = self.choose_all(claims, victims);
            victims.pop();
            found
        })
    }

    fn choose_victims(
        &self,
        candidates: &[&'a Claim],
        at: usize,
        victims: &mut Vec<(&'a Claim, &'a MemberKey)>,
        homes: &[(&'a AppRequest, &'a MemberKey)],
    ) -> bool {
        let Some(claim) = candidates.get(at) else { return self.fits(victims, homes) };
        if self.choose_victims(candidates, at + 1, victims, homes) {
            return true;
        }
        for to in self.allowed(&claim.request.terms).into_iter().filter(|to| **to != claim.member) {
            victims.push((claim, to));
            let found = self.choose_victims(candidates, at + 1, victims, homes);
            victims.pop();
            if found {
                return true;
            }
        }
        false
    }
}

fn packs(nodes: &mut [FreeNode<'_>], pods: &[Pod<'_>]) -> bool {
    let Some(((requests, now, tolerates), rest)) = pods.split_first() else { return true };
    for n in 0..nodes.len() {
        let before = nodes[n];
        if (!nodes[n].0.taints.is_empty() && !tolerates) || !covers(&before.2, requests) || (*now && !covers(&before.1, requests)) {
            continue;
        }
        minus(&mut nodes[n].2, requests);
        if *now {
            minus(&mut nodes[n].1, requests);
        }
        if packs(nodes, rest) {
            return true;
        }
        nodes[n] = before;
    }
    false
}

/// Whether every pod gets a node in every order of pods and with every choice of nodes.
fn never_stuck(nodes: &[FreeNode<'_>], pods: &[Pod<'_>], seen: &mut BTreeSet<(Vec<Three>, Vec<Three>)>) -> bool {
    let mut left: Vec<Three> = pods.iter().map(|(requests, ..)| three(requests)).collect();
    left.sort_unstable();
    if !seen.insert((nodes.iter().map(|node| node.2).collect(), left)) {
        return true;
    }
    (0..pods.len()).all(|at| {
        let (requests, _, tolerates) = pods[at];
        let mut rest = pods.to_vec();
        rest.remove(at);
        let fitting: Vec<usize> =
            (0..nodes.len()).filter(|n| (nodes[*n].0.taints.is_empty() || tolerates) && covers(&nodes[*n].2, requests)).collect();
        !fitting.is_empty()
            && fitting.iter().all(|n| {
                let mut next = nodes.to_vec();
                minus(&mut next[*n].2, requests);
                never_stuck(&next, &rest, seen)
            })
    })
}

/// The members of the newcomer's apps in the plan.
fn homes<'a>(plan: &'a Plan, apps: &'a [AppRequest]) -> Vec<(&'a AppRequest, &'a MemberKey)> {
    let home = |app: &'a AppRequest| {
        let decided = plan.newcomer.iter().find(|d| d.app == app.app).expect("every app is in the plan");
        (app, &decided.groups[0].placement.as_ref().expect("every app has a place").member)
    };
    apps.iter().map(home).collect()
}

/// Asserts that the witness is complete and exceeds no node.
fn check_witness(naive: &Naive<'_>, plan: &Plan, apps: &[AppRequest]) {
    let mut nodes: BTreeMap<(&MemberKey, &str), (Three, Three)> = BTreeMap::default();
    for (key, list) in &naive.nodes {
        for (node, now, later) in list {
            nodes.insert((key, &node.name), (*now, *later));
        }
    }
    let claims = &naive.fleet.fleet.claims;
    for m in plan.waves.iter().flatten() {
        for pods in &claims[&m.claim].pods {
            let (_, later) = nodes.get_mut(&(&m.from, pods.node.as_str())).unwrap();
            for _ in 0..pods.count {
                plus(later, &claims[&m.claim].request.demand.groups[pods.group].requests);
            }
        }
    }
    let mut place = |demand: &Demand, to: &MemberKey, witness: &[PodsOnNode], at_once: bool| {
        for (g, group) in demand.groups.iter().enumerate() {
            assert_eq!(witness.iter().filter(|p| p.group == g).map(|p| p.count).sum::<u32>(), group.replicas);
        }
        for pods in witness {
            let group = &demand.groups[pods.group];
            let at = nodes.keys().find(|(member, name)| **member == *to && *name == pods.node).copied().expect("a node of the member");
            let (now, later) = nodes.get_mut(&at).unwrap();
            for _ in 0..pods.count {
                assert!(covers(later, &group.requests), "{to} {} exceeded later", pods.node);
                minus(later, &group.requests);
                if at_once {
                    assert!(covers(now, &group.requests), "{to} {} exceeded now", pods.node);
                    minus(now, &group.requests);
                }
            }
        }
    };
    for m in plan.waves.iter().flatten() {
        place(&claims[&m.claim].request.demand, &m.to, &m.pods, true);
    }
    for app in apps {
        let decided = plan.newcomer.iter().find(|d| d.app == app.app).unwrap();
        let placement = decided.groups[0].placement.as_ref().unwrap();
        place(&app.demand, &placement.member, &placement.pods, false);
    }
}

fn check_plan(fleet: &TestFleet, plan: &Plan, apps: &[AppRequest]) {
    let naive = Naive::new(fleet);
    check_witness(&naive, plan, apps);
    let claims = &fleet.fleet.claims;
    let victims: Vec<(&Claim, &MemberKey)> = plan.waves.iter().flatten().map(|m| (&*claims[&m.claim], &m.to)).collect();
    for (claim, to) in &victims {
        assert!(naive.may_move(claim), "{} may not move", claim.request.app);
        assert!(naive.known(to) && claim.request.terms.logical_cloud.contains(to) && **to != claim.member);
    }
    let homes = homes(plan, apps);
    for (app, home) in &homes {
        assert!(naive.known(home) && app.terms.logical_cloud.contains(home));
    }
    for skip in 0..victims.len() {
        let mut fewer = victims.clone();
        let (claim, _) = fewer.remove(skip);
        // Fewer victims are not better if their pods only get nodes in some orders.
        assert!(!naive.fits(&fewer, &homes) || !naive.holds_in_any_order(&fewer, &homes), "{} need not move", claim.request.app);
    }
    if plan.scheduling.as_ref().is_some_and(|told| told.holds == Holds::Any) {
        assert!(naive.holds_in_any_order(&victims, &homes), "some order of pods leaves one of them without a node: {plan:#?}");
    }
    let total = |c: &Candidate| c.taken == victims.iter().any(|(v, _)| v.id == c.claim);
    assert!(plan.candidates.iter().all(total) && plan.candidates.iter().all(|c| c.taken != c.why_not.is_some()));
}

/// Asserts that the ledger accepts the plan for an unchanged fleet, and admits the waiting newcomer once the victims have left.
fn check_applies(fleet: &TestFleet, plan: &Plan, apps: &[AppRequest]) {
    let mut ledger = fleet.ledger();
    let mut changes = Vec::new();
    for m in plan.waves.iter().flatten() {
        changes.push(LedgerChange::Leave { claim: m.claim, member: m.from.clone() });
        changes.push(LedgerChange::Take {
            claim: id(&format!("copy of {}", m.app)),
            dig: m.dig.clone(),
            request: fleet.fleet.claims[&m.claim].request.clone(),
            member: m.to.clone(),
            state: Some(ClaimState::Held),
        });
    }
    for (app, home) in homes(plan, apps) {
        changes.push(LedgerChange::Take {
            claim: id(&app.app),
            dig: dig("newcomer"),
            request: app.clone().into(),
            member: home.clone(),
            state: None,
        });
    }
    let tx = LedgerTransaction { operation: id("op"), fence: 9, changes };
    let (_, undo) = ledger.transact(&tx).unwrap_or_else(|why| panic!("a plan for an unchanged fleet is refused: {why:?}"));
    undo.keep();
    let leaving: Vec<_> = ledger.claims().filter(|c| c.state == ClaimState::Leaving).map(|c| c.id).collect();
    let release = leaving.into_iter().map(|claim| LedgerChange::Release { claim });
    let admit = apps.iter().map(|app| LedgerChange::Admit { claim: id(&app.app) });
    let tx = LedgerTransaction { operation: id("op"), fence: 9, changes: release.chain(admit).collect() };
    let (receipt, undo) = ledger.transact(&tx).unwrap_or_else(|why| panic!("an admission is refused: {why:?}"));
    undo.keep();
    assert!(receipt.claims.iter().all(|c| c.state == ClaimState::Held));
}

/// The same fleet in reverse order: nodes, movability entries, claims, members.
fn reversed(fleet: &TestFleet) -> (TestFleet, Ledger) {
    let mut other = fleet.clone();
    for capacity in other.fleet.capacity.values_mut() {
        Arc::make_mut(&mut Arc::make_mut(capacity).nodes).reverse();
    }
    other.movability.reverse();
    let mut ledger = Ledger::default();
    for claim in other.fleet.claims.values().rev() {
        ledger.put_claim(claim.id, Some(claim.clone()));
    }
    for (key, capacity) in other.fleet.capacity.iter().rev() {
        ledger.set_capacity(key, Some(capacity.clone()));
    }
    for member in other.fleet.members.values().rev() {
        ledger.set_member(member.clone());
    }
    (other, ledger)
}

proptest! {
    #![proptest_config(crate::test_fleet::cases(2000))]

    #[test]
    fn plan_is_found_if_and_only_if_one_exists(instance in instance(), calls in any::<u64>()) {
        let (fleet, apps) = calling(instance.build(), calls);
        let result = fleet.plan(apps.clone());
        let exists = Naive::new(&fleet).plan_exists(&apps);
        match &result {
            PlanResult::Feasible(plan) => {
                prop_assert!(exists, "{plan:#?}");
                check_plan(&fleet, plan, &apps);
                check_applies(&fleet, plan, &apps);
            }
            PlanResult::Infeasible(why) => {
                prop_assert!(!why.cut_short, "the search of small cases is complete");
                prop_assert!(!exists, "{why:#?}");
            }
        }
        let (other, ledger) = reversed(&fleet);
        let mut apps = apps;
        apps.reverse();
        prop_assert_eq!(result, plan_within(&ledger, &other.newcomer(apps), &mut StepMeter::new(1_000_000)));
    }
    #[test]
    fn drain_is_planned_if_and_only_if_every_app_has_a_destination(instance in instance(), calls in any::<u64>()) {
        let (fleet, _) = calling(instance.build(), calls);
        let member = key(NAMES[0]);
        let result = fleet.drain(NAMES[0]);
        prop_assert_eq!(matches!(result, PlanResult::Feasible(_)), Naive::new(&fleet).drain_exists(&member), "{:#?}", result);
        if let PlanResult::Feasible(plan) = &result {
            check_witness(&Naive::new(&fleet), plan, &[]);
            check_applies(&fleet, plan, &[]);
        }
        let (other, ledger) = reversed(&fleet);
        let request = PlanRequest { kind: PlanKind::Drain { member }, ..other.newcomer(vec![]) };
        prop_assert_eq!(result, plan_within(&ledger, &request, &mut StepMeter::new(1_000_000)));
    }

    /// Most of many equal members are passed over because of lower bounds on their moves. A member that is the only choice is always searched.
    #[test]
    fn plan_has_the_best_moves_of_all_equally_preferred_members(instance in full_instance(), calls in any::<u64>()) {
        let (mut fleet, mut apps) = calling(instance.build(), calls);
        let mut random = fastrand::Rng::with_seed(calls);
        for claim in fleet.fleet.claims.values() {
            let ready_s = random.bool().then(|| f64::from(random.u8(1..20)));
            let capacity = Arc::make_mut(fleet.fleet.capacity.get_mut(&claim.member).unwrap());
            capacity.observed.insert(claim.id, Observed { ready_s, ..Observed::default() });
        }
        apps.truncate(1);
        apps[0].terms = PlacementTerms { calls: apps[0].terms.calls.take(), ..any_of(&NAMES[..fleet.fleet.members.len()]) };
        let PlanResult::Feasible(plan) = fleet.plan(apps.clone()) else { return Ok(()) };
        let worth = |plan: &Plan| {
            let holds = plan.scheduling.as_ref().expect("every new plan says it").holds;
            // Costs are whole seconds here.
            (std::cmp::Reverse(holds), plan.waves.iter().flatten().count(), plan.cost_s as u64)
        };
        let home = homes(&plan, &apps)[0].1.clone();
        let priority = |member: &MemberKey| fleet.fleet.members[member].priority;
        for member in fleet.fleet.members.keys().filter(|member| priority(member) == priority(&home)) {
            let mut alone = apps.clone();
            alone[0].terms.intent = any_of(&[&member.0]).intent;
            if let PlanResult::Feasible(alone) = fleet.plan(alone) {
                prop_assert!(worth(&plan) <= worth(&alone), "{member}: {alone:#?}\n{plan:#?}");
                prop_assert!(worth(&plan) != worth(&alone) || plan.waves.is_empty() || home <= *member, "the first of equals: {member}, not {home}");
            }
        }
    }

    /// Fleets too large for an exhaustive search: every plan is sound, and the ledger accepts it.
    #[test]
    fn plans_in_larger_fleets_are_sound(instance in larger_instance(), calls in any::<u64>()) {
        let (fleet, apps) = calling(instance.build(), calls);
        if let PlanResult::Feasible(plan) = fleet.plan_with_steps(apps.clone(), 500) {
            check_witness(&Naive::new(&fleet), &plan, &apps);
            check_applies(&fleet, &plan, &apps);
            let naive = Naive::new(&fleet);
            for m in plan.waves.iter().flatten() {
                let claim = &fleet.fleet.claims[&m.claim];
                prop_assert!(naive.may_move(claim) && naive.known(&m.to) && claim.request.terms.logical_cloud.contains(&m.to));
            }
        }
        let (other, ledger) = reversed(&fleet);
        prop_assert_eq!(fleet.plan_with_steps(apps.clone(), 500), plan_within(&ledger, &other.newcomer(apps), &mut StepMeter::new(500)));
    }
}
