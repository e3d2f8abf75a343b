//! Acceptance test 8: every policy respects the hard rules (capacity, anti-affinity, failure domains, a budget of moves), depends on its
//! seed alone, and reports the containers that it leaves out.

use std::collections::BTreeSet;

use drover_lab_groups::*;
use proptest::prelude::*;

use crate::paper_at;

fn all() -> Vec<Box<dyn Policy>> {
    let greedy = [Greedy::Spread, Greedy::Binpack, Greedy::Balanced, Greedy::Affinity, Greedy::Groups, Greedy::GroupsSpread];
    let mut policies: Vec<Box<dyn Policy>> = greedy.into_iter().map(|g| Box::new(g) as Box<dyn Policy>).collect();
    policies.push(Box::new(Aco { grouped: false, seed: 3 }));
    policies.push(Box::new(Aco { grouped: true, seed: 3 }));
    policies.push(Box::new(Search::moves(20_000, 3)));
    policies.push(Box::new(Search { grouped: false, ..Search::moves(20_000, 3) }));
    policies
}

fn sound(policy: &dyn Policy, instance: &Instance) -> Placed {
    let placed = policy.place(instance, &Weights::default());
    assert_eq!(placed.faults(instance), Vec::<String>::new(), "{}", policy.name());
    let without: Vec<usize> = (0..placed.at.len()).filter(|c| placed.at[*c].is_none()).collect();
    assert_eq!(placed.unplaced, without, "{}: every container without a place must be reported", policy.name());
    assert_eq!(placed, policy.place(instance, &Weights::default()), "{} must be deterministic", policy.name());
    placed
}

/// Measured by the prototypes that the specification was written from; the same instances give the same numbers.
#[test]
fn baselines_have_their_published_values() {
    let table = [(Greedy::Spread, [0.366, 0.420, 0.355]), (Greedy::Binpack, [0.390, 0.296, 0.130])];
    for (policy, row) in table {
        for (scale, expected) in [1, 3, 9].into_iter().zip(row) {
            let got = sound(&policy, &paper_at(scale, Traffic::Local)).value;
            assert!((got - expected).abs() < 6e-4, "{} at x{scale}: {got}", policy.name());
        }
    }
}

#[test]
fn every_policy_places_all_containers_of_the_paper_within_the_rules() {
    for scale in [1, 3, 9] {
        for traffic in [Traffic::Local, Traffic::Uniform] {
            let instance = paper_at(scale, traffic);
            for policy in all() {
                assert!(sound(&*policy, &instance).unplaced.is_empty(), "{} at x{scale}", policy.name());
            }
        }
    }
}

#[test]
fn cgs_greedy_beats_the_baselines_and_search_is_no_worse() {
    for scale in [1, 3, 9] {
        let instance = paper_at(scale, Traffic::Local);
        let value = |p: &dyn Policy| p.place(&instance, &Weights::default()).value;
        let greedy = value(&Greedy::Groups);
        let baselines = [Greedy::Spread, Greedy::Binpack, Greedy::Balanced].map(|p| value(&p));
        assert!(baselines.iter().all(|b| greedy < *b) && greedy < value(&Aco { grouped: false, seed: 1 }));
        assert!(value(&Search::moves(200_000, 1)) <= greedy + 1e-9);
    }
}

#[test]
fn policy_named_finds_each_policy_and_the_learned_one_only_if_experimental_ones_are_allowed() {
    for name in POLICIES.into_iter().filter(|n| *n != "cgs-ddpg") {
        assert_eq!(policy_named(name, &Settings::default()).unwrap().name(), name);
    }
    let refused = |name: &str, settings: &Settings| policy_named(name, settings).map(|p| p.name()).unwrap_err();
    assert_eq!(refused("cgs-ddpg", &Settings::default()), ChoiceError::Experimental);
    assert_eq!(refused("cgs-ddpg", &Settings { experimental: true, ..Settings::default() }), ChoiceError::Untrained);
    assert!(refused("tetris", &Settings::default()).to_string().contains("cgs-search, cgs-greedy"));
}

