//! Acceptance test 1: the groups of the paper's example and of Sock Shop. Also the properties of groupings.

use std::collections::BTreeSet;

use drover_lab_groups::*;
use proptest::prelude::*;

use crate::example;

fn groups(graph: &CallGraph, rho: usize, variant: Variant) -> Grouping {
    Grouping::of(graph, Some(rho), variant, &Limits::default()).unwrap()
}

fn names(graph: &CallGraph, grouping: &Grouping) -> Vec<Vec<String>> {
    grouping.groups.iter().map(|g| g.iter().map(|s| graph.services()[*s].name.clone()).collect()).collect()
}

#[test]
fn example_of_the_paper_has_its_groups_and_its_value() {
    let (graph, places) = example();
    let grouping = groups(&graph, 4, Variant::Merge);
    assert_eq!(names(&graph, &grouping), [vec!["A", "B", "C"], vec!["D", "E", "F"], vec!["G"]]);
    assert!((grouping.between(&graph) - 10.0 / 39.0).abs() < 1e-12);

    let instance = Instance::new(&graph, Traffic::Local, &grouping, places, Rules::default()).unwrap();
    let at: Vec<Option<usize>> = [0, 0, 0, 1, 1, 1, 2].map(Some).to_vec();
    let terms = Terms::of(&instance, &at);
    assert!((terms.cluster - 0.261_871).abs() < 1e-6, "{terms:?}");
    assert!((terms.node - 0.0625).abs() < 1e-12);
    assert!((terms.container - 0.256_410).abs() < 1e-6);
    assert!((terms.calls - 10.0).abs() < 1e-12);
    assert!((terms.value(&Weights::default()) - 0.193_594).abs() < 1e-6);
}

#[test]
fn merge_groups_sock_shop_as_computed_by_hand() {
    let graph = sock_shop();
    let found: BTreeSet<BTreeSet<String>> =
        names(&graph, &groups(&graph, 4, Variant::Merge)).into_iter().map(|g| g.into_iter().collect()).collect();
    let expected: BTreeSet<BTreeSet<String>> = [
        vec!["front-end", "session-db", "user", "user-db"],
        vec!["carts", "carts-db", "orders", "orders-db"],
        vec!["catalogue", "catalogue-db"],
        vec!["payment"],
        vec!["queue-master", "rabbitmq", "shipping"],
    ]
    .into_iter()
    .map(|g| g.into_iter().map(str::to_owned).collect())
    .collect();
    assert_eq!(found, expected);
    let compose = sock_shop_compose();
    assert_eq!(groups(&compose, 4, Variant::Merge).groups.len(), 6);
}

/// The share of calls between groups for rho 3, 4, 5, 6: optimum, merge, attach.
#[test]
fn greedy_groupings_come_close_to_the_best_partition() {
    let table = [
        (sock_shop(), [[0.212, 0.152, 0.136, 0.106], [0.212, 0.167, 0.136, 0.106], [0.212, 0.167, 0.152, 0.152]]),
        (bookinfo(), [[0.25, 0.25, 0.125, 0.0], [0.25, 0.25, 0.25, 0.0], [0.25, 0.25, 0.25, 0.0]]),
        (online_boutique(), [[0.283, 0.163, 0.114, 0.090], [0.286, 0.163, 0.207, 0.090], [0.286, 0.163, 0.114, 0.099]]),
    ];
    for (graph, rows) in table {
        for (variant, row) in [Variant::Exact, Variant::Merge, Variant::Attach].into_iter().zip(rows) {
            for (rho, expected) in (3..=6).zip(row) {
                let got = groups(&graph, rho, variant).between(&graph);
                assert!((got - expected).abs() < 6e-4, "{variant:?} at rho {rho}: {got}, expected {expected}");
            }
        }
        for rho in 2..=4 {
            let gap = groups(&graph, rho, Variant::Merge).between(&graph) - groups(&graph, rho, Variant::Exact).between(&graph);
            assert!((0.0..=0.02).contains(&gap), "rho {rho}: {gap}");
        }
    }
}

#[test]
fn exact_grouping_refuses_too_many_services() {
    let services = (0..21).map(|i| Service { name: format!("s{i}"), request: [1.0, 1.0], replicas: 1 }).collect();
    let graph = CallGraph::new(services, []).unwrap();
    let refused = Grouping::of(&graph, Some(4), Variant::Exact, &Limits::default());
    assert_eq!(refused, Err(GroupingError::TooMany(21)));
}

