//! Replicas by metrics: the formulas of the Kubernetes HPA, with a case for each edge.

use serde_json::{Value, json};

use crate::{cpu, decide, decider, threshold};

/// Pods with these states and CPU usages (below 0: missing); each requests 1,000.
fn pods(states: &[(&str, i64)]) -> Value {
    let pod = |(index, (state, usage)): (usize, &(&str, i64))| {
        let usage = if *usage < 0 { json!({}) } else { json!({"cpu": usage}) };
        json!({"name": format!("p{index}"), "state": state, "usage": usage, "requests": {"cpu": 1000}})
    };
    states.iter().enumerate().map(pod).collect()
}

/// (proposal, utilisation) by CPU, with as many replicas as `replicas`.
fn by_cpu(target: i32, replicas: i32, states: &[(&str, i64)]) -> (Option<i32>, Option<i64>) {
    let decision = threshold(cpu(target), json!({"t": 0, "replicas": replicas, "pods": pods(states), "recommendations": []}));
    let step = &decision.steps.metrics.unwrap()[0];
    (step.proposal, step.utilization)
}

#[test]
fn utilization_scales_by_cpu_of_ready_pods() {
    // 600/3 of 1000 each = 60 %; 60/40 · 3 = 4.5 → 5
    assert_eq!(by_cpu(40, 3, &[("ready", 500), ("ready", 600), ("ready", 700)]), (Some(5), Some(60)));
    // 20 %; 20/50 · 4 = 1.6 → 2
    assert_eq!(by_cpu(50, 4, &[("ready", 100), ("ready", 200), ("ready", 300), ("ready", 200)]), (Some(2), Some(20)));
    // The percentage is cut, not rounded: 2006 / 3000 = 66.8 → 66 = the target.
    assert_eq!(by_cpu(66, 3, &[("ready", 668), ("ready", 669), ("ready", 669)]), (Some(3), Some(66)));
}

#[test]
fn utilization_within_tolerance_keeps_replicas() {
    for usage in [90, 110] {
        assert_eq!(by_cpu(100, 2, &[("ready", usage * 10), ("ready", usage * 10)]).0, Some(2), "{usage} %");
    }
    assert_eq!(by_cpu(100, 20, &[("ready", 890); 20]).0, Some(18));
    assert_eq!(by_cpu(100, 20, &[("ready", 1110); 20]).0, Some(23));
}

#[test]
fn missing_pods_count_as_full_scaling_down_and_idle_scaling_up() {
    // 20/50: shrink. The missing one counts as 100 %: (200+200+1000)/3 = 46 % → 46/50 within tolerance → stay.
    assert_eq!(by_cpu(50, 3, &[("ready", 200), ("ready", 200), ("ready", -1)]), (Some(3), Some(20)));
    // 90/50: grow. The missing one counts as 0: 1800/3000 = 60 %; 60/50 · 3 = 3.6 → 4
    assert_eq!(by_cpu(50, 3, &[("ready", 900), ("ready", 900), ("ready", -1)]), (Some(4), Some(90)));
    // A target above 100 % is what a missing pod is full at: (1000+1500)/2000 = 125 of 150 → 0.83 · 2 = 1.67 → 2
    assert_eq!(by_cpu(150, 2, &[("ready", 1000), ("ready", -1)]), (Some(2), Some(100)));
    // The correction would reverse the direction: 40/30 up alone, 800/4000 = 20 % with two missing → stay.
    assert_eq!(by_cpu(30, 4, &[("ready", 400), ("ready", 400), ("ready", -1), ("ready", -1)]), (Some(4), Some(40)));
    // Exactly on the target, missing pods are not counted.
    assert_eq!(by_cpu(50, 2, &[("ready", 500), ("ready", -1)]), (Some(2), Some(50)));
}

