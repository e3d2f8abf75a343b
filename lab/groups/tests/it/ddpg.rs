//! Acceptance tests 5 and 6, as far as they are quick: a toy is learned, files are checked, a collapse is detected. The full training is
//! measured by `drover experiment groups` and by a long test here.

use drover_lab_groups::ddpg::*;
use drover_lab_groups::*;

use crate::paper_at;

/// Two nodes and two pairs of services that call each other: the optimum puts one pair on each node.
fn toy() -> Instance {
    let services = ["a", "b", "c", "d"].map(|n| Service { name: n.to_owned(), request: [1.0, 1.0], replicas: 1 }).to_vec();
    let graph = CallGraph::named(services, [("a", "b", 5.0), ("c", "d", 5.0)]).unwrap();
    let places = (0..2).map(|i| Place::new(format!("n{i}"), [3.0, 3.0], i)).collect();
    Instance::new(&graph, Traffic::Local, &Grouping::singletons(&graph), places, Rules::default()).unwrap()
}

#[test]
fn training_learns_the_optimum_of_a_toy() {
    let (instance, weights) = (toy(), Weights::default());
    let optimum = Exact::default().prove(&instance, &weights);
    assert!(optimum.proven && optimum.value < 1e-12);
    for mut training in [Training::paper(2000), Training::delta(2000)] {
        training.learning.width = 24;
        let mut reached = 0;
        for seed in 1..=5 {
            let trained = training.run(&[toy()], &[toy()], &weights, seed, &mut |_| ());
            let got = trained.best.place(&instance, &weights).value;
            println!(
                "{:?} seed {seed}: untrained {:.4}, trained {got:.4}",
                training.reward,
                trained.untrained.place(&instance, &weights).value
            );
            reached += usize::from(got < 1e-9);
        }
        assert!(reached >= 4, "{:?}: the optimum in {reached} of 5", training.reward);
    }
}

#[test]
fn training_depends_on_the_seed_alone() {
    let run = |seed| {
        Training::paper(300).run(&[paper_at(1, Traffic::Local)], &[paper_at(1, Traffic::Local)], &Weights::default(), seed, &mut |_| ())
    };
    let (a, b, c) = (run(5), run(5), run(6));
    assert_eq!((&a.best, &a.rewards), (&b.best, &b.rewards));
    assert_ne!(a.rewards, c.rewards);
}

#[test]
fn load_returns_a_saved_policy_and_refuses_a_damaged_one() {
    let trained = Training::delta(100).run(&[toy()], &[toy()], &Weights::default(), 1, &mut |_| ());
    let text = trained.best.save().unwrap();
    assert_eq!(LearnedPolicy::load(&text).unwrap(), trained.best);
    let other = text.replacen("\"format\":1", "\"format\":2", 1);
    assert!(matches!(LearnedPolicy::load(&other), Err(SavedError::Format(2))));
    assert!(matches!(LearnedPolicy::load(&text[..text.len() / 2]), Err(SavedError::Unreadable(_))));
    let weight = text.find("\"params\":[").unwrap() + 10;
    let end = weight + text[weight..].find(',').unwrap();
    let changed = format!("{}0.5{}", &text[..weight], &text[end..]);
    assert!(matches!(LearnedPolicy::load(&changed), Err(SavedError::Damaged)));
}

#[test]
fn learned_policy_respects_the_rules_and_places_nothing_on_other_numbers_of_nodes() {
    let weights = Weights::default();
    let trained = Training::paper(100).run(&[paper_at(1, Traffic::Local)], &[], &weights, 1, &mut |_| ());
    for instance in [paper_at(9, Traffic::Local), paper(&sock_shop_compose(), Setting { scale: 9, aspect: 1.6, ..Setting::default() })] {
        let placed = trained.best.place(&instance, &weights);
        assert_eq!(placed.faults(&instance), Vec::<String>::new());
        let polished = trained.best.polished(&instance, &weights, &Search::moves(20_000, 1));
        assert!(polished.unplaced.len() <= placed.unplaced.len());
        assert!(polished.unplaced.len() < placed.unplaced.len() || polished.value <= placed.value);
    }
    assert_eq!(trained.best.place(&toy(), &weights).unplaced, [0, 1, 2, 3], "a policy for fifteen nodes places nothing on two");
}

#[test]
fn collapsed_detects_a_placement_on_one_place() {
    let (instance, weights) = (paper_at(1, Traffic::Local), Weights::default());
    let best = Search::moves(50_000, 1).place(&instance, &weights);
    let one = Placed { at: vec![Some(14); 13], ..best.clone() };
    assert!(collapsed(&instance, &one, &best) && entropy(&instance, &one) == 0.0);
    assert!(!collapsed(&instance, &best, &best));
    assert!(!collapsed(&instance, &one, &one), "no collapse where the best placement uses one node");
    let even = Placed { at: (0..13).map(|c| Some(c % 2)).collect(), ..best };
    assert!(entropy(&instance, &even) > 0.69);
}

#[test]
fn best_constant_order_is_no_worse_than_first_fit() {
    let (instance, weights) = (paper_at(3, Traffic::Local), Weights::default());
    let first = ConstantOrder((0..15).collect()).place(&instance, &weights);
    let (_, best) = ConstantOrder::best(&instance, &weights, 100, 1);
    assert!(best.value <= first.value && best.unplaced.is_empty());
}

/// Acceptance test 5 in full: the policy is rightly called experimental.
#[test]
#[ignore = "long: trains five seeds for minutes"]
fn trained_policy_does_not_beat_all_rivals_in_four_of_five_seeds() {
    let weights = Weights::default();
    let training = Training::paper(6000);
    let runs: Vec<_> = (1..=5).map(|seed| experiment::run(&training, Some(RHO), &weights, seed, &mut |_| ())).collect();
    for (i, scale) in experiment::SCALES.into_iter().enumerate() {
        let wins =
            |rival: fn(&experiment::ScaleEvaluation) -> &Placed| runs.iter().filter(|r| r.tests[i].beats(rival(&r.tests[i]))).count();
        let (untrained, constant, greedy) = (wins(|t| &t.untrained), wins(|t| &t.constant), wins(|t| &t.greedy));
        println!("x{scale}: beats untrained in {untrained}, the best constant order in {constant}, cgs-greedy in {greedy} of 5");
        for run in &runs {
            let test = &run.tests[i];
            assert_eq!(test.trained.faults(&test.instance), Vec::<String>::new());
            assert!(test.polished.value <= test.trained.value && test.polished.unplaced.is_empty());
            println!(
                "  seed {}: {:.4} (untrained {:.4}, polished {:.4})",
                run.seed, test.trained.value, test.untrained.value, test.polished.value
            );
        }
        // If this fails, the policy is as good as it must be, and need no longer be switched on as experimental.
        assert!(greedy < 4 || untrained < 4 || constant < 4, "x{scale}: the trained policy beats all rivals now");
    }
}
