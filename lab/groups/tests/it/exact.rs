//! Acceptance test 3: branch and bound proves the optimum of x1.

use drover_lab_groups::*;
use proptest::prelude::*;

use crate::paper_at;

#[test]
fn branch_and_bound_proves_the_optimum_of_x1() {
    let proof = Exact::default().prove(&paper_at(1, Traffic::Local), &Weights::default());
    assert!(proof.proven && (proof.value - 0.07013).abs() < 1e-5, "{} after {} nodes", proof.value, proof.placed.effort);
    let groups = Exact { grouped: true, ..Exact::default() }.prove(&paper_at(1, Traffic::Local), &Weights::default());
    assert!(groups.proven && groups.value >= proof.value - 1e-12);
}

#[test]
fn prove_reports_an_interrupted_proof() {
    let proof = Exact { limit: 100, ..Exact::default() }.prove(&paper_at(1, Traffic::Local), &Weights::default());
    assert!(!proof.proven);
    assert!(proof.placed.unplaced.is_empty());
}

/// The least objective over all placements.
fn brute(instance: &Instance, weights: &Weights, at: &mut Vec<Option<usize>>, best: &mut f64) {
    if at.len() == instance.containers().len() {
        let placed = Placed { at: at.clone(), terms: Terms::default(), value: 0.0, unplaced: Vec::new(), effort: 0 };
        if placed.faults(instance).is_empty() {
            *best = best.min(Terms::of(instance, at).value(weights));
        }
        return;
    }
    for place in 0..instance.places().len() {
        at.push(Some(place));
        brute(instance, weights, at, best);
        at.pop();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn branch_and_bound_and_search_agree_with_brute_force(seed in any::<u64>(), traffic in prop_oneof![Just(Traffic::Local), Just(Traffic::Uniform)]) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let k = rng.usize(2..5);
        let services = (0..k).map(|i| Service { name: format!("s{i}"), request: [rng.f64() * 3.0, rng.f64() * 3.0], replicas: rng.usize(1..3) }).collect();
        let calls: Vec<Call> = (0..rng.usize(0..6)).map(|_| Call { from: rng.usize(0..k), to: rng.usize(0..k), calls: f64::from(rng.u8(1..9)) }).collect();
        let graph = CallGraph::new(services, calls).unwrap();
        prop_assume!(graph.services().iter().map(|s| s.replicas).sum::<usize>() <= 7);
        let places = (0..3).map(|i| Place::new(format!("n{i}"), [rng.f64() * 8.0 + 3.0, rng.f64() * 8.0 + 3.0], i % 2)).collect();
        let rules = Rules { apart: if rng.bool() { [(0, 0)].into() } else { [].into() }, per_domain: if rng.bool() { vec![(1, 1)] } else { vec![] }, moves: None };
        let grouping = Grouping::of(&graph, Some(2), Variant::Merge, &Limits::default()).unwrap();
        let instance = Instance::new(&graph, traffic, &grouping, places, rules).unwrap();
        let weights = Weights { cluster: 0.2 + rng.f64(), node: rng.f64(), container: rng.f64() };

        let mut best = f64::INFINITY;
        brute(&instance, &weights, &mut Vec::new(), &mut best);
        let proof = Exact::default().prove(&instance, &weights);
        prop_assert_eq!(proof.proven, best.is_finite());
        if best.is_finite() {
            prop_assert!((proof.value - best).abs() < 1e-6, "{} against {}", proof.value, best);
            let found = Search::moves(60_000, 1).place(&instance, &weights);
            prop_assert!(found.unplaced.is_empty(), "the search leaves out what fits");
            prop_assert!(found.value <= best * 1.001 + 1e-6, "search {} against {}", found.value, best);
        }
    }
}
