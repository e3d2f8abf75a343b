//! The ledger under random changes: its index equals a recount, an undo leaves no trace, and admitted claims exceed no node, now or
//! later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_scheduling::*;
use proptest::prelude::*;

use crate::test_fleet::{TestFleet, any_of, app, dig, group, id, key};

const MEMBERS: [&str; 2] = ["x+a", "y+b"];

#[derive(Clone, Debug)]
enum Op {
    Decide {
        name: u8,
        pods: u32,
        cpu: i64,
        both: bool,
    },
    Change(Vec<Small>),
    /// Sets foreign requests on a node, and the observed pods of a binding.
    See {
        member: bool,
        node: usize,
        foreign: i64,
        seen: Option<(u8, usize, i64)>,
    },
    Age {
        member: bool,
        known: bool,
    },
}

#[derive(Clone, Debug)]
enum Small {
    Leave(u8),
    Stay(u8),
    Take { name: u8, member: bool, pods: u32, cpu: i64, state: Option<ClaimState> },
    Admit(u8),
    Resize { name: u8, pods: u32, cpu: i64, surge: bool },
    Release(u8),
}

fn small(stay: bool) -> impl Strategy<Value = Small> {
    let state = prop_oneof![Just(None), Just(Some(ClaimState::Held)), Just(Some(ClaimState::Promised))];
    let name = 0..6u8;
    prop_oneof![
        name.clone().prop_map(Small::Leave),
        name.clone().prop_map(move |n| if stay { Small::Stay(n) } else { Small::Leave(n) }),
        (name.clone(), any::<bool>(), 1..=3u32, 1..=4i64, state).prop_map(|(name, member, pods, cpu, state)| Small::Take {
            name,
            member,
            pods,
            cpu,
            state
        }),
        name.clone().prop_map(Small::Admit),
        (name.clone(), 1..=3u32, 1..=4i64, any::<bool>()).prop_map(|(name, pods, cpu, surge)| Small::Resize { name, pods, cpu, surge }),
        name.prop_map(Small::Release),
    ]
}

fn op(everything: bool) -> impl Strategy<Value = Op> {
    let see = (any::<bool>(), 0..3usize, 0..=6i64, prop::option::of((0..6u8, 0..3usize, 1..=6i64)));
    prop_oneof![
        3 => (0..6u8, 1..=3u32, 1..=4i64, any::<bool>()).prop_map(|(name, pods, cpu, both)| Op::Decide { name, pods, cpu, both }),
        4 => prop::collection::vec(small(everything), 1..4).prop_map(Op::Change),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(member, known)| Op::Age { member, known }),
        2 => see.prop_map(move |(member, node, foreign, seen)| match everything {
            true => Op::See { member, node, foreign, seen },
            false => Op::Age { member, known: true },
        }),
    ]
}

fn member(second: bool) -> MemberKey {
    key(MEMBERS[usize::from(second)])
}

fn claim_id(name: u8) -> uuid::Uuid {
    id(&format!("claim {name}"))
}

fn wanted(name: u8, pods: u32, cpu: i64) -> AppRequest {
    let mut group = group(pods, cpu);
    group.surge = 1;
    // The pods of the last one are additional pods of the first one.
    let grows = (name == 5).then(|| claim_id(0));
    app(&format!("app{name}"), Demand { groups: vec![group], grows, ..Demand::default() }, any_of(&MEMBERS))
}

fn change(small: &Small) -> LedgerChange {
    match *small {
        Small::Leave(n) => LedgerChange::Leave { claim: claim_id(n), member: member(n % 2 == 0) },
        Small::Stay(n) => LedgerChange::Stay { claim: claim_id(n) },
        Small::Take { name, member: m, pods, cpu, state } => LedgerChange::Take {
            claim: claim_id(name),
            dig: dig("d"),
            request: Arc::new(wanted(name, pods, cpu)),
            member: member(m),
            state,
        },
        Small::Admit(n) => LedgerChange::Admit { claim: claim_id(n) },
        Small::Resize { name, pods, cpu, surge } => {
            LedgerChange::Resize { claim: claim_id(name), request: Arc::new(wanted(name, pods, cpu)), surge }
        }
        Small::Release(n) => LedgerChange::Release { claim: claim_id(n) },
    }
}

