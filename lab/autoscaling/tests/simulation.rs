//! The simulator conserves requests, and generated loads rank the policies as in the paper. No test here measures speed.

use drover_autoscaling::qlearning::QLearningSpec;
use drover_autoscaling::threshold::{MetricSpec, ThresholdSpec};
use drover_autoscaling::{Limits, Policy};
use drover_lab_autoscaling::experiment::{Plan, compare};
use drover_lab_autoscaling::sim::{Arrivals, Driver, Schedule, Shape, SimSpec, Simulation, Trace, drive, train};
use proptest::prelude::*;

fn even(rates: Vec<f64>, spec: &SimSpec) -> Arrivals {
    let seconds = rates.len();
    Arrivals::even(&Trace::new(rates), spec, 0, seconds)
}

#[test]
fn fixed_pods_serve_up_to_capacity() {
    // Two pods serve 510.2 requests per second. 600 arrive per second for 10 s, then none: up to 0.5 s' worth waits, the rest expires.
    let spec = SimSpec::default();
    let mut rates = vec![600.0; 10];
    rates.extend([0.0; 5]);
    let run = drive(&spec, &even(rates, &spec), &mut Driver::fixed(2));
    assert!((run.totals.arrived - 6_000.0).abs() < 0.1 && (run.totals.pod_seconds - 30.0).abs() < 1e-9);
    assert!((run.totals.served + run.totals.expired - 6_000.0).abs() < 0.1);
    // Served: the capacity of 10 s, and at the end what waited less than half a second.
    assert!(run.totals.served > 5_102.0 && run.totals.served < 5_102.0 + 0.5 * 510.2 + 1.0, "{}", run.totals.served);
    // Below the capacity nothing expires.
    let calm = drive(&spec, &even(vec![500.0; 30], &spec), &mut Driver::fixed(2));
    assert_eq!(calm.totals.expired, 0.0);
    assert!((calm.totals.cpu() - 500.0 / 510.2).abs() < 1e-6);
}

#[test]
fn pods_start_after_delay_and_stop_at_once() {
    let spec = SimSpec { delay: 2.0, ..SimSpec::default() };
    let arrivals = even(vec![2_000.0; 6], &spec);
    let mut simulation = Simulation::new(&spec, 0.0);
    simulation.advance(arrivals.second(0));
    simulation.scale(3);
    assert_eq!(simulation.pods(), (3, 1));
    let starting = simulation.advance(arrivals.second(1));
    assert!((starting.capacity - 291.1).abs() < 1e-6 && (starting.pod_seconds - 3.0).abs() < 1e-9);
    simulation.scale(4);
    simulation.advance(arrivals.second(2));
    assert_eq!(simulation.pods(), (4, 3));
    simulation.scale(3);
    assert_eq!(simulation.pods(), (3, 3), "the one that still starts goes first");
    simulation.scale(99);
    assert_eq!(simulation.pods().0, 4);
}

#[test]
fn trace_reads_csv_and_repeats_per_seed() {
    let trace = Trace::from_csv("t,rps\n0,1.5\n1,0\n\n2,3\n").unwrap();
    assert_eq!(trace.rates(), [1.5, 0.0, 3.0]);
    assert_eq!(Trace::from_csv("t,timestamp,requests\n0,1995-07-13T00:00:00,4\n").unwrap().rates(), [4.0]);
    for wrong in ["", "t,rps\n", "0,1\n1,x\n", "0,1\n1,-1\n", "5\n", "0,1\n1,NaN\n"] {
        assert!(Trace::from_csv(wrong).is_err(), "{wrong:?}");
    }
    for shape in [Shape::Daily, Shape::Launch, Shape::Idle] {
        let one = Trace::generate(shape, 2_000, 900.0, 7);
        assert_eq!(one, Trace::generate(shape, 2_000, 900.0, 7));
        assert_ne!(one, Trace::generate(shape, 2_000, 900.0, 8));
        let highest = one.rates().iter().copied().fold(0.0, f64::max);
        assert!((highest - 900.0).abs() < 1e-6 && one.rates().iter().all(|rate| *rate >= 0.0));
    }
}

