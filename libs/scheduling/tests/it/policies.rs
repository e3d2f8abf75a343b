//! Policies: the order of candidates.

use std::collections::BTreeMap;

use drover_scheduling::*;

use crate::test_fleet::{TestFleet, id, key};

const ALL: [&str; 2] = ["x+a", "y+b"];

fn used(cpu: i64) -> Observed {
    Observed { used: Some(Amounts { cpu, memory: 1, ..Amounts::default() }), ..Observed::default() }
}

/// Three apps with requests of 100m that use 50, 10 and 30.
fn busy() -> TestFleet {
    TestFleet::default()
        .member("x+a", 1, &[1000])
        .member("y+b", 2, &[1000])
        .running("hot", "x+a", 100, &ALL)
        .running("idle", "x+a", 100, &ALL)
        .running("warm", "x+a", 100, &ALL)
        .observed("hot", used(50))
        .observed("idle", used(10))
        .observed("warm", used(30))
}

fn policy(mode: PolicyMode, algorithms: &[(&str, f64)]) -> Policy {
    Policy {
        name: "test".into(),
        mode,
        algorithms: algorithms
            .iter()
            .map(|(name, weight)| AlgorithmUse { algorithm: (*name).into(), priority: None, weight: Some(*weight) })
            .collect(),
        cascade_depth: 0,
        definitions: builtin_algorithms(),
        parameters: builtin_parameters(),
    }
}

fn order(fleet: &TestFleet, policy: &Policy) -> Vec<String> {
    let candidates = policy_test(&fleet.ledger(), &key("x+a"), policy, &fleet.movability, &BTreeMap::new());
    candidates.into_iter().filter(|c| c.why_not.is_none()).map(|c| c.app).collect()
}

fn constant(policy: &mut Policy, name: &str, expression: &str, prefer: Prefer, missing: Missing) {
    policy.definitions.insert(name.into(), Algorithm { expression: expression.into(), prefer, missing });
}