fn apply(ledger: &mut Ledger, n: usize, op: &Op) {
    match op {
        Op::Decide { name, pods, cpu, both } => {
            let mut apps = vec![wanted(*name, *pods, *cpu)];
            if *both {
                apps.push(wanted(name + 10, 1, *cpu));
            }
            let request =
                DecisionRequest { dig: dig("d"), apps, overflow: false, refused: Vec::new(), operation: id("op"), fence: n as i64 };
            let decision = ledger.decide(id(&format!("decision {n}")), &request);
            let before = snapshot(ledger);
            let undo = ledger.apply_decision(&request, &decision);
            ledger.undo(undo);
            assert_eq!(before, snapshot(ledger));
            ledger.apply_decision(&request, &decision).keep();
        }
        Op::Change(changes) => {
            let tx =
                LedgerTransaction { operation: id(&format!("op {n}")), fence: n as i64, changes: changes.iter().map(change).collect() };
            let before = snapshot(ledger);
            let Ok((receipt, undo)) = ledger.transact(&tx) else {
                assert_eq!(before, snapshot(ledger), "a refused transaction leaves no trace");
                return;
            };
            let after = snapshot(ledger);
            for written in &receipt.claims {
                assert_eq!(ledger.claim(&written.claim).unwrap().state, written.state);
            }
            ledger.undo(undo);
            assert_eq!(before, snapshot(ledger));
            let (again, undo) = ledger.transact(&tx).expect("the same fleet, the same answer");
            undo.keep();
            assert_eq!((receipt, after), (again, snapshot(ledger)));
        }
        Op::See { member: m, node, foreign, seen } => {
            let mut capacity = ledger.room(&member(*m)).unwrap().capacity.clone().unwrap();
            let change = Arc::make_mut(&mut capacity);
            Arc::make_mut(&mut change.nodes)[*node].foreign = Amounts::pod(*foreign, 0);
            if let Some((name, at, cpu)) = seen {
                let observed = change.observed.entry(claim_id(*name)).or_default();
                let mut requests: BTreeMap<_, _> = observed.requests.iter().map(|(node, seen)| (node.to_owned(), seen.clone())).collect();
                requests.insert(format!("n{}", at + 1), Amounts::pod(*cpu, 1));
                observed.requests = requests.into();
                if *cpu == 6 {
                    change.observed.clear();
                }
            }
            ledger.set_capacity(&member(*m), Some(capacity));
        }
        Op::Age { member: m, known } => {
            let changed = member(*m);
            let old: Vec<_> = ledger.rooms().map(|r| (r.key.clone(), r.age_ms)).collect();
            ledger.set_ages(
                |key| if *key == changed { known.then_some(0) } else { old.iter().find(|(k, _)| k == key).and_then(|(_, a)| *a) },
            );
        }
    }
}

type Room = (MemberKey, Vec<Amounts>, Vec<Amounts>);

fn rooms(ledger: &Ledger) -> Vec<Room> {
    // Extended resources would leave zero entries after an undo; these tests use none.
    ledger.rooms().map(|r| (r.key.clone(), r.free().now.to_vec(), r.free().later.to_vec())).collect()
}

fn snapshot(ledger: &Ledger) -> (Vec<Room>, Fleet) {
    (rooms(ledger), ledger.fleet())
}

fn start() -> Ledger {
    TestFleet::default().member("x+a", 1, &[8, 6, 4]).member("y+b", 2, &[8, 8, 5]).ledger()
}