/// Share of the seconds with more than this rate, in per cent.
fn above(rates: &[f64], rate: f64) -> f64 {
    100.0 * rates.iter().filter(|one| **one > rate).count() as f64 / rates.len() as f64
}

fn mean(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / rates.len() as f64
}

/// The rate below which this share of the seconds stays.
fn percentile(rates: &[f64], share: f64) -> f64 {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(share * sorted.len() as f64) as usize]
}

/// How far the rates of one time tell those of `later` seconds after it.
fn autocorrelation(rates: &[f64], later: usize) -> f64 {
    let mean = mean(rates);
    let product = |lag: usize| rates.iter().zip(&rates[lag..]).map(|(one, other)| (one - mean) * (other - mean)).sum::<f64>();
    product(later) / product(0)
}

#[track_caller]
fn near(what: &str, got: f64, published: f64, tolerance: f64) {
    assert!((got - published).abs() <= tolerance, "{what}: {got:.3}, but {published} is published");
}

/// What is published of both traces. The shares and quantiles follow from the table of rates; mean before 5,000, peak and autocorrelation
/// test the course. 0.84 and 0.72 were measured on the imported traces.
#[test]
fn generated_loads_have_the_published_shapes() {
    for seed in 1..=5 {
        let launch = Trace::generate(Shape::Launch, 20_000, 948.4, seed);
        let rates = launch.rates();
        for (capacity, share) in [(291.1, 79.0), (510.2, 22.0), (729.3, 1.9)] {
            near("launch: seconds that need more pods, %", above(rates, capacity), share, 0.1);
        }
        near("launch: mean", mean(rates), 402.0, 4.0);
        near("launch: median", percentile(rates, 0.5), 378.0, 4.0);
        near("launch: mean before second 5,000", mean(&rates[..5_000]), 493.0, 50.0);
        // The launch was at 09:41:55, its highest minute at 09:49.
        let highest = (0..rates.len()).max_by(|one, other| rates[*one].total_cmp(&rates[*other])).unwrap();
        assert!((5_714..6_600).contains(&highest), "the launch peaks at second {highest}");

        near("launch: autocorrelation after a minute", autocorrelation(rates, 60), 0.72, 0.14);

        let idle = Trace::generate(Shape::Idle, 20_000, 948.4, seed);
        let rates = idle.rates();
        for (capacity, share) in [(291.1, 4.1), (510.2, 0.4), (729.3, 0.0)] {
            near("idle: seconds that need more pods, %", above(rates, capacity), share, 0.1);
        }
        near("idle: mean", mean(rates), 127.0, 2.0);
        near("idle: 95th percentile", percentile(rates, 0.95), 278.0, 3.0);
        near("idle: autocorrelation after a minute", autocorrelation(rates, 1), 0.84, 0.04);
        near("idle: autocorrelation after an hour", autocorrelation(rates, 60), 0.69, 0.08);
    }
    // Other lengths and peaks have the same shape.
    let short = Trace::generate(Shape::Launch, 1_000, 80.0, 1);
    near("short launch: seconds that need more than two of four pods, %", above(short.rates(), 80.0 * 510.2 / 948.4), 22.0, 0.2);
}

#[test]
fn sim_spec_refuses_impossible_values() {
    let fine = SimSpec::default();
    assert!(fine.check().is_ok());
    for spec in [
        SimSpec { step: 0.3, ..fine.clone() },
        SimSpec { timeout: 0.25, ..fine.clone() },
        SimSpec { timeout: 0.0, ..fine.clone() },
        SimSpec { delay: -1.0, ..fine.clone() },
        SimSpec { max_pods: 0, ..fine.clone() },
        SimSpec { initial_pods: 5, ..fine.clone() },
        SimSpec { capacity_factor: 0.0, ..fine.clone() },
    ] {
        assert!(spec.check().is_err(), "{spec:?}");
    }
}

