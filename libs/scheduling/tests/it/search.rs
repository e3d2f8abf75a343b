//! The systematic search for victims: it is complete within its limit, and says if it was cut.

use std::sync::Arc;

use drover_scheduling::*;

use crate::test_fleet::{GI, TestFleet, any_of, app, demand, feasible, infeasible, key, moves};

/// Thirteen apps fill `x+a`. Their sizes are such that only one set of them fills `room` on `y+b` exactly, and the newcomer needs as much.
fn scattered(victims: &[u32]) -> (TestFleet, Vec<AppRequest>) {
    const BASE: i64 = 10_000;
    let size = |i: u32| BASE + (1 << i);
    let exact: i64 = victims.iter().map(|i| size(*i)).sum();
    let mut fleet = TestFleet::default().member("x+a", 1, &[(0..13).map(size).sum()]).member("y+b", 2, &[exact]);
    for i in 0..13 {
        fleet = fleet.running(&format!("app{i:02}"), "x+a", size(i), &["x+a", "y+b"]);
    }
    (fleet, vec![app("new", demand(1, exact), any_of(&["x+a"]))])
}

#[test]
fn search_finds_the_only_set_of_thirteen_candidates() {
    for victims in [&[3, 5, 7, 8, 10, 12][..], &[6, 7, 8, 9, 10, 11, 12], &[1, 11, 12]] {
        let (fleet, new) = scattered(victims);
        let plan = feasible(plan(&fleet.ledger(), &fleet.newcomer(new)));
        let expected: Vec<String> = victims.iter().map(|i| format!("app{i:02}>y+b")).collect();
        assert_eq!(moves(&plan), expected);
    }
}

#[test]
fn cut_search_says_so_in_its_reason() {
    let (fleet, new) = scattered(&[3, 5, 7, 8, 10, 12]);
    let why = infeasible(fleet.plan_with_steps(new.clone(), 20));
    assert!(why.cut_short && why.examined <= 60, "{}", why.examined);
    assert!(why.members[0].reason.contains("before the search reached its limit"), "{}", why.members[0].reason);
    // A complete search without a result does not blame its limit.
    let full = fleet.running("filler", "y+b", 1, &["y+b"]);
    let why = infeasible(full.plan(new));
    assert!(!why.cut_short && why.members[0].reason.contains("no set of them frees"), "{why:#?}");
}

#[test]
fn cut_drain_says_so_in_its_reason() {
    let mut fleet = TestFleet::default().member("x+a", 1, &[2000]).member("y+b", 1, &[900]).member("z+c", 1, &[1100]);
    for (i, cpu) in [400, 300, 300, 200, 500, 300].into_iter().enumerate() {
        fleet = fleet.running(&format!("app{i}"), "x+a", cpu, &["x+a", "y+b", "z+c"]);
    }
    let request = PlanRequest { kind: PlanKind::Drain { member: key("x+a") }, ..fleet.newcomer(vec![]) };
    let drain = |steps: u64| plan_within(&fleet.ledger(), &request, &mut StepMeter::new(steps));
    assert_eq!(moves(&feasible(drain(10_000))).len(), 6);
    let why = infeasible(drain(1));
    assert!(why.cut_short && why.members[0].reason.contains("before the search reached its limit"), "{why:#?}");
}

#[test]
fn fewest_moves_spends_the_search_on_fewer_victims() {
    // In the order of the owners the two small apps come first; the large one alone is enough.
    let fleet = TestFleet::default()
        .member("x+a", 1, &[1000])
        .member("y+b", 2, &[2000])
        .running("large", "x+a", 500, &["x+a", "y+b"])
        .running("small1", "x+a", 250, &["x+a", "y+b"])
        .running("small2", "x+a", 250, &["x+a", "y+b"])
        .priority("small1", 1)
        .priority("small2", 2)
        .priority("large", 3);
    let mut request = fleet.newcomer(vec![app("new", demand(1, 500), any_of(&["x+a"]))]);
    assert_eq!(moves(&feasible(plan(&fleet.ledger(), &request))), ["small1>y+b", "small2>y+b"]);
    request.fewest_moves = true;
    assert_eq!(moves(&feasible(plan(&fleet.ledger(), &request))), ["large>y+b"]);
}