#[test]
fn builtin_algorithms_compile_with_builtin_parameters() {
    let parameters = builtin_parameters();
    for (name, algorithm) in builtin_algorithms() {
        validate_expression(&algorithm.expression, parameters.keys().map(String::as_str)).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

#[test]
fn cpu_utilization_moves_least_busy_first() {
    let by_cpu = policy(PolicyMode::Order, &[("CPUUtilization", 1.0)]);
    assert_eq!(order(&busy(), &by_cpu), ["idle", "warm", "hot"]);
    let candidates = policy_test(&busy().ledger(), &key("x+a"), &by_cpu, &busy().movability, &BTreeMap::new());
    assert_eq!(candidates[0].scores[0].value, Some(10.0));
}

#[test]
fn utilization_divides_by_requests_of_observed_pods() {
    // It was scaled in its cluster: three pods are observed, one is claimed.
    let requests = BTreeMap::from([("n1".to_owned(), Amounts::pod(300, 3))]).into();
    let fleet = busy().observed("hot", Observed { requests, ..used(60) });
    let by_cpu = policy(PolicyMode::Order, &[("CPUUtilization", 1.0)]);
    assert_eq!(order(&fleet, &by_cpu), ["idle", "hot", "warm"], "60 of 300, not of 100");
}

#[test]
fn intent_priority_precedes_policy() {
    let by_cpu = policy(PolicyMode::Order, &[("CPUUtilization", 1.0)]);
    assert_eq!(order(&busy().priority("hot", 1), &by_cpu), ["hot", "idle", "warm"]);
}

#[test]
fn equal_values_are_ordered_by_next_algorithm_then_name() {
    let fleet = busy().observed("warm", used(10));
    let by_cpu = policy(PolicyMode::Order, &[("CPUUtilization", 1.0)]);
    assert_eq!(order(&fleet, &by_cpu), ["idle", "warm", "hot"]);
    let mut two = policy(PolicyMode::Order, &[("CPUUtilization", 1.0), ("Mine", 1.0)]);
    constant(&mut two, "Mine", "pods * 1.0 + cpu_used", Prefer::High, Missing::default());
    let observed = Observed { age_s: Some(5), ..used(10) };
    let fleet = fleet.observed("warm", observed);
    constant(&mut two, "Mine", "age", Prefer::Low, Missing::default());
    assert_eq!(order(&fleet, &two), ["warm", "idle", "hot"], "idle has no age, so it is last among equals");
}

#[test]
fn algorithm_priority_precedes_list_order() {
    let mut two = policy(PolicyMode::Order, &[("Later", 1.0), ("CPUUtilization", 1.0)]);
    constant(&mut two, "Later", "cpu_used", Prefer::High, Missing::default());
    assert_eq!(order(&busy(), &two), ["hot", "warm", "idle"]);
    two.algorithms[0].priority = Some(2);
    two.algorithms[1].priority = Some(1);
    assert_eq!(order(&busy(), &two), ["idle", "warm", "hot"]);
}

#[test]
fn missing_value_ranks_last_first_or_as_number() {
    let fleet = busy().observed("idle", Observed::default());
    let mut by_cpu = policy(PolicyMode::Order, &[("CPUUtilization", 1.0)]);
    assert_eq!(order(&fleet, &by_cpu), ["warm", "hot", "idle"], "a missing value is not 0");
    let mut missing = |missing| {
        by_cpu.definitions.get_mut("CPUUtilization").unwrap().missing = missing;
        order(&fleet, &by_cpu)
    };
    assert_eq!(missing(Missing::Place(MissingPlace::First)), ["idle", "warm", "hot"]);
    assert_eq!(missing(Missing::Number(40.0)), ["warm", "idle", "hot"]);
    let mut scoring = policy(PolicyMode::Scoring, &[("CPUUtilization", 1.0)]);
    assert_eq!(order(&fleet, &scoring), ["warm", "hot", "idle"]);
    scoring.definitions.get_mut("CPUUtilization").unwrap().missing = Missing::Number(40.0);
    assert_eq!(order(&fleet, &scoring), ["warm", "idle", "hot"]);
}

#[test]
fn missing_is_read_from_json() {
    let parse = |json: &str| serde_json::from_str::<Algorithm>(json).unwrap().missing;
    assert_eq!(parse(r#"{"expression":"a","missing":"first"}"#), Missing::Place(MissingPlace::First));
    assert_eq!(parse(r#"{"expression":"a","missing":7.5}"#), Missing::Number(7.5));
    for nothing in [r#"{"expression":"a"}"#, r#"{"expression":"a","missing":null}"#] {
        assert_eq!(parse(nothing), Missing::Place(MissingPlace::Last));
    }
}

#[test]
fn order_and_scoring_modes_differ() {
    // idle is a little less busy than warm; warm is much younger.
    let aged = |cpu, age| Observed { age_s: Some(age), ..used(cpu) };
    let fleet = busy().observed("hot", aged(50, 900)).observed("idle", aged(10, 1000)).observed("warm", aged(12, 10));
    let both = [("CPUUtilization", 1.0), ("Age", 1.0)];
    assert_eq!(order(&fleet, &policy(PolicyMode::Order, &both)), ["idle", "warm", "hot"]);
    assert_eq!(order(&fleet, &policy(PolicyMode::Scoring, &both)), ["warm", "idle", "hot"]);
    let cpu_counts = [("CPUUtilization", 100.0), ("Age", 1.0)];
    assert_eq!(order(&fleet, &policy(PolicyMode::Scoring, &cpu_counts)), ["idle", "warm", "hot"]);
}

#[test]
fn scores_are_normalised_over_candidates() {
    let scoring = policy(PolicyMode::Scoring, &[("CPUUtilization", 2.0), ("MemoryUtilization", 1.0)]);
    let candidates = policy_test(&busy().ledger(), &key("x+a"), &scoring, &busy().movability, &BTreeMap::new());
    let normalised: Vec<f64> = candidates.iter().map(|c| c.scores[0].normalised.unwrap()).collect();
    assert_eq!(normalised, [1.0, 0.5, 0.0]);
    assert!(candidates.iter().all(|c| c.scores[1].normalised == Some(0.5)), "equal values are normalised to 0.5");
    assert_eq!(candidates[0].total, Some(2.5));
}

#[test]
fn without_policy_better_destination_moves_first() {
    let fleet = TestFleet::default()
        .member("x+a", 1, &[1000])
        .member("y+b", 5, &[1000])
        .member("z+c", 2, &[1000])
        .running("app1", "x+a", 100, &["x+a", "y+b"])
        .running("app2", "x+a", 100, &["x+a", "z+c"])
        .running("app3", "x+a", 100, &["x+a", "z+c", "y+b"]);
    assert_eq!(order(&fleet, &Policy::default()), ["app2", "app3", "app1"]);
}

#[test]
fn dispersion_prefers_apps_on_several_clusters() {
    let spread = crate::test_fleet::dig("spread");
    let fleet = TestFleet::default()
        .member("x+a", 1, &[1000])
        .member("y+b", 5, &[1000])
        .running("one", "x+a", 100, &ALL)
        .running("two", "x+a", 100, &ALL)
        .running("two-more", "y+b", 100, &ALL)
        .change_claim("two", |c| c.dig = spread.clone().into())
        .change_claim("two-more", |c| c.dig = spread.clone().into());
    let mut fleet = fleet;
    fleet.movability.push(Movability { dig: spread.id, app: "two".into(), migration: true, priority: 10 });
    let by = policy(PolicyMode::Order, &[("Dispersion", 1.0)]);
    // one: 1 cluster / 1 app; two: 2 clusters / 2 apps. Three apps on two clusters have a lower dispersion.
    assert_eq!(order(&fleet, &by), ["one", "two"]);
    let fleet = fleet.running("two-x", "x+a", 1, &["x+a"]).change_claim("two-x", |c| c.dig = spread.clone().into());
    let candidates = policy_test(&fleet.ledger(), &key("x+a"), &by, &fleet.movability, &BTreeMap::new());
    assert_eq!(candidates.iter().find(|c| c.app == "two").unwrap().scores[0].value, Some(2.0 / 3.0));
}

#[test]
fn move_cost_counts_images_missing_at_destination() {
    let images = |images: &[(&str, u64)]| std::sync::Arc::new(images.iter().map(|(name, bytes)| ((*name).into(), *bytes)).collect());
    let ready = || Observed { ready_s: Some(4.0), ..Observed::default() };
    // Nodes report only their largest images, so the size of `small` is unknown.
    let fleet = busy()
        .change_request("hot", |r| r.demand.images = vec!["nginx:1".into()])
        .change_request("idle", |r| r.demand.images = vec!["big".into(), "small".into(), "nginx:1".into()])
        .change_request("warm", |r| r.demand.images = vec!["small".into()])
        .observed("hot", ready())
        .observed("idle", ready())
        .change_capacity("x+a", |c| c.images = images(&[("nginx:1", 500_000_000), ("big", 100_000_000)]))
        .change_capacity("y+b", |c| c.images = images(&[("nginx:1", 0)]));
    let by = policy(PolicyMode::Order, &[("MoveCost", 1.0)]);
    let candidates = policy_test(&fleet.ledger(), &key("x+a"), &by, &fleet.movability, &BTreeMap::new());
    let costs: Vec<Option<f64>> = candidates.iter().map(|c| c.scores[0].value).collect();
    assert_eq!(costs, [Some(4.0), Some(6.0), None], "nginx is present; 100 MB at 50 MB/s; the size of warm's image is unknown");
}

#[test]
fn reports_of_agents_order_candidates() {
    let told = |pressure, unmet| Observed { memory_pressure: pressure, unmet_pods: unmet, ..Observed::default() };
    let fleet =
        busy().observed("hot", told(Some(60), None)).observed("idle", told(None, Some(4))).observed("warm", told(Some(97), Some(1)));
    assert_eq!(order(&fleet, &policy(PolicyMode::Order, &[("MemoryPressure", 1.0)])), ["warm", "hot", "idle"], "idle has no guard");
    assert_eq!(order(&fleet, &policy(PolicyMode::Order, &[("UnmetDemand", 1.0)])), ["idle", "warm", "hot"]);
}

#[test]
fn custom_algorithm_orders_candidates() {
    let mut mine = policy(PolicyMode::Order, &[("Mine", 1.0)]);
    mine.parameters
        .insert("revenue".into(), Parameter { source: ParameterSource::Prometheus, query: Some("q".into()), ..Parameter::default() });
    constant(&mut mine, "Mine", "revenue > 100 ? revenue : 1000 - cpu_requested", Prefer::High, Missing::default());
    let fleet = busy();
    let revenue = |value| BTreeMap::from([("revenue".to_owned(), value)]);
    let external = BTreeMap::from([(id("warm"), revenue(2000.0)), (id("hot"), revenue(5.0))]);
    let candidates = policy_test(&fleet.ledger(), &key("x+a"), &mine, &fleet.movability, &external);
    let apps: Vec<&str> = candidates.iter().map(|c| c.app.as_str()).collect();
    assert_eq!(apps, ["warm", "hot", "idle"]);
}

#[test]
fn invalid_algorithm_is_ignored() {
    let mut broken = policy(PolicyMode::Order, &[("Gone", 1.0), ("Broken", 1.0), ("CPUUtilization", 1.0)]);
    constant(&mut broken, "Broken", "cpu_used +", Prefer::Low, Missing::default());
    assert_eq!(order(&busy(), &broken), ["idle", "warm", "hot"]);
    broken.mode = PolicyMode::Scoring;
    assert_eq!(order(&busy(), &broken), ["idle", "warm", "hot"]);
}