proptest! {
    #![proptest_config(crate::test_fleet::cases(1500))]

    #[test]
    fn ledger_index_equals_recount(ops in prop::collection::vec(op(true), 1..25)) {
        let mut ledger = start();
        for (n, op) in ops.iter().enumerate() {
            apply(&mut ledger, n, op);
            // A member of unknown capacity has none in plain data; its index is compared once it is known.
            ledger.set_ages(|_| Some(0));
            prop_assert_eq!(rooms(&ledger), rooms(&Ledger::from(&ledger.fleet())), "after {:?}", op);
            let mut claims: Vec<&Arc<Claim>> = ledger.claims().collect();
            claims.sort_by_key(|claim| (&claim.member, claim.id));
            let members: BTreeSet<&MemberKey> = ledger.claimed().collect();
            prop_assert!(members.into_iter().flat_map(|member| ledger.claims_of(member)).eq(claims), "after {:?}", op);
        }
    }

    #[test]
    fn admitted_claims_exceed_no_node(ops in prop::collection::vec(op(false), 1..25)) {
        let mut ledger = start();
        for (n, op) in ops.iter().enumerate() {
            apply(&mut ledger, n, op);
            for (member, now, later) in rooms(&ledger) {
                for free in now.iter().chain(&later) {
                    prop_assert!(free.cpu >= 0 && free.memory >= 0 && free.pods >= 0, "{member} {free:?} after {op:?}");
                }
            }
        }
    }
}

fn observed(node: &str, pods: i64, cpu: i64) -> Observed {
    Observed {
        requests: BTreeMap::from([(node.into(), Amounts { cpu, memory: pods * crate::test_fleet::GI, pods, ..Amounts::default() })]).into(),
        ..Observed::default()
    }
}

fn free_cpu(fleet: &TestFleet) -> Vec<i64> {
    fleet.ledger().room(&key("x+a")).unwrap().free().now.iter().map(|a| a.cpu).collect()
}

#[test]
fn claim_counts_larger_of_claimed_and_observed() {
    let fleet =
        TestFleet::default().member("x+a", 1, &[10, 10]).running_as(app("web", crate::test_fleet::demand(2, 3), any_of(&["x+a"])), "x+a");
    assert_eq!(free_cpu(&fleet), [4, 10]);
    assert_eq!(
        free_cpu(&fleet.clone().observed("web", observed("n2", 1, 3))),
        [7, 7],
        "one pod was seen elsewhere, the other is still assumed"
    );
    assert_eq!(free_cpu(&fleet.clone().observed("web", observed("n2", 2, 6))), [10, 4], "observed nodes replace assumed ones");
    assert_eq!(free_cpu(&fleet.clone().observed("web", observed("n1", 2, 6))), [4, 10]);
    assert_eq!(free_cpu(&fleet.observed("web", observed("n2", 3, 9))), [10, 1], "scaled outside of Drover");
}

#[test]
fn pods_without_claim_count() {
    let fleet = TestFleet::default().member("x+a", 1, &[10]).change_capacity("x+a", |c| {
        c.observed.insert(id("forgotten"), observed("n1", 1, 4));
    });
    assert_eq!(free_cpu(&fleet), [6]);
}

#[test]
fn transact_reports_all_differences() {
    let fleet = TestFleet::default().member("x+a", 1, &[10]).member("y+b", 1, &[10]).running("web", "x+a", 2, &["x+a"]).running(
        "db",
        "x+a",
        2,
        &["x+a"],
    );
    let mut ledger = fleet.change_claim("db", |c| c.fence = 50).ledger();
    let changes = vec![
        LedgerChange::Leave { claim: id("web"), member: key("y+b") },
        LedgerChange::Leave { claim: id("gone"), member: key("y+b") },
        LedgerChange::Leave { claim: id("db"), member: key("x+a") },
    ];
    let differences = ledger.transact(&LedgerTransaction { operation: id("op"), fence: 9, changes }).unwrap_err();
    let codes: Vec<&str> = differences.iter().map(|d| d.code.as_str()).collect();
    assert_eq!(codes, ["claim_moved", "claim_missing", "stale_fence"]);
}

