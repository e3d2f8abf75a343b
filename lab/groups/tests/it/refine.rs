//! The refinement that follows the passes of the learned policy: it only improves, keeps the rules, and finds what it is for.

use drover_lab_groups::*;
use drover_scheduling::groups::learned::{REFINEMENT, rank};
use proptest::prelude::*;

use crate::paper_at;

const EFFORT: u64 = 1_000_000;

#[test]
fn refine_exchanges_containers_where_no_single_move_helps() {
    let service = |name: &str, request: Load| Service { name: name.to_owned(), request, replicas: 2 };
    let graph = CallGraph::named(vec![service("cpu", [4.0, 1.0]), service("memory", [1.0, 4.0])], [("cpu", "memory", 1.0)]).unwrap();
    let grouping = Grouping::of(&graph, Some(1), Variant::Merge, &Limits::default()).unwrap();
    // Two of a kind fill a place, and one of each kind fits on it only when the other one has left.
    let places = ["a", "b"].map(|name| Place::new(name, [8.0, 8.0], 0)).to_vec();
    let instance = Instance::new(&graph, Traffic::Local, &grouping, places, Rules::default()).unwrap();
    let by_kind: Vec<Option<usize>> = instance.containers().iter().map(|c| Some(c.service)).collect();
    let mut layout = Layout::of(&instance, Weights::default(), &by_kind);
    let told = layout.refine(EFFORT);
    let terms = layout.terms();
    assert_eq!((terms.cluster, terms.node, terms.container), (0.0, 0.0, 0.0), "{:?}", layout.placement());
    assert!((told.before - layout_value(&instance, &by_kind)).abs() < 1e-12 && told.after.abs() < 1e-12 && told.exchanges > 0, "{told:?}");
}

fn layout_value(instance: &Instance, at: &[Option<usize>]) -> f64 {
    Terms::of(instance, at).value(&Weights::default())
}

#[test]
fn refine_depends_on_the_layout_alone_and_ends_with_its_effort() {
    let instance = big(30, 100);
    let start = Greedy::Balanced.place(&instance, &Weights::default());
    let run = |effort| {
        let mut layout = Layout::of(&instance, Weights::default(), &start.at);
        (layout.refine(effort), layout.placement())
    };
    assert_eq!(run(EFFORT), run(EFFORT));
    let (none, at) = run(0);
    assert_eq!((none.exchanges, none.before, at), (0, none.after, start.at.clone()));
    let values: Vec<f64> = [0, 100_000, 300_000, 10_000_000].map(|effort| run(effort).0.after).to_vec();
    assert!(values.windows(2).all(|pair| pair[1] < pair[0]), "{values:?}");
    let (some, _) = run(100_000);
    assert!(some.effort < 200_000, "{some:?}");
}

#[test]
fn refine_brings_every_start_on_100_nodes_below_greedy() {
    let (instance, weights) = (big(30, 100), Weights::default());
    let greedy = Greedy::Groups.place(&instance, &weights);
    for start in [Greedy::Spread, Greedy::Binpack, Greedy::Affinity, Greedy::Groups] {
        let mut layout = Layout::of(&instance, weights, &start.place(&instance, &weights).at);
        let told = layout.refine(4 * EFFORT);
        println!("{}: {:.4}, refined {:.4} by {} exchanges", start.name(), told.before, told.after, told.exchanges);
        assert!(told.after < greedy.value, "{}: {told:?}", start.name());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// Full or skewed places, foreign load, rules, distances, a budget of moves: it never makes anything worse, and its sums are right.
    #[test]
    fn refine_never_breaks_a_rule_or_raises_the_objective(
        seed in any::<u64>(), full in 0.5_f64..1.4, aspect in 1.0_f64..2.0, ruled in any::<bool>(), far in any::<bool>(),
    ) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let graph = [bookinfo(), online_boutique(), sock_shop_compose()][rng.usize(0..3)].scaled_to(rng.usize(1..4));
        let mut places = nodes(6, graph.demand(), full, aspect);
        places.iter_mut().for_each(|p| { p.domain %= 3; p.taken = [rng.f64() * 80.0, rng.f64() * 80.0]; });
        let k = graph.services().len();
        let limit = ruled.then(|| rng.usize(0..20));
        let rules = if ruled {
            Rules { apart: [(0, 1), (2, 2)].into(), per_domain: vec![(rng.usize(0..k), 1)], moves: limit }
        } else {
            Rules::default()
        };
        let grouping = Grouping::of(&graph, Some(4), Variant::Merge, &Limits::default()).unwrap();
        let traffic = if rng.bool() { Traffic::Uniform } else { Traffic::Local };
        let mut instance = Instance::new(&graph, traffic, &grouping, places, rules).unwrap();
        if far {
            let line = (0..36).map(|n| f64::from(n / 6_i32 - n % 6).abs()).collect();
            instance = instance.with_distances(line).unwrap();
        }
        let weights = Weights::default();
        let start = [Greedy::Spread, Greedy::Affinity, Greedy::Groups][rng.usize(0..3)].place(&instance, &weights);
        if ruled {
            instance = instance.running(start.at.clone()).unwrap();
        }
        let mut layout = Layout::of(&instance, weights, &start.at);
        let told = layout.refine(EFFORT);
        let placed = Placed::of(&layout, &weights, 0);
        prop_assert_eq!(placed.faults(&instance), Vec::<String>::new());
        prop_assert_eq!(&placed.unplaced, &start.unplaced);
        prop_assert!((placed.value - told.after).abs() < 1e-9 && (start.value - told.before).abs() < 1e-9, "{:?} {}", told, placed.value);
        prop_assert!(told.after <= told.before + 1e-12 && (told.exchanges == 0) == (placed.at == start.at), "{:?}", told);
    }
}

#[test]
fn refined_x9_is_close_to_the_best_known_value() {
    let (instance, weights) = (paper_at(9, Traffic::Local), Weights::default());
    let found = learned::Learned::new(LearnedModel::shipped().clone()).guard(&instance, &weights);
    println!("chosen {:.5}, refined {:.5}", found.refinement.before, found.refinement.after);
    assert!(found.refinement.after < found.refinement.before && found.learned.value <= 0.028, "{:?}", found.refinement);
}

#[test]
fn complete_is_never_worse_than_the_refinement_of_what_the_network_chose() {
    let (weights, model) = (Weights::default(), LearnedModel::shipped());
    let mut rng = fastrand::Rng::with_seed(5);
    let mut better = 0;
    for _ in 0..20 {
        let instance = learned::InstanceRanges::training().draw(&mut rng);
        let start = Layout::empty(&instance, weights);
        let mut alone = model.chosen(&start, &weights).layout;
        let before = rank(&alone);
        alone.refine(REFINEMENT);
        let found = model.complete(&start, &weights);
        let key = rank(&found.layout);
        assert!(key <= rank(&alone) && key <= before, "{key:?} {:?}", rank(&alone));
        assert!((found.refinement.after - key.1).abs() < 1e-9, "{:?}", found.refinement);
        better += usize::from(key.1 < rank(&alone).1 - 1e-9);
    }
    assert!(better > 0, "other passes, or repairs that are refined, must help sometimes");
}
