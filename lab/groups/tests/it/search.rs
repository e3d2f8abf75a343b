//! Acceptance tests 3, 4 and 7: the search compared with the optimum and the best known value, with budgets in moves.

use drover_lab_groups::*;

use crate::paper_at;

fn search(instance: &Instance, moves: u64, seed: u64) -> Placed {
    Search::moves(moves, seed).place(instance, &Weights::default())
}

#[test]
fn search_solves_x1_to_its_optimum() {
    let instance = paper_at(1, Traffic::Local);
    for seed in 0..5 {
        let placed = search(&instance, 100_000, seed);
        assert!((placed.value - 0.07013).abs() < 1e-5, "seed {seed}: {}", placed.value);
    }
}

/// The budget of 500,000 moves is about half of what one core evaluates in 0.1 s.
#[test]
fn search_comes_close_to_the_best_known_value_on_x3_and_x9() {
    for (scale, reach, best) in [(3, 0.0775, 0.07368), (9, 0.033, 0.02559)] {
        let instance = paper_at(scale, Traffic::Local);
        for seed in 0..5 {
            let placed = search(&instance, 500_000, seed);
            println!("x{scale} seed {seed}: {:.5}, {:.2} % above the best known {best}", placed.value, 100.0 * (placed.value / best - 1.0));
            assert!(placed.value <= reach, "x{scale} seed {seed}: {}", placed.value);
            assert!(placed.unplaced.is_empty());
            assert!(placed.value > best - 1e-5, "a new best value: update the table of best known values");
        }
    }
}

#[test]
fn search_halves_the_greedy_value_on_100_nodes() {
    let instance = big(30, 100);
    assert_eq!(instance.containers().len(), 1030);
    let placed = search(&instance, 1_000_000, 1);
    let greedy = Greedy::Groups.place(&instance, &Weights::default());
    assert!(placed.value <= 0.032, "{}", placed.value);
    assert!(placed.value < greedy.value / 2.0, "greedy {}", greedy.value);
}

#[test]
#[ignore = "long: 1,000 nodes, 10^8 moves"]
fn search_places_10_300_containers_on_1_000_nodes() {
    let instance = big(300, 1000);
    assert_eq!(instance.containers().len(), 10_300);
    let placed = search(&instance, 100_000_000, 1);
    assert!(placed.value <= 0.025, "{}", placed.value);
    assert!(placed.faults(&instance).is_empty());
}

#[test]
fn search_splits_groups_under_uniform_traffic() {
    let weights = Weights::default();
    for (scale, reach) in [(3, 0.1360), (9, 0.2180)] {
        let instance = paper_at(scale, Traffic::Uniform);
        let free = search(&instance, 2_000_000, 1);
        let broken = free.group_reports(&instance).iter().filter(|s| s.places.len() > 1).count();
        assert!(broken > 0, "x{scale}: no group was split");
        assert!(free.value <= reach, "x{scale}: {}", free.value);
        let rigid = Greedy::Groups.place(&instance, &weights);
        assert!(free.value < rigid.value);
    }
}

#[test]
fn search_depends_on_the_seed_alone_and_improves_with_its_budget() {
    let instance = paper_at(9, Traffic::Local);
    assert_eq!(search(&instance, 50_000, 11), search(&instance, 50_000, 11));
    let mean = |moves: u64| (0..5).map(|seed| search(&instance, moves, seed).value).sum::<f64>() / 5.0;
    assert!(mean(400_000) < mean(10_000));
}

#[test]
fn search_ends_when_its_clock_reaches_the_budget() {
    let instance = paper_at(3, Traffic::Local);
    let ticks = std::sync::atomic::AtomicU64::new(0);
    let clock = move || ticks.fetch_add(1, std::sync::atomic::Ordering::Relaxed) as f64;
    let timed = Search { seed: 1, budget: SearchBudget::Seconds(500.0, std::sync::Arc::new(clock)), grouped: true };
    let placed = timed.place(&instance, &Weights::default());
    assert!(placed.effort > 10_000 && placed.effort < 100_000, "{}", placed.effort);
    assert!(placed.value < 0.08);
}

#[test]
fn short_search_keeps_what_is_good_about_a_learned_start() {
    let (instance, weights) = (big(30, 100), Weights::default());
    let learned = learned::Learned::new(LearnedModel::shipped().clone()).chosen(&instance, &weights);
    // 100 moves for each container.
    let mean = |one: &dyn Fn(Search) -> Placed| (1..=3).map(|seed| one(Search::moves(100_000, seed)).value).sum::<f64>() / 3.0;
    let (polished, reheated) =
        (mean(&|search| search.polish(&instance, &weights, &learned)), mean(&|search| search.reheat(&instance, &weights, &learned)));
    println!("learned {:.4}, polished {polished:.4}, reheated {reheated:.4}", learned.value);
    assert!(polished < 0.95 * reheated && polished < 0.7 * learned.value, "{polished} {reheated} {}", learned.value);
}

#[test]
fn short_search_on_many_places_keeps_what_the_refined_learned_start_has() {
    let (instance, weights) = (big(30, 100), Weights::default());
    let learned = learned::Learned::new(LearnedModel::shipped().clone());
    let (refined, chosen) = (learned.learned(&instance, &weights), learned.chosen(&instance, &weights));
    let short = Search::moves(1_000, 1).place(&instance, &weights);
    assert!(
        short.value <= refined.value + 1e-12 && refined.value < 0.6 * chosen.value,
        "{} {} {}",
        short.value,
        refined.value,
        chosen.value
    );
}