#[test]
fn promised_room_is_reserved_and_admitted_only_when_free() {
    let fleet = TestFleet::default().member("x+a", 1, &[10]).running("web", "x+a", 8, &["x+a"]);
    let mut ledger = fleet.ledger();
    let take = |name: &str, cpu| LedgerChange::Take {
        claim: id(name),
        dig: dig(name),
        request: Arc::new(app(name, crate::test_fleet::demand(1, cpu), any_of(&["x+a"]))),
        member: key("x+a"),
        state: None,
    };
    let mut make = |changes| {
        ledger.transact(&LedgerTransaction { operation: id("op"), fence: 9, changes }).map(|(receipt, undo)| {
            undo.keep();
            receipt
        })
    };
    let receipt = make(vec![LedgerChange::Leave { claim: id("web"), member: key("x+a") }, take("new", 9)]).unwrap();
    assert_eq!(receipt.claims[1].state, ClaimState::Promised);
    assert_eq!(make(vec![take("thief", 2)]).unwrap_err()[0].code, "no_room", "it fits now, but not later beside the promised claim");
    assert_eq!(make(vec![LedgerChange::Admit { claim: id("new") }]).unwrap_err()[0].code, "no_room", "the victim has not left yet");
    let receipt = make(vec![LedgerChange::Release { claim: id("web") }, LedgerChange::Admit { claim: id("new") }]).unwrap();
    assert_eq!(receipt.claims[0].state, ClaimState::Held);
}

#[test]
fn admission_tells_taken_room_from_room_that_is_not_free_yet() {
    let fleet = TestFleet::default().member("x+a", 1, &[10]).running("web", "x+a", 8, &["x+a"]);
    let change = |name: &str, change| LedgerTransaction { operation: id(name), fence: 9, changes: vec![change] };
    let mut ledger = fleet.ledger();
    ledger.transact(&change("op", LedgerChange::Leave { claim: id("web"), member: key("x+a") })).unwrap().1.keep();
    let request = Arc::new(app("new", crate::test_fleet::demand(1, 9), any_of(&["x+a"])));
    let take = LedgerChange::Take { claim: id("new"), dig: dig("new"), request, member: key("x+a"), state: None };
    ledger.transact(&change("op", take)).unwrap().1.keep();
    let admit = |ledger: &mut Ledger| ledger.transact(&change("op", LedgerChange::Admit { claim: id("new") })).map(drop).unwrap_err();
    assert_eq!(admit(&mut ledger)[0].code, "no_room");

    let taken = fleet.change_capacity("x+a", |capacity| Arc::make_mut(&mut capacity.nodes)[0].foreign.cpu = 4).ledger();
    ledger.set_capacity(&key("x+a"), taken.room(&key("x+a")).unwrap().capacity.clone());
    assert_eq!(admit(&mut ledger)[0].code, "room_taken", "9 of 10 are needed and 4 are used by others");
}

#[test]
fn claim_grows_beside_its_pods_where_they_are_observed() {
    let mut web = app("web", crate::test_fleet::demand(2, 4), any_of(&["x+a"]));
    web.demand.groups[0].surge = 1;
    let one_on_each = |cpu| seen([("n1", cpu), ("n2", cpu)]);
    // Each claim assumes that both of its pods are on one node, but the scheduler has spread them.
    let fleet = |other: i64| {
        let other_app = app("other", crate::test_fleet::demand(2, other), any_of(&["x+a"]));
        let fleet = TestFleet::default().member("x+a", 1, &[10, 10]).running_as(web.clone(), "x+a").running_as(other_app, "x+a@n2");
        fleet.observed("web", one_on_each(4)).observed("other", one_on_each(other))
    };
    let raise = |fleet| resized(fleet, &web, true);
    assert_eq!(raise(fleet(3)), Err("no_room".to_owned()), "3 are free on each node, and a third pod needs 4");
    assert_eq!(raise(fleet(2)), Ok(vec![0, 4]));
    let crowded = fleet(2).change_capacity("x+a", |capacity| Arc::make_mut(&mut capacity.nodes)[0].foreign.cpu = 5);
    assert_eq!(raise(crowded), Ok(vec![-1, 0]), "the pods that run stay on a node that others over-commit");
}