#[test]
fn unready_pods_count_as_idle_scaling_up_and_not_at_all_scaling_down() {
    // 60 % alone; 120/200 with the unready one → 1200/3000 = 40 %; 40/30 · 3 = 4
    assert_eq!(by_cpu(30, 3, &[("unready", 300), ("ready", 500), ("ready", 700)]), (Some(4), Some(60)));
    assert_eq!(by_cpu(30, 3, &[("pending", -1), ("ready", 500), ("ready", 700)]), (Some(4), Some(60)));
    // Shrinking: only the three ready ones: 30/50 · 3 = 1.8 → 2
    assert_eq!(by_cpu(50, 5, &[("ready", 100), ("ready", 300), ("ready", 500), ("unready", 250), ("pending", -1)]), (Some(2), Some(30)));
    // Failed and deleting pods are not counted, whatever they use: 60/30 · 2 = 4
    assert_eq!(by_cpu(30, 2, &[("ready", 500), ("ready", 700), ("failed", 9000), ("deleting", 9000)]), (Some(4), Some(60)));
    // Missing and unready at once: 1000/4000 = 25 %; 25/20 · 4 = 5
    assert_eq!(by_cpu(20, 4, &[("ready", 500), ("ready", 500), ("unready", 100), ("ready", -1)]), (Some(5), Some(50)));
}

#[test]
fn surplus_pods_do_not_reverse_the_direction() {
    // During a rolling update: 6 pods for 4 replicas, 80 % of 100 → ceil(0.8 · 6) = 5 with one missing would be more than 4.
    let states = [("ready", 500), ("ready", 500), ("ready", 500), ("ready", 500), ("ready", 500), ("ready", -1)];
    // 50 → (2500 + 1000)/6000 = 58 %; 0.58 · 6 = 3.48 → 4 = current.
    assert_eq!(by_cpu(100, 4, &states).0, Some(4));
    // 70 → (3500 + 1000)/6000 = 75 %; 0.75 · 6 = 4.5 → 5 contradicts shrinking → 4.
    assert_eq!(by_cpu(100, 4, &states.map(|(state, usage)| (state, if usage < 0 { usage } else { 700 }))).0, Some(4));
}

#[test]
fn starting_pod_counts_after_it_is_ready_for_a_metric_window() {
    let at = |start: i64, ready: &str, transition: i64, time: i64| {
        json!({"name": "x", "phase": "Running", "readyCondition": ready, "startTime": start, "readyTransition": transition,
            "metricTime": time, "metricWindow": 60, "usage": {"cpu": 900}, "requests": {"cpu": 1000}})
    };
    let utilization = |pod: Value| {
        let calm = json!({"name": "calm", "state": "ready", "usage": {"cpu": 100}, "requests": {"cpu": 1000}});
        let line = json!({"t": 1000, "replicas": 2, "pods": [calm, pod], "recommendations": []});
        threshold(cpu(100), line).steps.metrics.unwrap()[0].utilization
    };
    // Within 120 s of its start: ready, and a whole window measured since then.
    assert_eq!(utilization(at(930, "True", 935, 1000)), Some(50));
    assert_eq!(utilization(at(930, "True", 945, 1000)), Some(10));
    assert_eq!(utilization(at(930, "False", 935, 1000)), Some(10));
    // After that: only a pod that has never been ready is left out, one that lost its readiness later counts.
    assert_eq!(utilization(at(800, "False", 805, 1000)), Some(10));
    assert_eq!(utilization(at(800, "False", 850, 1000)), Some(50));
    assert_eq!(utilization(at(800, "Unknown", 805, 1000)), Some(50));
    // Without the condition, or without a start: not ready.
    let mut bare = at(800, "True", 805, 1000);
    bare.as_object_mut().unwrap().remove("readyCondition");
    assert_eq!(utilization(bare), Some(10));
    let mut unborn = at(800, "True", 805, 1000);
    unborn.as_object_mut().unwrap().remove("startTime");
    assert_eq!(utilization(unborn), Some(10));
}

#[test]
fn average_value_scales_by_mean_over_pods() {
    let metric = json!([{"type": "Pods", "pods": {"metric": {"name": "qps"}, "target": {"type": "AverageValue", "averageValue": "12"}}}]);
    let pod = |state: &str, value: Option<i64>| json!({"name": "p", "state": state, "metrics": value.map_or(json!({}), |value| json!({"qps": value}))});
    let run = |replicas: i32, pods: Vec<Value>| {
        let decision = threshold(metric.clone(), json!({"t": 0, "replicas": replicas, "pods": pods, "recommendations": []}));
        let step = decision.steps.metrics.unwrap()[0].clone();
        (step.proposal, step.utilization)
    };
    // (20+10+25)/3 = 18.333 → 18333; 18.333/12 · 3 = 4.58 → 5. Readiness does not count here.
    assert_eq!(run(3, vec![pod("ready", Some(20_000)), pod("unready", Some(10_000)), pod("ready", Some(25_000))]), (Some(5), Some(18_333)));
    // Shrinking, a missing one counts as the target: (6+12)/2 = 9 → 0.75 · 2 = 1.5 → 2
    assert_eq!(run(2, vec![pod("ready", Some(6_000)), pod("ready", None)]), (Some(2), Some(6_000)));
    // Growing, it counts as nothing: 30/2 = 15 → 1.25 · 2 = 2.5 → 3
    assert_eq!(run(2, vec![pod("ready", Some(30_000)), pod("ready", None)]), (Some(3), Some(30_000)));
    // A resource by its average value, CPU with readiness: 400 of 250 alone, (400+0)/2 = 200 reverses the direction → stay
    let resource = json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "250m"}}}]);
    let decision =
        threshold(resource, json!({"t": 0, "replicas": 2, "pods": pods(&[("ready", 400), ("unready", 999)]), "recommendations": []}));
    assert_eq!(decision.steps.metrics.unwrap()[0].proposal, Some(2));
}

