//! The member's scheduler puts pods elsewhere than was assumed: room is not given away twice, and none of it is lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_scheduling::*;
use proptest::prelude::*;

use crate::world::{GI, World, any_of, app, cases, demand, id, key, request};

const HERE: [&str; 1] = ["x+a"];

fn seen(node: &str, cpu: i64) -> Observed {
    Observed { requests: BTreeMap::from([(node.to_owned(), Amounts::pod(cpu, GI))]).into(), ..Observed::default() }
}

fn outcome(world: &World, cpu: i64) -> Outcome {
    world.decide(vec![app("late", demand(1, cpu), any_of(&HERE))]).outcome
}

#[test]
fn pods_that_took_anothers_node_have_not_made_room_on_their_own() {
    let two = World::default().member("x+a", 1, &[2000, 2000]);
    let full = two.running("a", "x+a@n1", 1000, &HERE).running("b", "x+a@n1", 1000, &HERE);
    let full = full.running("c", "x+a@n2", 1000, &HERE).running("d", "x+a@n2", 1000, &HERE);
    // a and b are where c and d were thought to go; these will be where a and b were.
    let swapped = full.observed("a", seen("n2", 1000)).observed("b", seen("n2", 1000));
    assert_eq!(outcome(&swapped, 1000), Outcome::NoRoom);
    let ledger = swapped.ledger();
    let room = ledger.room(&key("x+a")).unwrap();
    assert!(room.free().now.iter().all(|free| free.cpu == 0), "{:?}", room.free().now);

    // One that is still to come goes away: there is room for exactly one.
    let mut ledger = ledger;
    ledger.put_claim(id("c"), None);
    assert_eq!(ledger.decide(id("decision"), &request(vec![app("late", demand(1, 1000), any_of(&HERE))])).outcome, Outcome::Placed);
    assert_eq!(ledger.decide(id("decision"), &request(vec![app("late", demand(2, 1000), any_of(&HERE))])).outcome, Outcome::NoRoom);
}

#[test]
fn what_is_to_come_and_leaves_counts_where_it_was_put() {
    let two = World::default().member("x+a", 1, &[1000, 1000]).member("x+b", 1, &[1000]);
    let world = two.running("a", "x+a@n1", 1000, &HERE).running("b", "x+a@n2", 1000, &["x+a", "x+b"]).observed("a", seen("n2", 1000));
    // b counts on n1 now; when it moves, that is what is free.
    assert_eq!(outcome(&world, 1000), Outcome::NoRoom);
    assert!(matches!(world.plan(vec![app("late", demand(1, 1000), any_of(&HERE))]), PlanResult::Feasible(_)));
}

proptest! {
    #![proptest_config(cases(256))]

    /// As many pods as there is room for, whatever the scheduler chose meanwhile; and a ledger that followed says what one says
    /// that is made from the same facts.
    #[test]
    fn equal_pods_fill_a_member_exactly(
        nodes in 1..5_usize,
        each in 1..4_i64,
        choices in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 20),
    ) {
        let mut ledger = World::default().member("x+a", 1, &vec![each * 1000; nodes]).ledger();
        let mut capacity = Capacity::clone(ledger.room(&key("x+a")).unwrap().capacity.as_ref().unwrap());
        let mut left = vec![each; nodes];
        for (placed, (choice, told)) in (0_i64..).zip(choices) {
            let name = format!("app-{placed}");
            let order = DecisionRequest { dig: crate::world::dig(&name), ..request(vec![app(&name, demand(1, 1000), any_of(&HERE))]) };
            let decision = ledger.decide(id(&name), &order);
            let room = placed < each * nodes as i64;
            prop_assert_eq!(decision.outcome == Outcome::Placed, room, "{} of {}", placed, each * nodes as i64);
            if !room {
                break;
            }
            ledger.apply_decision(&order, &decision).keep();
            // Any node that has room; it is heard of at once, or with the next that is.
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