fn tiny(apart: &[(usize, usize)], per_domain: &[(usize, usize)]) -> Instance {
    let services = (0..3).map(|i| Service { name: format!("s{i}"), request: [1.0, 1.0], replicas: 3 }).collect();
    let graph = CallGraph::named(services, [("s0", "s1", 5.0), ("s1", "s2", 1.0)]).unwrap();
    let places = (0..6).map(|i| Place::new(format!("n{i}"), [3.0, 3.0], i / 2)).collect();
    let rules = Rules { apart: apart.iter().copied().collect(), per_domain: per_domain.to_vec(), moves: None };
    let limits = Limits { apart: rules.apart.clone(), ..Limits::default() };
    let grouping = Grouping::of(&graph, Some(3), Variant::Merge, &limits).unwrap();
    Instance::new(&graph, Traffic::Local, &grouping, places, rules).unwrap()
}

#[test]
fn policies_respect_anti_affinity_and_failure_domains() {
    for instance in [tiny(&[(0, 0)], &[]), tiny(&[(0, 1), (2, 2)], &[]), tiny(&[], &[(0, 1), (1, 2)]), tiny(&[(1, 1)], &[(1, 1), (2, 1)])] {
        for policy in all() {
            assert!(sound(&*policy, &instance).unplaced.is_empty(), "{}", policy.name());
        }
    }
    // Without the rule the replicas do share a place, so the rule is what keeps them apart.
    let placed = Search::moves(20_000, 1).place(&tiny(&[], &[]), &Weights::default());
    assert!(!placed.faults(&tiny(&[(0, 1)], &[])).is_empty());
}

#[test]
fn policies_report_containers_that_cannot_be_placed() {
    let impossible = tiny(&[(0, 0), (1, 1)], &[(2, 0)]);
    for policy in all() {
        assert_eq!(sound(&*policy, &impossible).unplaced, [2, 5, 8], "{}", policy.name());
    }
}

#[test]
fn policies_respect_a_budget_of_moves() {
    let weights = Weights::default();
    let graph = sock_shop_compose().scaled_to(3);
    let places = nodes(15, sock_shop_compose().scaled_to(9).demand(), 0.89, 1.0);
    let grouping = Grouping::of(&graph, Some(RHO), Variant::Merge, &Limits::default()).unwrap();
    let make = |moves| Instance::new(&graph, Traffic::Local, &grouping, places.clone(), Rules { moves, ..Rules::default() }).unwrap();
    let spread = Greedy::Spread.place(&make(None), &weights);
    let mut last = f64::INFINITY;
    for most in [0, 3, 9, 39] {
        let instance = make(Some(most)).running(spread.at.clone()).unwrap();
        for policy in all() {
            sound(&*policy, &instance);
        }
        let placed = Search::moves(200_000, 1).place(&instance, &weights);
        let moved = placed.at.iter().zip(&spread.at).filter(|(a, b)| a != b).count();
        assert!(moved <= most);
        assert!(placed.value < last || most == 0, "{most} moves: {}", placed.value);
        last = placed.value;
    }
}

#[test]
fn group_reports_tell_where_each_group_is_and_which_calls_leave_it() {
    let instance = paper_at(1, Traffic::Local);
    let placed = Search::moves(100_000, 1).place(&instance, &Weights::default());
    let group_reports = placed.group_reports(&instance);
    assert_eq!(group_reports.len(), instance.groups().len());
    let user = group_reports.iter().find(|s| s.members.contains(&"user-0".to_owned())).unwrap();
    assert_eq!(user.members, ["front-end-0", "orders-0", "user-0", "user-db-0"]);
    assert!((user.inside + user.outside - 34.0).abs() < 1e-9, "{user:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// Full or skewed clusters, foreign load, rules: no policy violates anything.
    #[test]
    fn no_policy_breaks_a_rule(seed in any::<u64>(), full in 0.5_f64..1.4, aspect in 1.0_f64..2.0, rules in any::<bool>()) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let graph = [bookinfo(), online_boutique(), sock_shop_compose()][rng.usize(0..3)].scaled_to(rng.usize(1..4));
        let mut places = nodes(6, graph.demand(), full, aspect);
        places.iter_mut().for_each(|p| { p.domain %= 3; p.taken = [rng.f64() * 80.0, rng.f64() * 80.0]; });
        let k = graph.services().len();
        let rules = if rules {
            Rules { apart: BTreeSet::from([(0, 1), (2, 2)]), per_domain: vec![(rng.usize(0..k), 1)], moves: None }
        } else {
            Rules::default()
        };
        let grouping = Grouping::of(&graph, Some(4), Variant::Merge, &Limits::default()).unwrap();
        let instance = Instance::new(&graph, Traffic::Uniform, &grouping, places, rules).unwrap();
        for policy in all() {
            if !policy.name().starts_with("aco") {
                sound(&*policy, &instance);
            }
        }
    }
}