/// What is observed of an app: so much CPU on each node, in one pod.
fn seen<const N: usize>(cpu: [(&str, i64); N]) -> Observed {
    let pod = |cpu| Amounts::pod(cpu, crate::test_fleet::GI);
    Observed { requests: BTreeMap::from(cpu.map(|(node, cpu)| (node.to_owned(), pod(cpu)))).into(), ..Observed::default() }
}

/// Resizes the claim of `web`. Returns the CPU that is free on each node then, or the code of the refusal.
fn resized(fleet: TestFleet, request: &AppRequest, surge: bool) -> Result<Vec<i64>, String> {
    let change = LedgerChange::Resize { claim: id("web"), request: Arc::new(request.clone()), surge };
    let mut ledger = fleet.ledger();
    let result = ledger.transact(&LedgerTransaction { operation: id("op"), fence: 9, changes: vec![change] });
    result.map(|(_, undo)| undo.keep()).map_err(|refused| refused[0].code.clone())?;
    Ok(ledger.room(&key("x+a")).unwrap().free().now.iter().map(|free| free.cpu).collect())
}

fn cordoned(fleet: TestFleet) -> TestFleet {
    fleet.change_capacity("x+a", |capacity| Arc::make_mut(&mut capacity.nodes)[0].unschedulable = true)
}

#[test]
fn claim_grows_to_the_pods_that_run_already() {
    let web = |replicas| app("web", crate::test_fleet::demand(replicas, 2), any_of(&["x+a"]));
    let fleet = TestFleet::default().member("x+a", 1, &[10, 4]).running_as(web(2), "x+a");
    let fleet = cordoned(fleet.observed("web", seen([("n1", 4), ("n2", 4)])));
    assert_eq!(resized(fleet.clone(), &web(4), false), Ok(vec![6, 0]), "the other two fill n2");
    assert_eq!(resized(fleet, &web(5), false), Err("no_room".to_owned()));
}

#[test]
fn pods_that_get_larger_find_room_beside_the_others_where_these_are_observed() {
    let web = |cpu| {
        let mut web = app("web", crate::test_fleet::demand(2, 4), any_of(&["x+a"]));
        web.demand.groups.push(PodGroup { workload: "Deployment/worker".into(), ..crate::test_fleet::group(1, cpu) });
        web
    };
    let other = app("other", crate::test_fleet::demand(2, 3), any_of(&["x+a"]));
    let fleet = TestFleet::default().member("x+a", 1, &[10, 10, 3]).running_as(web(1), "x+a").running_as(other, "x+a@n2");
    let fleet = fleet.change_claim("web", |claim| claim.pods[1].node = "n3".into());
    let fleet = fleet.observed("web", seen([("n1", 4), ("n2", 4), ("n3", 1)])).observed("other", seen([("n1", 3), ("n2", 3)]));
    assert_eq!(resized(fleet.clone(), &web(3), false).map(drop), Ok(()));
    assert_eq!(resized(fleet, &web(4), false), Err("no_room".to_owned()), "3 are free on each node");
}

