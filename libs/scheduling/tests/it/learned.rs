//! The learned policy: it depends on what the places are like and not on their order, keeps to the rules, and its file is checked.

use drover_scheduling::groups::learned::*;
use drover_scheduling::groups::*;
use proptest::prelude::*;

/// Three services with three copies each.
fn graph() -> CallGraph {
    let service = |name: &str, cpu: f64, memory: f64| Service { name: name.to_owned(), request: [cpu, memory], replicas: 3 };
    let services = vec![service("a", 100.0, 300.0), service("b", 200.0, 100.0), service("c", 50.0, 64.0)];
    CallGraph::named(services, [("a", "b", 9.0), ("b", "c", 4.0)]).unwrap()
}

fn instance(places: &[Load], rules: Rules) -> Instance {
    let graph = graph();
    let grouping = Grouping::of(&graph, Some(2), Variant::Merge, &Limits::default()).unwrap();
    let places = places.iter().enumerate().map(|(i, c)| Place::new(format!("n{i}"), *c, i)).collect();
    Instance::new(&graph, Traffic::Local, &grouping, places, rules).unwrap()
}

fn placed(instance: &Instance, passes: usize) -> (usize, f64) {
    let weights = Weights::default();
    let found = LearnedModel::shipped().chosen_in(&Layout::empty(instance, weights), &weights, passes);
    let terms = Terms::of(instance, &found.layout.placement());
    let (left_out, value) = rank(&found.layout);
    assert!((terms.value(&weights) - value).abs() < 1e-9);
    (left_out, value)
}

#[test]
fn learned_placement_does_not_depend_on_the_order_of_the_places() {
    let given = [[400.0, 500.0], [310.0, 700.0], [800.0, 900.0], [550.0, 450.0]];
    let mut turned = given;
    turned.reverse();
    let one = placed(&instance(&given, Rules::default()), 1);
    assert_eq!(one.0, 0);
    assert!((one.1 - placed(&instance(&turned, Rules::default()), 1).1).abs() < 1e-12);
}

#[test]
fn learned_placement_uses_any_number_of_places() {
    for count in [1, 2, 7, 41, 300] {
        let places: Vec<Load> = (0..count).map(|i| [1_500.0 + f64::from(i % 3) * 100.0, 2_000.0]).collect();
        assert_eq!(placed(&instance(&places, Rules::default()), 2).0, 0, "{count} places");
    }
}

#[test]
fn learned_placement_keeps_to_capacity_and_rules() {
    let apart: std::collections::BTreeSet<(usize, usize)> = [(0, 0), (0, 1)].into();
    let instance = instance(&[[400.0, 700.0]; 5], Rules { apart, ..Rules::default() });
    let weights = Weights::default();
    let found = LearnedModel::shipped().chosen_in(&Layout::empty(&instance, weights), &weights, MAX_PASSES);
    let at = found.layout.placement();
    for (used, place) in used(&instance, &at).iter().zip(instance.places()) {
        assert!(used[0] <= place.capacity[0] && used[1] <= place.capacity[1]);
    }
    for (a, here) in at.iter().enumerate() {
        for (b, there) in at.iter().enumerate() {
            assert!(here.is_none() || here != there || !instance.repel(a as u32, b as u32), "{a} and {b} share a place");
        }
    }
}

#[test]
fn more_passes_are_never_worse() {
    let instance = instance(&[[400.0, 500.0], [310.0, 700.0], [800.0, 900.0], [550.0, 450.0]], Rules::default());
    let values: Vec<(usize, f64)> = [1, 4, 16, MAX_PASSES].into_iter().map(|passes| placed(&instance, passes)).collect();
    assert!(values.windows(2).all(|pair| pair[1] <= pair[0]), "{values:?}");
}

#[test]
fn several_passes_give_different_placements_the_best_first() {
    let instance = instance(&[[400.0, 500.0], [310.0, 700.0], [800.0, 900.0], [550.0, 450.0]], Rules::default());
    let (weights, model) = (Weights::default(), LearnedModel::shipped());
    let passes: Vec<Pass> = (0..MAX_PASSES).map(Pass::nth).collect();
    let found = model.several(&Layout::empty(&instance, weights), &weights, &passes, 3);
    let ranks: Vec<(usize, f64)> = found.iter().map(|one| rank(&one.layout)).collect();
    assert!(ranks.len() == 3 && ranks.windows(2).all(|pair| pair[0] < pair[1]), "{ranks:?}");
    assert_eq!(ranks[0], placed(&instance, MAX_PASSES));
}

