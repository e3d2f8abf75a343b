//! The single calculations by name.

use drover_autoscaling::offline::{PRIMITIVES, primitive};
use serde_json::{Value, json};

fn run(name: &str, line: Value) -> Value {
    primitive(name, &line.to_string()).unwrap()
}

#[test]
fn window_averages_over_the_seconds_it_has_seen() {
    let averages = |window: f64, ops: Value| run("windowAverage", json!({"window": window, "ops": ops}))["results"].clone();
    // Until it is full, a window averages over the seconds since the first write; values of one second are summed.
    assert_eq!(
        averages(5.0, json!([["record", 10.2, 1], ["record", 10.9, 2], ["avg", 10.95], ["record", 12, 6], ["avg", 12]])),
        json!([3.0, 3.0])
    );
    // Seconds without values at the end reduce the divisor and drop old values; a gap in between counts as zeros.
    let filled = json!([
        ["record", 0, 1],
        ["record", 1, 2],
        ["record", 2, 3],
        ["record", 3, 4],
        ["record", 4, 5],
        ["avg", 4],
        ["avg", 3.5],
        ["avg", 6],
        ["avg", 8.9],
        ["avg", 9],
        ["record", 7, 20],
        ["avg", 7]
    ]);
    assert_eq!(averages(5.0, filled), json!([3.0, 3.0, 4.0, 5.0, 0.0, 5.8]));
    // After a whole window without values it starts again; an earlier second may still be added unless it is too old.
    let anew = json!([["record", 0, 7], ["record", 60, 10], ["avg", 60], ["record", 58, 2], ["avg", 60], ["record", 55, 99], ["avg", 60]]);
    assert_eq!(averages(5.0, anew), json!([10.0, 4.0, 4.0]));
    assert_eq!(averages(5.0, json!([["avg", 3], ["record", 100, 1], ["avg", 0]])), json!([0.0, 1.0]));
    // Averages are rounded to six decimal places.
    assert_eq!(averages(3.0, json!([["record", 0, 1], ["record", 1, 0], ["record", 2, 0], ["avg", 2]])), json!([0.333333]));
    // Times may be negative.
    assert_eq!(averages(5.0, json!([["record", -3.5, 4], ["record", -1.5, 8], ["avg", -1]])), json!([4.0]));
}

#[test]
fn window_resize_keeps_newest_buckets() {
    let ops = json!([
        ["record", 0, 1],
        ["record", 1, 2],
        ["record", 2, 3],
        ["record", 3, 4],
        ["record", 4, 5],
        ["record", 5, 6],
        ["avg", 5],
        ["resize", 8],
        ["avg", 5],
        ["record", 6, 7],
        ["avg", 6],
        ["resize", 3],
        ["avg", 6],
        ["resize", 3],
        ["avg", 6]
    ]);
    let results = run("windowAverage", json!({"window": 5, "ops": ops}))["results"].clone();
    assert_eq!(results, json!([4.0, 4.0, 4.5, 6.0, 6.0]));
    let coarse = json!([["record", 0, 10], ["record", 2.9, 5], ["record", 3, 4], ["avg", 3], ["record", 6, 1], ["avg", 6]]);
    assert_eq!(run("windowAverage", json!({"window": 5, "granularity": 3, "ops": coarse}))["results"], json!([9.5, 2.5]));
}