#[test]
fn pods_on_every_node_need_no_second_place_when_others_grow() {
    let mut web = app("web", crate::test_fleet::demand(2, 3), any_of(&["x+a"]));
    web.demand.groups[0].surge = 1;
    web.demand.groups.push(PodGroup { workload: "DaemonSet/log".into(), per_node: true, ..crate::test_fleet::group(0, 1) });
    let fleet = TestFleet::default().member("x+a", 1, &[10, 10]).running_as(web.clone(), "x+a").running("other", "x+a@n2", 6, &["x+a"]);
    let on_both = |claim: &mut Claim| claim.pods.push(PodsOnNode { node: "n2".into(), group: 1, count: 1 });
    let fleet = cordoned(fleet.change_claim("web", on_both).observed("web", seen([("n1", 7), ("n2", 1)])));
    assert_eq!(resized(fleet, &web, true), Ok(vec![3, 0]), "3 are free on n2");
}

#[test]
fn resize_counts_surge_and_is_refused_without_room() {
    let mut web = app("web", crate::test_fleet::demand(2, 3), any_of(&["x+a"]));
    web.demand.groups[0].surge = 1;
    let fleet = TestFleet::default().member("x+a", 1, &[10]).running_as(web.clone(), "x+a");
    let mut ledger = fleet.ledger();
    let mut resize = |cpu: i64, surge: bool| {
        let mut request = web.clone();
        request.demand.groups[0].requests.cpu = cpu;
        let change = LedgerChange::Resize { claim: id("web"), request: Arc::new(request), surge };
        let result = ledger.transact(&LedgerTransaction { operation: id("op"), fence: 9, changes: vec![change] });
        result.map(|(_, undo)| undo.keep()).map(|()| ledger.room(&key("x+a")).unwrap().free().now[0].cpu)
    };
    assert_eq!(resize(4, true).unwrap_err()[0].code, "no_room", "three pods of 4 do not fit into 10");
    assert_eq!(resize(3, true).unwrap(), 1);
    assert_eq!(resize(2, false).unwrap(), 6);
    assert_eq!(resize(3, true).unwrap(), 1);
    assert_eq!(resize(1, true).unwrap(), 1, "during an update the larger demand counts");
    assert_eq!(resize(1, false).unwrap(), 8);
}

#[test]
fn transact_refuses_member_that_terms_no_longer_allow() {
    let fleet = TestFleet::default().member("x+a", 1, &[10]).member("x+b", 1, &[10]).member("y+c", 5, &[10]);
    let ledger = fleet.ledger();
    let take = |terms, member: &str| LedgerChange::Take {
        claim: id(&format!("web on {member}")),
        dig: dig("shop"),
        request: Arc::new(app("web", crate::test_fleet::demand(1, 1), terms)),
        member: key(member),
        state: None,
    };
    let against = |changes| {
        let differences = ledger.clone().transact(&LedgerTransaction { operation: id("op"), fence: 9, changes }).map(|_| ());
        differences.err().map(|all| (all[0].code.clone(), all[0].detail.clone()))
    };
    assert_eq!(against(vec![take(any_of(&["x+a", "x+b"]), "x+b")]), None);
    // y+c was allowed when the plan was made.
    let (code, why) = against(vec![take(any_of(&["x+a", "x+b"]), "y+c")]).unwrap();
    assert_eq!(code, "not_allowed");
    assert_eq!(why, "web may not run on y+c: its placement intent and logical cloud now allow x+a, x+b");
    // The intent names it, but it is no longer in the logical cloud.
    let mut outside = any_of(&["x+a", "y+c"]);
    outside.logical_cloud = outside.logical_cloud.iter().filter(|member| **member != key("y+c")).cloned().collect();
    assert_eq!(against(vec![take(outside, "y+c")]).unwrap().0, "not_allowed");
    // The intent requires two places now; the plan has one.
    let mut both = any_of(&["x+a", "x+b"]);
    both.intent.all_of = std::mem::take(&mut both.intent.any_of);
    let (code, why) = against(vec![take(both.clone(), "x+a")]).unwrap();
    assert_eq!(
        (code.as_str(), why.as_str()),
        ("not_allowed", "web must also run on one of x+b, but the transaction gives it no place there")
    );
    assert_eq!(against(vec![take(both.clone(), "x+a"), take(both, "x+b")]), None);
}