#[test]
fn members_that_are_alike_are_examined_only_if_a_move_there_may_be_cheaper() {
    let names: Vec<String> = (0..100).map(|i| format!("x+m{i:03}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).chain(["y+spare"]).collect();
    let mut fleet = TestFleet::default().member("y+spare", 2, &[100_000]);
    for (i, name) in all[..100].iter().enumerate() {
        fleet =
            fleet.member(name, 1, &[1000]).running(&format!("one{i:03}"), name, 500, &all).running(&format!("two{i:03}"), name, 500, &all);
    }
    let new = vec![app("new", demand(1, 500), any_of(&all[..100]))];
    let found = feasible(fleet.plan(new.clone()));
    assert_eq!(moves(&found), ["one000>y+spare"]);
    assert!(found.examined < 10, "{} sets were examined", found.examined);
    // Its pods become Ready sooner than all others.
    let sooner = fleet.observed("two070", Observed { ready_s: Some(1.0), ..Observed::default() }).priority("two070", 1);
    assert_eq!(moves(&feasible(sooner.plan(new))), ["two070>y+spare"]);
}

#[test]
fn members_whose_apps_have_nowhere_to_go_are_not_examined_if_another_one_does() {
    // The newcomer needs one app to leave each of a hundred members, but none of these apps has room elsewhere. On the last member two have.
    let names: Vec<String> = (0..100).map(|i| format!("x+m{i:03}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).chain(["x+z"]).collect();
    // The free amounts of both nodes together would be enough.
    for nodes in [&[1000][..], &[650, 650]] {
        let mut fleet = TestFleet::default().member("y+full", 2, &[100]).member("y+spare", 2, &[500]).member("x+z", 1, &[1000]);
        for i in 0..4 {
            fleet = fleet.running(&format!("small{i}"), "x+z", 250, &["x+z", "y+spare"]);
        }
        for name in &all[..100] {
            let here = [*name, "y+full"];
            fleet = fleet.member(name, 1, nodes).running(&format!("one-{name}"), name, 500, &here).running(
                &format!("two-{name}"),
                name,
                500,
                &here,
            );
        }
        let found = feasible(fleet.plan(vec![app("new", demand(1, 300), any_of(&all))]));
        assert_eq!(moves(&found), ["small0>y+spare", "small1>y+spare"], "{nodes:?}");
        assert!(found.examined < 20, "{} sets were examined", found.examined);
    }
}

#[test]
fn each_of_hundreds_of_intents_leads_to_its_own_members() {
    let mut fleet = TestFleet::default().member("x+a", 1, &[60_000]).change_capacity("x+a", |capacity| {
        let room = &mut Arc::make_mut(&mut capacity.nodes)[0].allocatable;
        (room.pods, room.memory) = (1_000, 1_000 * GI);
    });
    let mut expected = Vec::new();
    for i in 0..300 {
        let own = format!("y+m{i:03}");
        fleet = fleet.member(&own, 2, &[200]);
        for app in [format!("one{i:03}"), format!("two{i:03}")] {
            fleet = fleet.running(&app, "x+a", 100, &["x+a", &own]);
            expected.push(format!("{app}>{own}"));
        }
    }
    let mut found = moves(&feasible(fleet.drain("x+a")));
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn every_member_is_examined_for_one_app_and_the_limit_is_not_blamed() {
    let names: Vec<String> = (0..600).map(|i| format!("x+m{i:03}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut fleet = TestFleet::default().member("y+spare", 2, &[500]);
    for name in &all {
        fleet = fleet.member(name, 1, &[500]).running(&format!("on-{name}"), name, 500, &[*name]);
    }
    let new = vec![app("new", demand(1, 500), any_of(&all))];
    let why = infeasible(fleet.plan(new.clone()));
    assert!(!why.cut_short && why.members.len() == 600, "{} members, cut short: {}", why.members.len(), why.cut_short);
    let fleet = fleet.running("last", "x+m599", 500, &["x+m599", "y+spare"]).member("x+m599", 1, &[1000]);
    assert_eq!(moves(&feasible(fleet.plan(new))), ["last>y+spare"]);
}

#[test]
fn replayed_search_gives_the_same_plan() {
    let (fleet, new) = scattered(&[6, 7, 8, 9, 10, 11, 12]);
    let (ledger, request) = (fleet.ledger(), fleet.newcomer(new));
    for steps in [10, 100, 1_000, 10_000] {
        let mut recording = RecordingMeter::new(StepMeter::new(steps));
        let result = plan_within(&ledger, &request, &mut recording);
        assert_eq!(plan_within(&ledger, &request, &mut ReplayMeter::new(&recording.into_searches())), result);
    }
}

/// Apps of random sizes; a random set of them fills the room of the destinations exactly, so a plan always exists.
#[test]
fn search_misses_no_feasible_instance_of_fourteen_candidates() {
    for seed in 0..80 {
        let mut random = fastrand::Rng::with_seed(seed);
        let sizes: Vec<i64> = (0..14).map(|_| random.i64(50..400)).collect();
        let mut rooms = [0, 0, 0];
        for size in &sizes {
            if random.u8(0..100) < 45 {
                rooms[random.usize(0..3)] += size;
            }
        }
        let mut fleet = TestFleet::default().member("x+a", 1, &[sizes.iter().sum()]);
        for (name, room) in ["y+b", "y+c", "z+d"].into_iter().zip(rooms) {
            fleet = fleet.member(name, 2, &[room]);
        }
        for (i, size) in sizes.iter().enumerate() {
            fleet = fleet.running(&format!("app{i:02}"), "x+a", *size, &["x+a", "y+b", "y+c", "z+d"]);
        }
        let result = fleet.plan(vec![app("new", demand(1, rooms.iter().sum()), any_of(&["x+a"]))]);
        assert!(matches!(result, PlanResult::Feasible(_)), "seed {seed}: {result:#?}");
    }
}