#[test]
fn weighted_window_decays_exponentially() {
    let weighted = |window: f64, ops: Value| run("windowAverage", json!({"window": window, "kind": "weighted", "ops": ops}));
    // 1 − 0.0001^(1/5) = 0.8415; with long windows 0.2 at least.
    let short = weighted(5.0, json!([["record", 0, 2], ["avg", 0], ["avg", 1]]));
    let coefficient = short["coefficient"].as_f64().unwrap();
    assert!((coefficient - (1.0 - 0.0001_f64.powf(0.2))).abs() < 1e-12);
    let results: Vec<f64> = short["results"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect();
    assert!((results[0] - 2.0 * coefficient).abs() < 1e-12 && (results[1] - 2.0 * coefficient * (1.0 - coefficient)).abs() < 1e-12);
    assert_eq!(weighted(600.0, json!([]))["coefficient"], json!(0.2));
    let long = weighted(60.0, json!([["record", 0, 1], ["record", 1, 1], ["record", 2, 1], ["avg", 2], ["avg", 63]]));
    assert!((long["results"][0].as_f64().unwrap() - (0.2 + 0.16 + 0.128)).abs() < 1e-12);
    assert_eq!(long["results"][1], json!(0.0));
}

#[test]
fn max_window_returns_largest_of_last_slots() {
    let largest = |values: Value, index: Value| run("maxWindow", json!({"size": 3, "values": values, "index": index}))["results"].clone();
    assert_eq!(largest(json!([1, 5, 2, 2, 2, 3, 1]), Value::Null), json!([1, 5, 5, 5, 2, 3, 3]));
    assert_eq!(largest(json!([9, 4, 3, 2]), json!([0, 1, 2, 5])), json!([9, 9, 9, 2]));
    assert_eq!(largest(json!([5, 3, 7, 6]), json!([4, 4, 4, 4])), json!([5, 5, 7, 7]));
    assert_eq!(largest(json!([5, 3, 1]), json!([0, 2, 3])), json!([5, 5, 3]));
}

#[test]
fn sample_size_activators_and_shares_follow_knative() {
    for (population, sample) in [(-1.0, 0), (0.0, 0), (1.0, 1), (2.5, 3), (3.0, 3), (4.0, 4), (10.0, 7), (100.0, 14), (1e6, 16)] {
        assert_eq!(run("sampleSize", json!({"population": population})), json!({"result": sample}), "{population}");
    }
    let activators = |ready: f64, burst: f64| {
        run("numActivators", json!({"ready": ready, "total": 50, "targetBurstCapacity": burst, "activatorCapacity": 100}))["result"].clone()
    };
    assert_eq!(
        (activators(99.0, 0.0), activators(2.0, -1.0), activators(9.0, -1.0), activators(9.0, 51.0)),
        (json!(2), json!(2), json!(5), json!(6))
    );
    let share = |pods: usize, index: usize| run("pickIndices", json!({"pods": pods, "activators": 4, "index": index}));
    assert_eq!(share(11, 2), json!({"begin": 4, "end": 6, "remnants": 3}));
    assert_eq!(share(3, 3), json!({"begin": 0, "end": 1, "remnants": 0}));
    assert_eq!(share(4, 3), json!({"begin": 3, "end": 4, "remnants": 0}));
    assert_eq!(share(0, 3), json!({"begin": 0, "end": 0, "remnants": 0}));
}

#[test]
fn request_stats_average_concurrency_between_reports() {
    let reports = |ops: Value| run("requestStats", json!({"ops": ops}))["reports"].clone();
    assert_eq!(reports(json!(["r1000"])), json!([[0.0, 0.0, 0.0, 0.0]]));
    assert_eq!(
        reports(json!(["in0", "in200", "out700", "r1000", "out1250", "r2000"])),
        json!([[1.5, 0.0, 2.0, 0.0], [0.25, 0.0, 0.0, 0.0]])
    );
    assert_eq!(reports(json!(["inproxied0", "in500", "outproxied500", "r1000"])), json!([[1.0, 0.5, 2.0, 1.0]]));
    // If time runs backwards, no time is added.
    assert_eq!(reports(json!(["in400", "in300", "out900", "out800", "r1000"])), json!([[1.0, 0.0, 2.0, 0.0]]));
    for wrong in ["in", "go5", "5", "out-3"] {
        assert!(primitive("requestStats", &json!({"ops": [wrong]}).to_string()).is_err(), "{wrong}");
    }
}

#[test]
fn target_resolves_limit_annotation_and_default() {
    let resolved = |line: Value| {
        let got = run("resolveTarget", line);
        (got["target"].as_f64().unwrap(), got["total"].as_f64().unwrap())
    };
    assert_eq!(resolved(json!({})), (70.0, 100.0));
    assert_eq!(resolved(json!({"containerConcurrency": 20, "clusterFraction": 0.5, "clusterDefault": 80})), (10.0, 20.0));
    assert_eq!(resolved(json!({"clusterFraction": 50, "clusterDefault": 80})), (40.0, 80.0));
    assert_eq!(resolved(json!({"containerConcurrency": 20, "targetAnnotation": 30, "utilizationAnnotation": 50})), (10.0, 20.0));
    assert_eq!(resolved(json!({"containerConcurrency": 20, "targetAnnotation": 8, "utilizationAnnotation": 50})), (4.0, 8.0));
    assert_eq!(resolved(json!({"targetAnnotation": 0.01, "utilizationAnnotation": 10})), (0.01, 0.01));
    assert_eq!(resolved(json!({"metric": "rps", "clusterFraction": 0.1})), (140.0, 200.0));
    assert_eq!(
        resolved(json!({"metric": "rps", "containerConcurrency": 5, "targetAnnotation": 60, "utilizationAnnotation": 80})),
        (48.0, 60.0)
    );
}

#[test]
fn primitive_refuses_unknown_names_and_fields() {
    assert!(primitive("sampleSizes", "{}").unwrap_err().to_string().contains("sampleSize,"));
    for name in PRIMITIVES {
        let error = primitive(name, r#"{"nonsense": 1}"#).unwrap_err().to_string();
        assert!(error.contains("nonsense"), "{name}: {error}");
    }
}
