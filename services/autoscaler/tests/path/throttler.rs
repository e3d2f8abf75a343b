//! The line and the places, under any order of events.

use std::net::SocketAddr;

use drover_autoscaler::path::room::{Entering, Lease, Room, UNLIMITED};
use futures::FutureExt;
use proptest::prelude::*;

fn place(n: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, n], 1))
}

#[derive(Clone, Debug)]
enum Act {
    Enter,
    /// The n-th of those inside is answered.
    Leave(usize),
    /// The n-th of those who wait goes away.
    GoAway(usize),
    /// Places with these capacities.
    Furnish(Vec<usize>),
}

fn act() -> impl Strategy<Value = Act> {
    let capacity = prop_oneof![0usize..6, Just(UNLIMITED)];
    prop_oneof![
        6 => Just(Act::Enter),
        3 => any::<prop::sample::Index>().prop_map(|at| Act::Leave(at.index(64))),
        2 => any::<prop::sample::Index>().prop_map(|at| Act::GoAway(at.index(64))),
        1 => prop::collection::vec(capacity, 0..4).prop_map(Act::Furnish),
    ]
}

proptest! {
    /// Nobody too many in a place, nobody waits while there is room, first come first served, the line no longer than it may be, and
    /// nothing is left of those who went.
    #[test]
    fn the_rules_hold_whatever_happens(longest in 0usize..6, acts in prop::collection::vec(act(), 1..120)) {
        let room = Room::new(longest);
        let mut capacities: Vec<usize> = Vec::new();
        let mut inside: Vec<Lease> = Vec::new();
        let mut line: Vec<(usize, Entering)> = Vec::new();
        for (number, act) in acts.into_iter().enumerate() {
            match act {
                Act::Enter => match room.enter() {
                    Ok(entering) if entering.waits() => line.push((number, entering)),
                    Ok(entering) => inside.push(entering.now_or_never().unwrap()),
                    Err(full) => {
                        prop_assert_eq!(full.waiting, longest);
                        prop_assert_eq!(line.len(), longest);
                    }
                },
                Act::Leave(at) if !inside.is_empty() => drop(inside.swap_remove(at % inside.len())),
                Act::GoAway(at) if !line.is_empty() => drop(line.remove(at % line.len())),
                Act::Furnish(now) => {
                    // A place that shrinks keeps whom it has.
                    room.furnish(now.iter().enumerate().map(|(n, capacity)| (place(n as u8), *capacity)));
                    capacities = now;
                }
                _ => {}
            }
            let mut first_that_waits = None;
            let mut still = Vec::new();
            for (number, mut entering) in line {
                match (&mut entering).now_or_never() {
                    Some(lease) => {
                        prop_assert_eq!(first_that_waits, None, "somebody was overtaken");
                        inside.push(lease);
                    }
                    None => {
                        first_that_waits = first_that_waits.or(Some(number));
                        still.push((number, entering));
                    }
                }
            }
            line = still;
            prop_assert_eq!(room.waiting(), line.len());
            prop_assert_eq!(room.under_way(), inside.len());
            prop_assert!(line.len() <= longest);
            let full = |n: usize| inside.iter().filter(|lease| lease.address() == place(n as u8)).count() >= capacities[n];
            prop_assert!(line.is_empty() || (0..capacities.len()).all(full), "somebody waits while there is room");
        }
        drop((inside, line));
        prop_assert_eq!((room.under_way(), room.waiting()), (0, 0));
    }

    /// Without shrinking places nobody is ever let into a full one.
    #[test]
    fn a_place_takes_no_more_than_it_takes(capacities in prop::collection::vec(0usize..6, 1..5), leaves in prop::collection::vec(any::<bool>(), 1..80)) {
        let room = Room::new(1_000);
        room.furnish(capacities.iter().enumerate().map(|(n, capacity)| (place(n as u8), *capacity)));
        let mut inside = Vec::new();
        let mut line = Vec::new();
        for leave in leaves {
            if leave && !inside.is_empty() { inside.remove(0); } else { line.push(room.enter().unwrap()); }
            line = line.into_iter().filter_map(|mut entering| match (&mut entering).now_or_never() {
                Some(lease) => { inside.push(lease); None }
                None => Some(entering),
            }).collect();
            for (n, capacity) in capacities.iter().enumerate() {
                prop_assert!(inside.iter().filter(|lease| lease.address() == place(n as u8)).count() <= *capacity);
            }
        }
    }
}

#[test]
fn few_at_once_fill_the_first_place_more_go_in_turn() {
    let of = |capacity: usize| {
        let room = Room::new(0);
        room.furnish([(place(0), capacity), (place(1), capacity)]);
        let leases: Vec<Lease> = (0..capacity).map(|_| room.enter().unwrap().now_or_never().unwrap()).collect();
        leases.iter().filter(|lease| lease.address() == place(0)).count()
    };
    assert_eq!(of(3), 3);
    assert_eq!(of(10), 5);
}

#[test]
fn without_limit_the_emptier_of_two_is_taken() {
    let room = Room::new(0);
    room.furnish((0..4).map(|n| (place(n), UNLIMITED)));
    let leases: Vec<Lease> = (0..400).map(|_| room.enter().unwrap().now_or_never().unwrap()).collect();
    for n in 0..4 {
        let here = leases.iter().filter(|lease| lease.address() == place(n)).count();
        assert!((70..=130).contains(&here), "{here} of 400 in one of four places");
    }
}
