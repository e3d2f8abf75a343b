//! Stabilisation, rates and bounds alone: lines that give `desired` instead of metrics.

use serde_json::{Value, json};

use crate::{decide, decider};

/// (want, stabilised, reason) of one proposal.
fn limited(section: Value, line: Value) -> (i32, i32, String) {
    let decision = decide(&mut decider(json!({"policy": "threshold", "threshold": section})), line);
    (decision.want.unwrap(), decision.steps.stabilized.unwrap(), format!("{:?}", decision.reason))
}

fn rules(kind: &str, value: i32, period: u32) -> Value {
    json!([{"type": kind, "value": value, "periodSeconds": period}])
}

#[test]
fn legacy_rules_limit_and_stabilize() {
    let run = |current: i32, desired: i32, min: i32, max: i32, past: Value| {
        let section = json!({"minReplicas": min, "maxReplicas": max});
        limited(section, json!({"t": 1000, "replicas": current, "desired": desired, "recommendations": past}))
    };
    assert_eq!(run(6, 9, 2, 12, json!([])), (9, 9, "DesiredWithinRange".to_owned()));
    assert_eq!(run(5, 1, 3, 12, json!([])), (3, 1, "TooFewReplicas".to_owned()));
    assert_eq!(run(1, 0, 0, 12, json!([])), (0, 0, "DesiredWithinRange".to_owned()));
    assert_eq!(run(30, 500, 1, 12, json!([])), (12, 500, "TooManyReplicas".to_owned()));
    // Twice as many, or 4 if that is more.
    assert_eq!(run(5, 500, 1, 1000, json!([])), (10, 500, "ScaleUpLimit".to_owned()));
    assert_eq!(run(1, 500, 1, 1000, json!([])), (4, 500, "ScaleUpLimit".to_owned()));
    // The largest proposal of five minutes, including the end of the window.
    assert_eq!(run(8, 2, 1, 12, json!([{"value": 7, "age": 100}, {"value": 5, "age": 10}])).1, 7);
    assert_eq!(run(8, 2, 1, 12, json!([{"value": 7, "age": 300}])).1, 7);
    assert_eq!(run(8, 2, 1, 12, json!([{"value": 7, "age": 301}])).1, 2);
    // Without earlier proposals a line with `desired` starts with none; only decisions on metrics count the first observation.
    let section = json!({"minReplicas": 1, "maxReplicas": 12});
    assert_eq!(limited(section, json!({"t": 0, "replicas": 8, "desired": 2})).0, 2);
}

#[test]
fn first_observation_counts_as_a_proposal_of_current_replicas() {
    let mut decider =
        decider(json!({"policy": "threshold", "threshold": {"minReplicas": 1, "maxReplicas": 12, "metrics": crate::cpu(50)}}));
    let line = |t: i64| {
        let pod = json!({"name": "p", "state": "ready", "usage": {"cpu": 10}, "requests": {"cpu": 1000}});
        json!({"t": t, "replicas": 6, "pods": vec![pod; 6]})
    };
    for t in [0, 15, 300] {
        assert_eq!(decide(&mut decider, line(t)).want, Some(6), "at {t}");
    }
    assert_eq!(decide(&mut decider, line(301)).want, Some(1));
}

#[test]
fn stabilization_windows_hold_both_directions() {
    let run = |up: u32, down: u32, current: i32, desired: i32, past: Value| {
        let behavior = json!({"scaleUp": {"stabilizationWindowSeconds": up}, "scaleDown": {"stabilizationWindowSeconds": down}});
        let section = json!({"minReplicas": 1, "maxReplicas": 1000, "behavior": behavior});
        limited(section, json!({"t": 0, "replicas": current, "desired": desired, "recommendations": past})).1
    };
    let past = json!([{"value": 6, "age": 200}, {"value": 8, "age": 50}]);
    assert_eq!(run(0, 300, 50, 3, past.clone()), 8);
    assert_eq!(run(300, 0, 2, 20, past.clone()), 6);
    assert_eq!(run(100, 0, 2, 20, past.clone()), 8);
    // A proposal in the other direction is limited by that direction's window.
    assert_eq!(run(300, 300, 7, 5, past.clone()), 7);
    assert_eq!(run(300, 300, 7, 20, json!([{"value": 4, "age": 100}])), 7);
    // Only proposals strictly younger than the window count.
    assert_eq!(run(200, 0, 2, 20, past.clone()), 8);
    assert_eq!(run(201, 0, 2, 20, past), 6);
}

