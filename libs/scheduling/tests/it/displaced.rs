//! Displaced pods: if the member's scheduler uses other nodes than assumed, no room is given away twice and none is lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_scheduling::*;
use proptest::prelude::*;

use crate::test_fleet::{GI, TestFleet, any_of, app, cases, demand, id, key, request};

const HERE: [&str; 1] = ["x+a"];

fn seen(node: &str, cpu: i64) -> Observed {
    Observed { requests: BTreeMap::from([(node.to_owned(), Amounts::pod(cpu, GI))]).into(), ..Observed::default() }
}

fn outcome(fleet: &TestFleet, cpu: i64) -> Outcome {
    fleet.decide(vec![app("late", demand(1, cpu), any_of(&HERE))]).outcome
}

#[test]
fn displaced_pods_do_not_free_room() {
    let two = TestFleet::default().member("x+a", 1, &[2000, 2000]);
    let full = two.running("a", "x+a@n1", 1000, &HERE).running("b", "x+a@n1", 1000, &HERE);
    let full = full.running("c", "x+a@n2", 1000, &HERE).running("d", "x+a@n2", 1000, &HERE);
    // a and b run on the assumed nodes of c and d, so c and d will run on the assumed nodes of a and b.
    let swapped = full.observed("a", seen("n2", 1000)).observed("b", seen("n2", 1000));
    assert_eq!(outcome(&swapped, 1000), Outcome::NoRoom);
    let ledger = swapped.ledger();
    let room = ledger.room(&key("x+a")).unwrap();
    assert!(room.free().now.iter().all(|free| free.cpu == 0), "{:?}", room.free().now);

    // If an unobserved one is released, there is room for exactly one.
    let mut ledger = ledger;
    ledger.put_claim(id("c"), None);
    assert_eq!(ledger.decide(id("decision"), &request(vec![app("late", demand(1, 1000), any_of(&HERE))])).outcome, Outcome::Placed);
    assert_eq!(ledger.decide(id("decision"), &request(vec![app("late", demand(2, 1000), any_of(&HERE))])).outcome, Outcome::NoRoom);
}

#[test]
fn displaced_claim_that_leaves_frees_node_where_it_counts() {
    let two = TestFleet::default().member("x+a", 1, &[1000, 1000]).member("x+b", 1, &[1000]);
    let fleet = two.running("a", "x+a@n1", 1000, &HERE).running("b", "x+a@n2", 1000, &["x+a", "x+b"]).observed("a", seen("n2", 1000));
    // b counts on n1 now, so its move frees n1.
    assert_eq!(outcome(&fleet, 1000), Outcome::NoRoom);
    assert!(matches!(fleet.plan(vec![app("late", demand(1, 1000), any_of(&HERE))]), PlanResult::Feasible(_)));
}

proptest! {
    #![proptest_config(cases(256))]

    /// Whatever nodes the scheduler chose, exactly as many pods are placed as there is room for, and a ledger that followed the changes
    /// equals one made from the final state.
    #[test]
    fn equal_pods_fill_member_exactly(
        nodes in 1..5_usize,
        each in 1..4_i64,
        choices in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 20),
    ) {
        let mut ledger = TestFleet::default().member("x+a", 1, &vec![each * 1000; nodes]).ledger();
        let mut capacity = Capacity::clone(ledger.room(&key("x+a")).unwrap().capacity.as_ref().unwrap());
        let mut left = vec![each; nodes];
        for (placed, (choice, told)) in (0_i64..).zip(choices) {
            let name = format!("app-{placed}");
            let order = DecisionRequest { dig: crate::test_fleet::dig(&name), ..request(vec![app(&name, demand(1, 1000), any_of(&HERE))]) };
            let decision = ledger.decide(id(&name), &order);
            let room = placed < each * nodes as i64;
            prop_assert_eq!(decision.outcome == Outcome::Placed, room, "{} of {}", placed, each * nodes as i64);
            if !room {
                break;
            }
            ledger.apply_decision(&order, &decision).keep();
            // The scheduler chooses any node with room. The pod is observed at once, or together with a later one.
            let free: Vec<usize> = (0..nodes).filter(|n| left[*n] > 0).collect();
            let node = free[choice.index(free.len())];
            left[node] -= 1;
            let claim = decision.apps[0].groups[0].placement.as_ref().unwrap().binding;
            capacity.observed.insert(claim, seen(&format!("n{}", node + 1), 1000));
            if told {
                ledger.set_capacity(&key("x+a"), Some(Arc::new(capacity.clone())));
            }
            let again = Ledger::from(&ledger.fleet());
            prop_assert_eq!(again.room(&key("x+a")), ledger.room(&key("x+a")));
        }
    }
}