#[test]
fn load_returns_a_saved_model_and_refuses_a_changed_one() {
    let text = LearnedModel::shipped().save().unwrap();
    assert_eq!(&LearnedModel::load(&text).unwrap(), LearnedModel::shipped());
    let other = text.replacen("\"format\":1", "\"format\":2", 1);
    assert!(matches!(LearnedModel::load(&other), Err(ModelError::Format(2))));
    assert!(matches!(LearnedModel::load(&text[..text.len() / 2]), Err(ModelError::Unreadable(_))));
    let weight = text.find("\"params\":[").unwrap() + 10;
    let end = weight + text[weight..].find(',').unwrap();
    let changed = format!("{}0.5{}", &text[..weight], &text[end..]);
    assert!(matches!(LearnedModel::load(&changed), Err(ModelError::Damaged)));
}

proptest! {
    /// Rows are computed together in the shipped form of the network, and one by one in any other.
    #[test]
    fn scores_of_rows_together_equal_scores_of_single_rows(seed in any::<u64>(), count in 0_usize..45) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut numbers = |n: usize| (0..n).map(|_| if rng.u8(..) < 30 { 0.0 } else { 4.0 * rng.f32() - 2.0 }).collect::<Vec<f32>>();
        let net = ScoreNet::new(vec![FEATURES, 16, 16, 1], numbers(FEATURES * 16 + 16 + 16 * 16 + 16 + 16 + 1)).unwrap();
        let rows = numbers(count * FEATURES);
        let (mut together, mut singly) = (vec![7.0], vec![8.0]);
        net.score(&rows, &mut together);
        net.score_singly(&rows, &mut singly);
        prop_assert_eq!(together.len(), count);
        let bits = |scores: &[f32]| scores.iter().map(|s| s.to_bits()).collect::<Vec<u32>>();
        prop_assert_eq!(bits(&together), bits(&singly));
    }

    /// The options of a unit are described in columns; what is said of one does not depend on the others beside it, except the comparison
    /// with the best of them.
    #[test]
    fn rows_of_options_together_equal_rows_of_single_options(seed in any::<u64>(), places in 1_usize..40, placed in 0_usize..9) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let capacities: Vec<Load> = (0..places).map(|_| [2_000.0 + 500.0 * rng.f64(), 2_000.0 + 900.0 * rng.f64()]).collect();
        let instance = instance(&capacities, Rules::default());
        let mut layout = Layout::empty(&instance, Weights::default());
        let (before, unit) = (0..9_u32).partition::<Vec<u32>, _>(|c| (*c as usize) < placed);
        before.iter().for_each(|c| layout.put(&[*c], rng.usize(0..places)));
        let outlook = Outlook::of(&instance, Weights::default());
        let mut calls = UnitCalls::default();
        calls.collect(&layout, &unit);
        let described = Unit { containers: &unit, kind: UnitKind::Group, rest: [40.0, 0.0], left: [300.0, 200.0] };
        let options: Vec<Option<usize>> = (0..places).map(Some).chain([None]).collect();
        let (mut together, mut singly) = (Vec::new(), Vec::new());
        outlook.describe(&layout, &described, &calls, &options, &mut together);
        options.iter().for_each(|option| outlook.describe(&layout, &described, &calls, &[*option], &mut singly));
        prop_assert_eq!(together.len(), (places + 1) * FEATURES);
        let mut least = f32::INFINITY;
        for (n, (a, b)) in together.iter().zip(&singly).enumerate() {
            prop_assert!(a.is_finite() && (a == b || n % FEATURES == 20), "feature {} of option {}", n % FEATURES, n / FEATURES);
            if n % FEATURES == 20 && n / FEATURES < places {
                least = least.min(*a);
            }
        }
        prop_assert_eq!(least, 0.0);
    }
}
