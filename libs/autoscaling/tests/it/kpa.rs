//! The decisions of Knative's pod autoscaler (KPA), with a case for each edge.

use serde_json::{Value, json};

use crate::{decide, decider, try_decider};

/// A decider with a target of 10 out of 12, no burst capacity, rates of 10, and these options.
fn kpa(options: Value) -> drover_autoscaling::offline::Decider {
    let mut section =
        json!({"resolved": {"target": 10, "total": 12}, "targetBurstCapacity": 0, "maxScaleUpRate": 10, "maxScaleDownRate": 10});
    section.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    decider(json!({"policy": "kpa", "kpa": section}))
}

fn line(t: f64, ready: i32, stable: f64, panic: f64) -> Value {
    json!({"t": t, "ready": ready, "stable": stable, "panic": panic})
}

#[test]
fn rates_limit_relative_to_ready_pods() {
    let want = |options: Value, ready: i32, load: f64| decide(&mut kpa(options), line(0.0, ready, load, 0.0)).want;
    assert_eq!(want(json!({}), 1, 41.0), Some(5));
    assert_eq!(want(json!({}), 1, 999.0), Some(10));
    // No ready pod counts as one.
    assert_eq!(want(json!({"initialReady": 0}), 0, 999.0), Some(10));
    // At least one more pod is always allowed: ceil(1.1 · 2) = 3.
    assert_eq!(want(json!({"maxScaleUpRate": 1.1}), 2, 999.0), Some(3));
    // 3 pods without any load: 3 → 1 → 0, not 3 → 0; unreachable: at once.
    let halves = json!({"maxScaleDownRate": 2, "initialReady": 0});
    assert_eq!((want(halves.clone(), 3, 0.0), want(halves.clone(), 1, 0.0), want(halves, 7, 0.0)), (Some(1), Some(0), Some(3)));
    assert_eq!(want(json!({"maxScaleDownRate": 2, "reachable": false, "initialReady": 0}), 7, 0.0), Some(0));
}

#[test]
fn panic_starts_extends_and_ends() {
    let mut decider = kpa(json!({}));
    // Panic by the unclamped, rounded-up pods of the panic window: 2 for 1.
    let begun = decide(&mut decider, line(0.0, 1, 5.0, 11.0));
    assert_eq!((begun.want, begun.panic, begun.panic_since, begun.max_panic_pods), (Some(2), Some(true), Some(0.0), Some(2)));
    // In panic the number never falls; the stable window may want more than the panic window.
    assert_eq!(decide(&mut decider, line(10.0, 2, 50.0, 10.0)).want, Some(5));
    assert_eq!(decide(&mut decider, line(20.0, 5, 1.0, 1.0)).want, Some(5));
    // The panic is extended while the load is over the threshold, and still holds exactly a stable window after that.
    assert_eq!(decide(&mut decider, line(30.0, 5, 1.0, 100.0)).panic_since, Some(30.0));
    let held = decide(&mut decider, line(90.0, 10, 1.0, 1.0));
    assert_eq!((held.want, held.panic), (Some(10), Some(true)));
    let over = decide(&mut decider, line(90.5, 10, 1.0, 1.0));
    assert_eq!((over.want, over.panic, over.max_panic_pods), (Some(1), Some(false), Some(0)));
}

#[test]
fn restart_with_several_pods_starts_in_panic() {
    for (ready, want) in [(0, 1), (1, 1), (2, 2), (6, 6)] {
        let mut decider = kpa(json!({"initialReady": ready}));
        assert_eq!(decide(&mut decider, line(0.0, ready, 1.0, 1.0)).want, Some(want), "{ready} pods");
    }
    let mut given = kpa(json!({"panic": {"since": -58, "maxPods": 9}}));
    assert_eq!(decide(&mut given, line(2.0, 4, 1.0, 1.0)).want, Some(9));
    assert_eq!(decide(&mut given, line(4.0, 4, 1.0, 1.0)).want, Some(1));
}

#[test]
fn scale_down_waits_for_its_delay() {
    let mut decider = kpa(json!({"scaleDownDelay": 60, "panicThreshold": 100}));
    let mut at = |t: f64, load: f64| decide(&mut decider, line(t, 0, load, load)).want.unwrap();
    assert_eq!(at(2.0, 40.0), 4);
    assert_eq!(at(20.0, 30.0), 4);
    assert_eq!(at(60.0, 0.0), 4);
    assert_eq!(at(62.0, 0.0), 3);
    assert_eq!(at(80.0, 0.0), 0);
    // Within a slot of 2 s the larger value counts; scaling up never waits.
    assert_eq!(at(81.0, 20.0), 2);
    assert_eq!(at(81.5, 10.0), 2);
    let mut none = kpa(json!({"panicThreshold": 100}));
    assert_eq!(decide(&mut none, line(0.0, 0, 20.0, 0.0)).want, Some(2));
    assert_eq!(decide(&mut none, line(0.5, 0, 10.0, 0.0)).want, Some(1));
    // Unreachable: the delay does not apply.
    let mut gone = kpa(json!({"scaleDownDelay": 60, "panicThreshold": 100}));
    decide(&mut gone, line(0.0, 0, 40.0, 40.0));
    let mut away = line(2.0, 0, 0.0, 0.0);
    away["reachable"] = json!(false);
    assert_eq!(decide(&mut gone, away).want, Some(0));
}