#[test]
fn groupings_fit_a_node_and_respect_anti_affinity() {
    let (graph, _) = example();
    let small = Limits { nodes: vec![[2.0, 8.0]], ..Limits::default() };
    let apart = Limits { apart: BTreeSet::from([(0, 1)]), ..Limits::default() };
    for variant in [Variant::Merge, Variant::Attach, Variant::Exact] {
        assert!(Grouping::of(&graph, Some(4), variant, &small).unwrap().groups.iter().all(|g| g.len() <= 2));
        assert!(Grouping::of(&graph, Some(4), variant, &apart).unwrap().groups.iter().all(|g| !(g.contains(&0) && g.contains(&1))));
    }
}

#[test]
fn call_graph_refuses_invalid_services_and_calls() {
    let one = || vec![Service { name: "a".to_owned(), request: [1.0, 1.0], replicas: 1 }];
    assert_eq!(CallGraph::named(one(), [("a", "b", 1.0)]), Err(GraphError::NoSuchService("b".to_owned())));
    assert!(matches!(CallGraph::named(one(), [("a", "a", f64::NAN)]), Err(GraphError::BadRate { .. })));
    assert_eq!(CallGraph::new([one(), one()].concat(), []), Err(GraphError::Twice("a".to_owned())));
    let none = vec![Service { replicas: 0, ..one()[0].clone() }];
    assert_eq!(CallGraph::new(none, []), Err(GraphError::NoReplicas("a".to_owned())));
}

fn graphs() -> impl Strategy<Value = (usize, Vec<Call>)> {
    (2_usize..9).prop_flat_map(|k| {
        let call = (0..k, 0..k, 1_u32..6).prop_map(|(from, to, calls)| Call { from, to, calls: f64::from(calls) });
        (Just(k), proptest::collection::vec(call, 0..14))
    })
}

fn graph_of(k: usize, calls: &[Call]) -> CallGraph {
    let services = (0..k).map(|i| Service { name: format!("s{i}"), request: [1.0, 1.0], replicas: 1 }).collect();
    CallGraph::new(services, calls.iter().copied()).unwrap()
}

/// The least share of calls between groups over all partitions, by brute force.
fn least_between(graph: &CallGraph, rho: usize, groups: &mut Vec<Vec<usize>>, next: usize) -> f64 {
    if next == graph.services().len() {
        return Grouping { groups: groups.clone() }.between(graph);
    }
    let mut best = f64::INFINITY;
    for g in 0..groups.len() {
        if groups[g].len() < rho {
            groups[g].push(next);
            best = best.min(least_between(graph, rho, groups, next + 1));
            groups[g].pop();
        }
    }
    groups.push(vec![next]);
    best = best.min(least_between(graph, rho, groups, next + 1));
    groups.pop();
    best
}

proptest! {
    #[test]
    fn groupings_are_bounded_partitions_that_do_not_depend_on_the_order_of_calls((k, calls) in graphs(), rho in 0_usize..6, seed in any::<u64>()) {
        let graph = graph_of(k, &calls);
        let most = rho.max(1);
        for variant in [Variant::Merge, Variant::Attach, Variant::Exact] {
            let grouping = groups(&graph, rho, variant);
            let mut all: Vec<usize> = grouping.groups.iter().flatten().copied().collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..k).collect::<Vec<_>>());
            prop_assert!(grouping.groups.iter().all(|g| !g.is_empty() && g.len() <= most));
            prop_assert!(grouping.groups.len() >= k.div_ceil(most));

            let mut shuffled = calls.clone();
            fastrand::Rng::with_seed(seed).shuffle(&mut shuffled);
            prop_assert_eq!(&groups(&graph_of(k, &shuffled), rho, variant), &grouping);
        }
        let merged = groups(&graph, rho, Variant::Merge);
        let of = merged.index();
        for (i, j, _) in graph.weights() {
            if of[i] != of[j] {
                prop_assert!(merged.groups[of[i]].len() + merged.groups[of[j]].len() > most, "two groups that fit together were not merged");
            }
        }
        prop_assert_eq!(groups(&graph, k, Variant::Merge), groups(&graph, k, Variant::Exact), "without a bound both give the connected components");
    }

    #[test]
    fn exact_grouping_equals_brute_force((k, calls) in graphs(), rho in 1_usize..5) {
        prop_assume!(k <= 7);
        let graph = graph_of(k, &calls);
        let best = least_between(&graph, rho, &mut Vec::new(), 0);
        prop_assert!((groups(&graph, rho, Variant::Exact).between(&graph) - best).abs() < 1e-9);
    }
}
