//! Acceptance test 2: the sums that a layout updates move by move equal the objective computed from scratch. Also invalid instances.

use std::collections::BTreeSet;

use drover_lab_groups::*;
use proptest::prelude::*;

use crate::paper_at;

#[test]
fn layout_sums_equal_the_objective_after_100_000_random_moves() {
    let weights = Weights { cluster: 0.5, node: 0.3, container: 0.2 };
    for traffic in [Traffic::Local, Traffic::Uniform] {
        let instance = paper_at(3, traffic);
        let mut layout = Layout::empty(&instance, weights);
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..100_000 {
            let group = &instance.groups()[rng.usize(0..instance.groups().len())];
            let unit: Vec<u32> = if rng.bool() { group.clone() } else { vec![group[rng.usize(0..group.len())]] };
            for c in &unit {
                if layout.at(*c).is_some() {
                    layout.take(&[*c]);
                }
            }
            let place = rng.usize(0..instance.places().len());
            if rng.u8(..) < 240 && layout.fits(&unit, place) {
                let foretold = layout.value_with(&unit, place);
                layout.put(&unit, place);
                assert!((layout.value() - foretold).abs() < 1e-9);
            }
        }
        let full = Terms::of(&instance, &layout.placement()).value(&weights);
        assert!((layout.value() - full).abs() < 1e-9, "{} updated, {full} computed from scratch", layout.value());
    }
}

/// The search exchanges units through `probe` and `commit`, which update the sums on their own.
#[test]
fn layout_sums_equal_the_objective_after_100_000_random_exchanges() {
    let weights = Weights { cluster: 0.5, node: 0.3, container: 0.2 };
    for traffic in [Traffic::Local, Traffic::Uniform] {
        let instance = paper_at(3, traffic);
        let mut layout = Layout::of(&instance, weights, &Greedy::Spread.place(&instance, &weights).at);
        let mut rng = fastrand::Rng::with_seed(8);
        let mut exchanges = 0;
        for _ in 0..100_000 {
            let (from, to) = (rng.usize(0..instance.places().len()), rng.usize(0..instance.places().len()));
            if from == to {
                continue;
            }
            let mut part_of_a_group = |place: usize| -> Vec<u32> {
                let on = layout.on(place);
                if on.is_empty() {
                    return Vec::new();
                }
                let group = &instance.groups()[instance.group_of(on[rng.usize(0..on.len())])];
                group.iter().copied().filter(|c| layout.at(*c) == Some(place)).collect()
            };
            let (there, back) = (part_of_a_group(from), part_of_a_group(to));
            if let Some(change) = layout.probe(from, &there, to, &back) {
                layout.commit(&change, &there, &back);
                exchanges += 1;
            }
        }
        assert!(exchanges > 10_000, "only {exchanges} exchanges were possible");
        let full = Terms::of(&instance, &layout.placement()).value(&weights);
        assert!((layout.value() - full).abs() < 1e-9, "{} updated, {full} computed from scratch", layout.value());
    }
}

#[test]
fn scaled_weights_value_spread_at_one() {
    let instance = paper_at(3, Traffic::Local);
    let spread = Greedy::Spread.place(&instance, &Weights::default()).terms;
    assert!((spread.value(&Weights::default().scaled(&spread)) - 1.0).abs() < 1e-12);
}

#[test]
fn distances_weigh_calls_and_must_be_symmetric() {
    let services = ["a", "b"].map(|n| Service { name: n.to_owned(), request: [1.0, 1.0], replicas: 1 }).to_vec();
    let graph = CallGraph::named(services, [("a", "b", 10.0)]).unwrap();
    let places = (0..3).map(|i| Place::new(format!("n{i}"), [4.0, 4.0], i)).collect();
    let instance = Instance::new(&graph, Traffic::Local, &Grouping::singletons(&graph), places, Rules::default()).unwrap();
    let instance = instance.with_distances(vec![0.0, 1.0, 4.0, 1.0, 0.0, 4.0, 4.0, 4.0, 0.0]).unwrap();
    let cost = |p, q| Terms::of(&instance, &[Some(p), Some(q)]).container;
    assert_eq!([cost(0, 0), cost(0, 1), cost(1, 2)], [0.0, 0.25, 1.0]);

    let crooked = paper_at(1, Traffic::Local).with_distances(vec![1.0; 225]);
    assert!(matches!(crooked, Err(InstanceError::BadDistances(15))));
}

#[test]
fn instance_refuses_invalid_parts() {
    let graph = bookinfo();
    let alone = Grouping::singletons(&graph);
    let make =
        |grouping: &Grouping, places: Vec<Place>, rules: Rules| Instance::new(&graph, Traffic::Local, grouping, places, rules).map(|_| ());
    let place = || vec![Place::new("n", [1000.0, 1000.0], 0)];
    assert_eq!(make(&alone, Vec::new(), Rules::default()), Err(InstanceError::NoPlaces));
    assert!(matches!(make(&alone, vec![Place::new("n", [0.0, 1.0], 0)], Rules::default()), Err(InstanceError::BadPlace(_))));
    let rules = Rules { apart: BTreeSet::from([(0, 6)]), ..Rules::default() };
    assert_eq!(make(&alone, place(), rules), Err(InstanceError::NoSuchService(6, 6)));
    assert_eq!(make(&Grouping { groups: vec![vec![0, 1]] }, place(), Rules::default()), Err(InstanceError::NotAPartition(6)));
    let running = Instance::new(&graph, Traffic::Local, &alone, place(), Rules::default()).unwrap().running(vec![None; 2]);
    assert!(matches!(running, Err(InstanceError::BadNow(2, 6))));
}

proptest! {
    /// mean_r std_i >= std_i mean_r, by the triangle inequality.
    #[test]
    fn sigma_cluster_by_resource_is_at_least_sigma_cluster(seed in any::<u64>(), aspect in 1.0_f64..2.0) {
        let instance = paper(&sock_shop_compose(), Setting { scale: 3, aspect, ..Setting::default() });
        let mut rng = fastrand::Rng::with_seed(seed);
        let at: Vec<Option<usize>> = instance.containers().iter().map(|_| Some(rng.usize(0..15))).collect();
        let terms = Terms::of(&instance, &at);
        prop_assert!(terms.cluster_by_resource >= terms.cluster - 1e-12);
        prop_assert!(terms.node_in_use >= terms.node - 1e-12);
        prop_assert!((0.0..=1.0).contains(&terms.container));
    }
}