#[test]
fn training_is_repeatable_and_lowers_cost() {
    let spec = SimSpec::default();
    let load = Trace::generate(Shape::Launch, 4_000, 948.4, 3);
    let pass = Arrivals::even(&load, &spec, 0, 2_000);
    let learner = QLearningSpec { guards: false, alpha: 0.1, ..QLearningSpec::default() };
    let table = |passes| train(&learner, &spec, &Schedule::default(), 15, std::iter::repeat_n(&pass, passes));
    assert_eq!(table(3), table(3));
    assert_eq!(table(3).passes, 3);
    let online = Arrivals::even(&load, &spec, 2_000, 4_000);
    let cost = |passes| {
        let mut driver = Driver::policy(Policy::QLearning(learner.clone()), Limits::default(), &spec, 15).with_table(table(passes));
        let run = drive(&spec, &online, &mut driver);
        assert!(driver.table().is_some_and(|learned| *learned != table(passes)), "it goes on learning");
        run.totals.cost(0.1)
    };
    assert!(cost(20) < cost(0), "{} and {}", cost(20), cost(0));
}

/// The paper's ranking on a generated load; 4 seeds here, 20 in `drover experiment autoscaling`.
#[test]
fn comparison_ranks_pretrained_and_guarded_learners_as_in_the_paper() {
    let plan = Plan { seeds: 4, end: 15_000, targets: (80, 90), ..Plan::default() };
    let load = Trace::generate(Shape::Launch, plan.end, 948.4, 1);
    let compared = compare(&plan, &load, &mut |_| {});
    let mean = |name: &str| compared.get(name).unwrap().mean_cost();
    assert!(mean("d") < mean("a"), "{} and {}", mean("d"), mean("a"));
    assert!(mean("guarded") < mean("d"));
    assert!(mean("guarded") <= 1.10 * mean("hpa"), "{} and {}", mean("guarded"), mean("hpa"));
    assert!(compared.get("d").unwrap().mean_expired() < compared.get("a").unwrap().mean_expired());
    assert_eq!(
        compared.outcomes.iter().map(|outcome| outcome.name.as_str()).collect::<Vec<_>>(),
        ["a", "b", "c", "d", "e", "hpa", "static", "kpa", "guarded"]
    );
    assert!(compared.outcomes.iter().all(|outcome| outcome.cost.len() == 4 && !outcome.course.is_empty()));
}

#[test]
fn hpa_run_stays_within_bounds() {
    let spec = SimSpec::default();
    let load = Trace::generate(Shape::Daily, 3_000, 1_200.0, 5);
    let arrivals = Arrivals::poisson(&load, &spec, 0, 3_000, 9);
    let policy = Policy::Threshold(ThresholdSpec { metrics: vec![MetricSpec::cpu(70)], ..ThresholdSpec::default() });
    let run = drive(&spec, &arrivals, &mut Driver::policy(policy, Limits::default(), &spec, 15));
    assert_eq!(run.course.len(), 200);
    assert!(run.course.iter().all(|sample| (1..=4).contains(&sample.pods) && sample.ready <= sample.pods));
    assert!(run.course.iter().any(|sample| sample.pods == 4) && run.course.iter().any(|sample| sample.pods < 3));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every request is served, expired, or still waiting (at most as many as arrive within the timeout).
    #[test]
    fn every_request_is_served_expired_or_waiting(rates in prop::collection::vec(0.0..1_500.0_f64, 1..40), pods in 1..5_i32, timeout in 1..20_u32) {
        let spec = SimSpec { timeout: f64::from(timeout) / 10.0, ..SimSpec::default() };
        let run = drive(&spec, &even(rates, &spec), &mut Driver::fixed(pods));
        let waiting = run.totals.arrived - run.totals.served - run.totals.expired;
        prop_assert!(waiting > -1e-3 && waiting <= 1_500.0 * spec.timeout + 1e-3, "{waiting}");
        prop_assert!(run.totals.served <= run.totals.capacity + 1e-3);
    }
}