#[test]
fn activation_scale_raises_the_first_step() {
    let want = |stable: f64, panic: f64| decide(&mut kpa(json!({"activationScale": 3})), line(0.0, 1, stable, panic)).want;
    assert_eq!((want(0.0, 0.0), want(1.0, 0.0), want(55.0, 0.0)), (Some(0), Some(3), Some(6)));
}

#[test]
fn excess_burst_capacity_counts_ready_pods_and_load() {
    let room = |target: f64, ready: i32, panic: f64| {
        decide(&mut kpa(json!({"targetBurstCapacity": target, "initialReady": 0})), line(0.0, ready, 1.0, panic)).excess_burst_capacity
    };
    assert_eq!((room(0.0, 9, 5.0), room(-1.0, 9, 5.0)), (Some(0), Some(-1)));
    // 5 · 12 − 30 − 7.5 = 22.5 → 22; towards minus infinity: 12 − 30 − 7.5 = −25.5 → −26. No pods count as none, not as one.
    assert_eq!((room(30.0, 5, 7.5), room(30.0, 1, 7.5), room(30.0, 0, 7.5)), (Some(22), Some(-26), Some(-38)));
}

#[test]
fn missing_readings_decide_nothing_and_keep_the_panic() {
    for broken in [
        json!({"t": 2, "ready": 4}),
        json!({"t": 2, "ready": null, "stable": 1, "panic": 1}),
        json!({"t": 2, "ready": 4, "stable": null, "panic": 0}),
    ] {
        let mut decider = kpa(json!({"initialReady": 4}));
        let before = decide(&mut decider, line(0.0, 4, 40.0, 40.0));
        let none = decide(&mut decider, broken.clone());
        assert_eq!((none.want, none.panic, format!("{:?}", none.reason)), (None, None, "NoData".to_owned()), "{broken}");
        // The panic continues unchanged.
        let after = decide(&mut decider, line(4.0, 4, 0.0, 0.0));
        assert_eq!((after.want, after.panic_since), (before.want, before.panic_since));
    }
}

#[test]
fn samples_are_averaged_and_silence_is_no_data() {
    let mut decider = decider(
        json!({"policy": "kpa", "kpa": {"resolved": {"target": 10, "total": 12}, "stableWindow": 60, "panicWindowPercentage": 10}}),
    );
    let samples: Vec<Value> = (0..60).map(|t| json!({"t": t, "value": if t < 54 { 20 } else { 80 }})).collect();
    // stable (54 · 20 + 6 · 80)/60 = 26, panic 80
    let seen = decide(&mut decider, json!({"t": 59, "ready": 3, "samples": samples}));
    assert_eq!((seen.steps.raw_stable, seen.steps.raw_panic), (Some(3), Some(8)));
    // Nothing for longer than the stable window: no data, not no load.
    assert_eq!(decide(&mut decider, json!({"t": 119, "ready": 3, "samples": []})).steps.raw_stable, Some(0));
    assert_eq!(decide(&mut decider, json!({"t": 120, "ready": 3, "samples": []})).want, None);
    // Without a limit on bursts only the activator reports, so no sample means no load.
    let mut unlimited = crate::decider(json!({"policy": "kpa", "kpa": {"targetBurstCapacity": -1}}));
    assert_eq!(decide(&mut unlimited, json!({"t": 500, "ready": 1, "samples": []})).want, Some(0));
}

#[test]
fn config_refuses_unknown_fields_and_values_out_of_range() {
    for (section, word) in [
        (json!({"targetUtilisation": 0.7}), "unknown field `targetUtilisation`"),
        (json!({"maxScaleUpRate": 1}), "maxScaleUpRate"),
        (json!({"stableWindow": 5}), "stableWindow"),
        (json!({"stableWindow": 6.5}), "stableWindow"),
        (json!({"targetBurstCapacity": -2}), "targetBurstCapacity"),
        (json!({"panicWindowPercentage": 0}), "panicWindowPercentage"),
        (json!({"metric": "latency"}), "latency"),
    ] {
        let error = try_decider(json!({"policy": "kpa", "kpa": section})).err().unwrap();
        assert!(error.contains(word), "{error}");
    }
    assert!(try_decider(json!({"policy": "kpa", "threshold": {}})).is_err());
    assert!(try_decider(json!({"policy": "kpa", "extra": 1})).is_err());
    assert!(decider(json!({"policy": "kpa"})).line(r#"{"t": 0, "ready": 1, "stabel": 3}"#).is_err());
}