#[test]
fn container_resource_uses_only_the_named_container() {
    let metric = json!([{"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "app", "target": {"type": "Utilization", "averageUtilization": 50}}}]);
    let pod = |app: i64| {
        json!({"name": "p", "state": "ready", "usage": {"cpu": app + 3000}, "requests": {"cpu": 4000},
            "containers": {"app": {"usage": {"cpu": app}, "requests": {"cpu": 1000}}}})
    };
    let decision = threshold(metric, json!({"t": 0, "replicas": 2, "pods": [pod(900), pod(700)], "recommendations": []}));
    let step = &decision.steps.metrics.unwrap()[0];
    assert_eq!((step.utilization, step.proposal), (Some(80), Some(4)));
}

#[test]
fn container_resource_of_a_container_that_pods_lack_decides_nothing() {
    let metric = json!([{"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "nope", "target": {"type": "Utilization", "averageUtilization": 50}}}]);
    let pod = json!({"name": "p", "state": "ready", "usage": {"cpu": 9000}, "requests": {"cpu": 1000}});
    let decision = threshold(metric, json!({"t": 0, "replicas": 2, "pods": [pod], "recommendations": []}));
    let step = &decision.steps.metrics.unwrap()[0];
    assert_eq!(step.proposal, None);
    assert!(step.error.is_some());
}

#[test]
fn object_and_external_metrics_scale_by_value_or_average() {
    let object = |target: Value| json!([{"type": "Object", "object": {"metric": {"name": "rate"}, "describedObject": {"kind": "Ingress", "name": "front"}, "target": target}}]);
    let external = |target: Value| json!([{"type": "External", "external": {"metric": {"name": "rate", "selector": {"matchLabels": {"q": "a"}}}, "target": target}}]);
    let run = |metrics: Value, replicas: i32, status: i32, value: i64, states: &[(&str, i64)]| {
        let line = json!({"t": 0, "replicas": replicas, "statusReplicas": status, "pods": pods(states), "external": {"rate": value}, "recommendations": []});
        threshold(metrics, line).steps.metrics.unwrap()[0].proposal
    };
    let ready = [("ready", 1); 3];
    for kind in [&object as &dyn Fn(Value) -> Value, &external] {
        let whole = || kind(json!({"type": "Value", "value": "10"}));
        let each = || kind(json!({"type": "AverageValue", "averageValue": "4"}));
        // The whole: 25/10 · 3 ready = 7.5 → 8; only ready running pods count.
        assert_eq!(run(whole(), 3, 3, 25_000, &ready), Some(8));
        assert_eq!(run(whole(), 3, 3, 25_000, &[("ready", 1), ("unready", 1), ("pending", -1)]), Some(3));
        assert_eq!(run(whole(), 3, 3, 10_900, &ready), Some(3));
        // From zero: no tolerance, no pods needed.
        assert_eq!(run(whole(), 0, 0, 10_500, &[]), Some(2));
        assert_eq!(run(whole(), 0, 0, 0, &[]), Some(0));
        // Per pod: 18/4 = 4.5 → 5, unless 18/(4 · 4) is within the tolerance.
        assert_eq!(run(each(), 3, 3, 18_000, &ready), Some(5));
        assert_eq!(run(each(), 4, 4, 17_000, &ready), Some(4));
        // Replicas that exist count, not those asked for.
        assert_eq!(run(each(), 3, 6, 18_000, &ready), Some(5));
    }
}

#[test]
fn unreadable_metric_never_scales_down() {
    let both = |value: Option<i64>, usage: i64| {
        let metrics = json!([cpu(50)[0], {"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "100"}}}]);
        let line =
            json!({"t": 0, "replicas": 4, "pods": pods(&[("ready", usage); 4]), "external": {"queue": value}, "recommendations": []});
        let decision = threshold(metrics, line);
        (decision.want.unwrap(), format!("{:?}", decision.reason))
    };
    // Scaling up on the readings there are is allowed, scaling down is not.
    assert_eq!(both(None, 900), (8, "DesiredWithinRange".to_owned()));
    assert_eq!(both(None, 100), (4, "FailedGetExternalMetric".to_owned()));
    assert_eq!(both(Some(1_000), 100), (1, "DesiredWithinRange".to_owned()));
    let failed = |metrics: Value, line: Value| {
        let decision = threshold(metrics, line);
        (decision.want.unwrap(), format!("{:?}", decision.reason))
    };
    let none = json!({"t": 0, "replicas": 3, "pods": pods(&[("ready", -1); 3])});
    assert_eq!(failed(cpu(50), none), (3, "FailedGetResourceMetric".to_owned()));
    assert_eq!(failed(cpu(50), json!({"t": 0, "replicas": 3, "pods": null})).0, 3);
    assert_eq!(failed(cpu(50), json!({"t": 0, "replicas": 3, "pods": []})).0, 3);
    let unasked = json!([{"name": "a", "state": "ready", "usage": {"cpu": 9000}}, {"name": "b", "state": "ready", "usage": {"cpu": 1}, "requests": {"cpu": 1}}]);
    assert_eq!(failed(cpu(50), json!({"t": 0, "replicas": 2, "pods": unasked})).0, 2);
    let idle = json!([{"name": "a", "state": "ready", "usage": {"cpu": 5}, "requests": {"cpu": 0}}]);
    assert_eq!(failed(cpu(50), json!({"t": 0, "replicas": 1, "pods": idle})).0, 1);
    let unknown = json!([{"type": "Moonlight"}, cpu(50)[0]]);
    let growing = json!({"t": 0, "replicas": 2, "pods": pods(&[("ready", 900); 2])});
    assert_eq!(failed(unknown.clone(), growing), (4, "DesiredWithinRange".to_owned()));
    let shrinking = json!({"t": 0, "replicas": 4, "pods": pods(&[("ready", 100); 4]), "recommendations": []});
    assert_eq!(failed(unknown, shrinking), (4, "InvalidMetricSourceType".to_owned()));
}

#[test]
fn bounds_apply_before_metrics_and_zero_replicas_disable_scaling() {
    let run = |replicas: i32, min: i32| {
        let section = json!({"minReplicas": min, "maxReplicas": 5, "metrics": cpu(50)});
        let decision =
            decide(&mut decider(json!({"policy": "threshold", "threshold": section})), json!({"t": 0, "replicas": replicas, "pods": null}));
        (decision.want.unwrap(), format!("{:?}", decision.reason))
    };
    assert_eq!(run(9, 2), (5, "TooManyReplicas".to_owned()));
    assert_eq!(run(1, 2), (2, "TooFewReplicas".to_owned()));
    assert_eq!(run(0, 2), (0, "ScalingDisabled".to_owned()));
    assert_eq!(run(0, 0), (0, "FailedGetResourceMetric".to_owned()));
}

#[test]
fn tolerance_applies_per_direction() {
    let run = |usage: i64, behavior: Value| {
        let section = json!({"minReplicas": 1, "maxReplicas": 100, "metrics": cpu(100), "behavior": behavior, "downscaleStabilization": 0});
        let line = json!({"t": 0, "replicas": 10, "pods": pods(&[("ready", usage); 10]), "recommendations": []});
        decide(&mut decider(json!({"policy": "threshold", "threshold": section})), line).want.unwrap()
    };
    let careful = json!({"scaleUp": {"tolerance": "0.5"}, "scaleDown": {"tolerance": "50m", "stabilizationWindowSeconds": 0}});
    assert_eq!(run(1_400, careful.clone()), 10);
    assert_eq!(run(1_600, careful.clone()), 16);
    assert_eq!(run(940, careful), 10);
    assert_eq!(run(940, json!({})), 10);
    assert_eq!(run(840, json!({"scaleDown": {"tolerance": 0.2}})), 10);
}
