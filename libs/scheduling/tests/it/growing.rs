//! Room for additional pods of a copy that somebody else has scaled, of which some run already.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_scheduling::*;

use crate::test_fleet::{TestFleet, any_of, app, demand, dig, feasible, id, key, moves};

/// `shop` has claimed one pod and runs two in the 8 CPU of `x+a`; three others have two CPU each and may move.
fn full() -> TestFleet {
    let mut fleet = TestFleet::default().member("x+a", 1, &[8]).member("y+b", 2, &[8]).running("shop", "x+a", 1, &["x+a"]);
    for name in ["m1", "m2", "m3"] {
        fleet = fleet.running(name, "x+a", 2, &["x+a", "y+b"]);
    }
    fleet.observed("shop", pods(2))
}

fn pods(count: i64) -> Observed {
    let requests = Amounts::pod(1, crate::test_fleet::GI).times(count);
    Observed { requests: BTreeMap::from([("n1".to_owned(), requests)]).into(), ..Observed::default() }
}

/// So many more pods of `shop`.
fn more(replicas: u32) -> AppRequest {
    app("shop", Demand { grows: Some(id("shop")), ..demand(replicas, 1) }, any_of(&["x+a"]))
}

#[test]
fn plan_for_additional_pods_counts_those_that_run_already_once() {
    let plan = feasible(full().plan(vec![more(3)]));
    assert_eq!(moves(&plan), ["m1>y+b"], "four pods need two CPU more than is free without them");
    let unrelated = app("shop", demand(3, 1), any_of(&["x+a"]));
    assert_eq!(moves(&feasible(full().plan(vec![unrelated]))).len(), 2, "three pods of another app need three CPU");
}

#[test]
fn decision_for_additional_pods_counts_those_that_run_already_once() {
    let fleet = full().change_claim("m1", |claim| claim.member = key("y+b"));
    assert_eq!(fleet.decide(vec![more(4)]).outcome, Outcome::NoRoom, "one pod, two others, and four CPU of the others");
    assert_eq!(fleet.decide(vec![more(3)]).outcome, Outcome::Placed);
}

fn cpu(ledger: &Ledger) -> (i64, i64) {
    let free = ledger.room(&key("x+a")).unwrap().free();
    (free.now[0].cpu, free.later[0].cpu)
}

fn see(ledger: &mut Ledger, pods: Observed) {
    let mut capacity = Capacity::clone(ledger.room(&key("x+a")).unwrap().capacity.as_ref().unwrap());
    capacity.observed.insert(id("shop"), pods);
    ledger.set_capacity(&key("x+a"), Some(Arc::new(capacity)));
}

#[test]
fn additional_pods_that_start_before_they_are_admitted_take_no_room_of_others() {
    let mut ledger = full().ledger();
    let make = |ledger: &mut Ledger, changes| {
        let made = ledger.transact(&LedgerTransaction { operation: id("op"), fence: 9, changes });
        made.map(|(receipt, undo)| {
            undo.keep();
            receipt.claims.iter().map(|claim| claim.state).collect::<Vec<_>>()
        })
    };
    assert_eq!(cpu(&ledger), (0, 0));
    let take = LedgerChange::Take { claim: id("more"), dig: dig("shop"), request: Arc::new(more(3)), member: key("x+a"), state: None };
    let leave = LedgerChange::Leave { claim: id("m1"), member: key("x+a") };
    assert_eq!(make(&mut ledger, vec![leave, take]).unwrap(), [ClaimState::Leaving, ClaimState::Promised]);
    assert_eq!(cpu(&ledger), (0, 0), "the pod that runs is there now; later there are four, and two others");

    // m1 stops, and pods start in its room at once.
    see(&mut ledger, pods(4));
    assert_eq!(cpu(&ledger), (-2, 0), "for a moment both are reported");
    let release = LedgerChange::Release { claim: id("m1") };
    make(&mut ledger, vec![release]).unwrap();
    assert_eq!(cpu(&ledger), (0, 0));
    assert_eq!(make(&mut ledger, vec![LedgerChange::Admit { claim: id("more") }]).unwrap(), [ClaimState::Held]);
    assert_eq!(cpu(&ledger), (0, 0));

    // The claim of the copy takes their place.
    let whole = app("shop", demand(4, 1), any_of(&["x+a"]));
    let swap = vec![
        LedgerChange::Release { claim: id("more") },
        LedgerChange::Resize { claim: id("shop"), request: Arc::new(whole), surge: false },
    ];
    make(&mut ledger, swap).unwrap();
    assert_eq!(cpu(&ledger), (0, 0));
    see(&mut ledger, pods(1));
    assert_eq!(cpu(&ledger), (0, 0), "what is claimed counts, whether it runs or not");
}

#[test]
fn pods_beyond_a_claim_that_nobody_makes_room_for_count() {
    let mut ledger = full().ledger();
    see(&mut ledger, pods(1));
    assert_eq!(cpu(&ledger), (1, 1));
    see(&mut ledger, pods(2));
    assert_eq!(cpu(&ledger), (0, 0));
}
