//! The acceptance tests of group placement, as docs/how-to/group-placement.md numbers them ("What is tested"), and further tests.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod ddpg;
mod exact;
mod grouping;
mod learned;
mod milp;
mod objective;
mod policies;
mod refine;
mod roadef;
mod search;

use drover_lab_groups::*;

/// Sock Shop on the paper's nodes.
fn paper_at(scale: usize, traffic: Traffic) -> Instance {
    paper(&sock_shop_compose(), Setting { scale, traffic, ..Setting::default() })
}

/// The example that can be checked by hand: services A to G, a group size of 4, three nodes.
fn example() -> (CallGraph, Vec<Place>) {
    let names = ["A", "B", "C", "D", "E", "F", "G"];
    let services = names.iter().map(|n| Service { name: (*n).to_owned(), request: [1.0, 1.0], replicas: 1 }).collect();
    let calls = [("A", "B", 9.0), ("B", "C", 8.0), ("D", "E", 7.0), ("C", "D", 6.0), ("E", "F", 5.0), ("A", "F", 4.0)];
    let nodes = [[4.0, 4.0], [4.0, 8.0], [8.0, 8.0]];
    let places = nodes.iter().enumerate().map(|(i, c)| Place::new(format!("N{}", i + 1), *c, i)).collect();
    (CallGraph::named(services, calls).unwrap(), places)
}