#[test]
fn rates_count_earlier_changes_of_both_directions() {
    let run = |direction: &str, policies: Value, select: &str, current: i32, desired: i32, ups: Value, downs: Value| {
        let behavior = json!({direction: {"stabilizationWindowSeconds": 0, "selectPolicy": select, "policies": policies}});
        let section = json!({"minReplicas": 2, "maxReplicas": 900, "behavior": behavior, "downscaleStabilization": 0});
        let line = json!({"t": 0, "replicas": current, "desired": desired, "recommendations": [], "scaleUps": ups, "scaleDowns": downs});
        let (want, _, reason) = limited(section, line);
        (want, reason)
    };
    let up = |policies: Value, select: &str, ups: Value, downs: Value| run("scaleUp", policies, select, 40, 800, ups, downs).0;
    let none = || json!([]);
    assert_eq!(up(rules("Pods", 7, 60), "Max", none(), none()), 47);
    assert_eq!(up(rules("Percent", 30, 60), "Max", none(), none()), 52);
    assert_eq!(up(rules("Percent", 1, 60), "Max", none(), none()), 41);
    let two = || json!([{"type": "Pods", "value": 7, "periodSeconds": 60}, {"type": "Percent", "value": 50, "periodSeconds": 60}]);
    assert_eq!((up(two(), "Max", none(), none()), up(two(), "Min", none(), none()), up(two(), "Disabled", none(), none())), (60, 47, 40));
    // 40 − 5 + 3 a minute ago; changes outside of the period do not count.
    let (ups, downs) =
        (json!([{"change": 5, "age": 30}, {"change": 9, "age": 61}]), json!([{"change": 3, "age": 10}, {"change": 9, "age": 60}]));
    assert_eq!(up(rules("Pods", 10, 60), "Max", ups.clone(), downs.clone()), 48);
    assert_eq!(up(rules("Percent", 100, 60), "Max", ups, downs), 76);
    // More was added than is allowed: no change, but no scale-down either.
    assert_eq!(up(rules("Pods", 2, 60), "Max", json!([{"change": 20, "age": 5}]), none()), 40);

    let down = |policies: Value, select: &str, ups: Value, downs: Value| run("scaleDown", policies, select, 40, 1, ups, downs);
    assert_eq!(down(rules("Pods", 7, 60), "Max", none(), none()), (33, "ScaleDownLimit".to_owned()));
    assert_eq!(down(rules("Percent", 33, 60), "Max", none(), none()).0, 26);
    assert_eq!(
        (down(two(), "Max", none(), none()).0, down(two(), "Min", none(), none()).0, down(two(), "Disabled", none(), none()).0),
        (20, 33, 40)
    );
    assert_eq!(down(rules("Pods", 12, 60), "Max", json!([{"change": 2, "age": 5}]), json!([{"change": 8, "age": 5}])).0, 34);
    assert_eq!(down(rules("Pods", 2, 60), "Max", none(), json!([{"change": 20, "age": 5}])).0, 40);
    assert_eq!(down(rules("Percent", 400, 60), "Max", none(), none()), (2, "TooFewReplicas".to_owned()));
    assert_eq!(run("scaleUp", rules("Pods", 899, 60), "Max", 40, 950, none(), none()), (900, "TooManyReplicas".to_owned()));
}

#[test]
fn empty_behavior_uses_default_rates() {
    let run = |current: i32, desired: i32| {
        limited(
            json!({"minReplicas": 1, "maxReplicas": 900, "behavior": {}}),
            json!({"t": 0, "replicas": current, "desired": desired, "recommendations": []}),
        )
    };
    assert_eq!(run(2, 50), (6, 50, "ScaleUpLimit".to_owned()));
    assert_eq!(run(30, 500), (60, 500, "ScaleUpLimit".to_owned()));
    assert_eq!(run(30, 3), (3, 3, "DesiredWithinRange".to_owned()));
}

#[test]
fn decisions_count_towards_the_rates() {
    let behavior = json!({"scaleUp": {"policies": rules("Pods", 4, 60)}});
    let mut decider = decider(json!({"policy": "threshold", "threshold": {"minReplicas": 1, "maxReplicas": 900, "behavior": behavior}}));
    let mut replicas = 10;
    let mut wants = Vec::new();
    for t in (0..=120).step_by(15) {
        replicas = decide(&mut decider, json!({"t": t, "replicas": replicas, "desired": 100})).want.unwrap();
        wants.push(replicas);
    }
    assert_eq!(wants, [14, 14, 14, 14, 18, 18, 18, 18, 22]);
}
