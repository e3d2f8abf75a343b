//! The throttler's queue and destinations, under any order of events.

use std::net::SocketAddr;

use drover_autoscaler::path::throttler::{Admission, Permit, Throttler, UNLIMITED};
use futures::FutureExt;
use proptest::prelude::*;

fn destination(n: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, n], 1))
}

#[derive(Clone, Debug)]
enum Event {
    Enter,
    /// The n-th admitted request is answered.
    Leave(usize),
    /// The client of the n-th waiting request goes away.
    GoAway(usize),
    /// The destinations have these capacities from now on.
    SetDestinations(Vec<usize>),
}

fn event() -> impl Strategy<Value = Event> {
    let capacity = prop_oneof![0usize..6, Just(UNLIMITED)];
    prop_oneof![
        6 => Just(Event::Enter),
        3 => any::<prop::sample::Index>().prop_map(|at| Event::Leave(at.index(64))),
        2 => any::<prop::sample::Index>().prop_map(|at| Event::GoAway(at.index(64))),
        1 => prop::collection::vec(capacity, 0..4).prop_map(Event::SetDestinations),
    ]
}

proptest! {
    /// No destination gets too many requests, no request waits while a slot is free, the queue is first come first served and within its limit,
    /// and dropped requests leave nothing behind.
    #[test]
    fn throttler_invariants_hold_for_any_events(limit in 0usize..6, events in prop::collection::vec(event(), 1..120)) {
        let throttler = Throttler::new(limit);
        let mut capacities: Vec<usize> = Vec::new();
        let mut admitted: Vec<Permit> = Vec::new();
        let mut queue: Vec<(usize, Admission)> = Vec::new();
        for (number, event) in events.into_iter().enumerate() {
            match event {
                Event::Enter => match throttler.enter() {
                    Ok(admission) if admission.waits() => queue.push((number, admission)),
                    Ok(admission) => admitted.push(admission.now_or_never().unwrap()),
                    Err(full) => {
                        prop_assert_eq!(full.waiting, limit);
                        prop_assert_eq!(queue.len(), limit);
                    }
                },
                Event::Leave(at) if !admitted.is_empty() => drop(admitted.swap_remove(at % admitted.len())),
                Event::GoAway(at) if !queue.is_empty() => drop(queue.remove(at % queue.len())),
                Event::SetDestinations(now) => {
                    // A destination keeps its requests when its capacity falls.
                    throttler.set_destinations(now.iter().enumerate().map(|(n, capacity)| (destination(n as u8), *capacity)));
                    capacities = now;
                }
                _ => {}
            }
            let mut first_that_waits = None;
            let mut still = Vec::new();
            for (number, mut admission) in queue {
                match (&mut admission).now_or_never() {
                    Some(permit) => {
                        prop_assert_eq!(first_that_waits, None, "a later request was admitted first");
                        admitted.push(permit);
                    }
                    None => {
                        first_that_waits = first_that_waits.or(Some(number));
                        still.push((number, admission));
                    }
                }
            }
            queue = still;
            prop_assert_eq!(throttler.waiting(), queue.len());
            prop_assert_eq!(throttler.under_way(), admitted.len());
            prop_assert!(queue.len() <= limit);
            let full = |n: usize| admitted.iter().filter(|permit| permit.address() == destination(n as u8)).count() >= capacities[n];
            prop_assert!(queue.is_empty() || (0..capacities.len()).all(full), "a request waits while a slot is free");
        }
        drop((admitted, queue));
        prop_assert_eq!((throttler.under_way(), throttler.waiting()), (0, 0));
    }

    /// As long as no capacity falls, no destination gets more requests than its capacity.
    #[test]
    fn throttler_never_exceeds_capacity(capacities in prop::collection::vec(0usize..6, 1..5), leaves in prop::collection::vec(any::<bool>(), 1..80)) {
        let throttler = Throttler::new(1_000);
        throttler.set_destinations(capacities.iter().enumerate().map(|(n, capacity)| (destination(n as u8), *capacity)));
        let mut admitted = Vec::new();
        let mut queue = Vec::new();
        for leave in leaves {
            if leave && !admitted.is_empty() { admitted.remove(0); } else { queue.push(throttler.enter().unwrap()); }
            queue = queue.into_iter().filter_map(|mut admission| match (&mut admission).now_or_never() {
                Some(permit) => { admitted.push(permit); None }
                None => Some(admission),
            }).collect();
            for (n, capacity) in capacities.iter().enumerate() {
                prop_assert!(admitted.iter().filter(|permit| permit.address() == destination(n as u8)).count() <= *capacity);
            }
        }
    }
}

#[test]
fn throttler_fills_first_destination_up_to_three_then_rotates() {
    let of = |capacity: usize| {
        let throttler = Throttler::new(0);
        throttler.set_destinations([(destination(0), capacity), (destination(1), capacity)]);
        let permits: Vec<Permit> = (0..capacity).map(|_| throttler.enter().unwrap().now_or_never().unwrap()).collect();
        permits.iter().filter(|permit| permit.address() == destination(0)).count()
    };
    assert_eq!(of(3), 3);
    assert_eq!(of(10), 5);
}

#[test]
fn throttler_picks_less_busy_of_two_without_limit() {
    let throttler = Throttler::new(0);
    throttler.set_destinations((0..4).map(|n| (destination(n), UNLIMITED)));
    let permits: Vec<Permit> = (0..20_000).map(|_| throttler.enter().unwrap().now_or_never().unwrap()).collect();
    for n in 0..4 {
        let here = permits.iter().filter(|permit| permit.address() == destination(n)).count();
        // Choosing at random without comparing would spread them by about 60 around the mean.
        assert!((4_980..=5_020).contains(&here), "{here} of 20000 in one of four destinations");
    }
}
