//! The proof of the optimum against a MILP solver and against trying everything.

use drover_lab_relocation::{Allowed, Draw, Item, NodeSize, Packed, optimum, pack, rearranged, together};
use microlp::{ComparisonOp, OptimizationDirection, Problem, SolveOutcome, Variable};
use proptest::prelude::*;

use crate::{assert_sound, cases};

const STEPS: u64 = 1_000_000;

/// The most applications that can run together, by a mixed-integer linear program.
fn by_milp(draw: &Draw, size: NodeSize) -> f64 {
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let mut clusters: [Vec<(Variable, i64, i64)>; 3] = Default::default();
    for application in &draw.applications {
        let runs = problem.add_binary_var(1.0);
        for one in &application.microservices {
            let mut places = vec![(runs, -1.0)];
            for cluster in one.allowed.clusters() {
                let here = problem.add_binary_var(0.0);
                places.push((here, 1.0));
                clusters[cluster].push((here, one.cpu, one.memory));
            }
            problem.add_constraint(places, ComparisonOp::Eq, 0.0);
        }
    }
    for pods in &clusters {
        let sum = |of: fn(&(Variable, i64, i64)) -> i64| pods.iter().map(|pod| (pod.0, of(pod) as f64)).collect::<Vec<_>>();
        problem.add_constraint(sum(|pod| pod.1), ComparisonOp::Le, size.cpu as f64);
        problem.add_constraint(sum(|pod| pod.2), ComparisonOp::Le, size.memory as f64);
    }
    match problem.solve().unwrap() {
        SolveOutcome::Solution(solution) => solution.objective(),
        SolveOutcome::Interrupted(_) => panic!("the solver gave up"),
    }
}

/// Whether the items fit, by trying every cluster for each.
fn by_trying(size: NodeSize, items: &[Item], used: &mut [(i64, i64); 3]) -> bool {
    let Some((item, rest)) = items.split_first() else { return true };
    item.allowed.clusters().any(|cluster| {
        let before = used[cluster];
        used[cluster] = (before.0 + item.cpu, before.1 + item.memory);
        let fits = used[cluster].0 <= size.cpu && used[cluster].1 <= size.memory && by_trying(size, rest, used);
        used[cluster] = before;
        fits
    })
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn pack_fits_if_and_only_if_trying_everything_does(
        items in prop::collection::vec((2..=10_i64, 1..=8_i64, Allowed::ALL), 1..10),
        cpu in 5..=30_i64,
        memory in 3..=24_i64,
    ) {
        let items: Vec<Item> =
            items.into_iter().map(|(cpu, memory, allowed)| Item { cpu: cpu * 100, memory: memory * 256, allowed: Allowed(allowed) }).collect();
        let size = NodeSize { cpu: cpu * 100 + 58, memory: memory * 256 + 99 };
        let fits = by_trying(size, &items, &mut [(0, 0); 3]);
        match pack(size, &items, STEPS) {
            Packed::Fits(at) => {
                prop_assert!(fits);
                let mut used = [(0, 0); 3];
                for (item, cluster) in items.iter().zip(at) {
                    prop_assert!(item.allowed.contains(cluster));
                    used[cluster] = (used[cluster].0 + item.cpu, used[cluster].1 + item.memory);
                }
                prop_assert!(used.iter().all(|(cpu, memory)| *cpu <= size.cpu && *memory <= size.memory));
            }
            Packed::Never => prop_assert!(!fits),
            Packed::Unknown => prop_assert!(false, "the search of few items is complete"),
        }
    }
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn optimum_is_that_of_a_milp_solver(seed in any::<u64>(), percent in 300..=700_u32) {
        // Seven applications on clusters so small that some must be left out.
        let (draw, size) = (Draw::of(seed, 7), NodeSize::for_demand(percent));
        let best = optimum(&draw, size, STEPS);
        prop_assert!(best.is_proven());
        prop_assert_eq!(best.applications.len() as f64, by_milp(&draw, size).round());
        let mut places: Vec<Vec<Option<usize>>> = draw.applications.iter().map(|one| vec![None; one.microservices.len()]).collect();
        for (application, at) in best.applications.iter().zip(&best.places) {
            places[*application] = at.iter().map(|cluster| Some(*cluster)).collect();
        }
        assert_sound(&draw, size, &places);
        prop_assert!(places.iter().filter(|at| at.iter().all(Option::is_some)).count() >= best.applications.len());
        prop_assert!(rearranged(&draw, size, STEPS).applications.len() <= best.applications.len());
    }
}

#[test]
fn search_that_is_cut_short_proves_nothing() {
    let (draw, size) = (Draw::new(1), NodeSize::for_demand(100));
    assert_eq!(together(&draw, size, &[0, 1, 2], 1), Packed::Unknown);
    let cut = optimum(&draw, size, 20);
    assert!(!cut.is_proven() && cut.at_most >= optimum(&draw, size, STEPS).applications.len(), "{cut:?}");
}
