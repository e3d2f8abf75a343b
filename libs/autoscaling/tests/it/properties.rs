//! Properties that hold for every input: bounds, monotone in load, no decision on missing data, repeatable.

use std::collections::BTreeMap;

use drover_autoscaling::kpa::{KpaObservation, KpaSpec};
use drover_autoscaling::qlearning::{QLearningObservation, QLearningSpec};
use drover_autoscaling::threshold::{MetricSpec, Pod, ReadyCondition, ThresholdObservation, ThresholdSpec};
use drover_autoscaling::{Behavior, Limits, Observation, Pause, Policy, Reading, ScalingState, decide};
use proptest::prelude::*;

fn limits() -> impl Strategy<Value = Limits> {
    let behavior = prop::option::of(prop::sample::select(vec![
        Behavior::default(),
        serde_json::from_str(r#"{"scaleUp":{"stabilizationWindowSeconds":30,"selectPolicy":"Min","policies":[{"type":"Pods","value":2,"periodSeconds":30},{"type":"Percent","value":50,"periodSeconds":60}]}}"#).unwrap(),
        serde_json::from_str(r#"{"scaleDown":{"stabilizationWindowSeconds":0,"policies":[{"type":"Percent","value":10,"periodSeconds":15}]}}"#).unwrap(),
        serde_json::from_str(r#"{"scaleDown":{"selectPolicy":"Disabled"}}"#).unwrap(),
    ]));
    (1..20_i32, 0..40_i32, behavior).prop_map(|(min, more, behavior)| Limits {
        min_replicas: min,
        max_replicas: min + more,
        behavior,
        ..Limits::default()
    })
}

fn pods(usages: &[Option<i64>]) -> Reading<Vec<Pod>> {
    let pod = |(index, usage): (usize, &Option<i64>)| Pod {
        name: format!("p{index}"),
        ready: Some(ReadyCondition { status: Some(true), since: Some(-1e6) }),
        start_time: Some(-1e6),
        usage: usage.iter().map(|usage| ("cpu".to_owned(), *usage)).collect(),
        requests: BTreeMap::from([("cpu".to_owned(), 1_000)]),
        ..Pod::default()
    };
    Reading::Value(usages.iter().enumerate().map(pod).collect())
}

fn look(at: f64, replicas: i32, pods: Reading<Vec<Pod>>) -> Observation {
    Observation::Threshold(ThresholdObservation { at, replicas, status_replicas: None, pods, external: BTreeMap::new() })
}

fn hpa(target: i32) -> Policy {
    Policy::Threshold(ThresholdSpec { metrics: vec![MetricSpec::cpu(target)], ..ThresholdSpec::default() })
}

/// One decision of a policy that has never seen the workload.
fn once(policy: &Policy, limits: &Limits, observation: &Observation, ready: i32) -> Option<i32> {
    decide(policy, limits, ScalingState::new(policy, limits, observation.at(), ready), observation).0.want
}

proptest! {
    /// For any sequence of observations each policy stays within the bounds, and the same sequence gives the same decisions.
    #[test]
    fn decisions_stay_in_bounds_and_repeat(limits in limits(), loads in prop::collection::vec((0.0..3.0_f64, prop::bool::ANY), 1..30), kind in 0..3) {
        let policy = [hpa(60), Policy::Kpa(KpaSpec { target: Some(10.0), ..KpaSpec::default() }), Policy::QLearning(QLearningSpec::default())][kind as usize].clone();
        let run = || {
            let mut replicas = limits.min_replicas;
            let mut state = ScalingState::new(&policy, &limits, 0.0, replicas);
            let mut wants = Vec::new();
            for (index, &(load, readable)) in loads.iter().enumerate() {
                let at = 15.0 * index as f64;
                let read = |value: f64| if readable { Reading::Value(value) } else { Reading::Absent("gone".to_owned()) };
                let observation = match &policy {
                    Policy::Threshold(_) => look(at, replicas, if readable { pods(&vec![Some((load * 1e3) as i64); replicas as usize]) } else { Reading::Absent("gone".to_owned()) }),
                    Policy::Kpa(_) => Observation::Kpa(KpaObservation { at, replicas, ready: Reading::Value(replicas), stable: read(load * 50.0), panic: read(load * 60.0) }),
                    Policy::QLearning(_) => Observation::QLearning(QLearningObservation { at, pods: replicas, cpu: read(load), expired: read(load * 5.0), pod_seconds: read(15.0) }),
                };
                let (record, next) = decide(&policy, &limits, state, &observation);
                // The state is written and read as text, as at a restart.
                state = serde_json::from_str(&serde_json::to_string(&next).unwrap()).unwrap();
                prop_assert!(state.fits(&policy));
                if !readable {
                    prop_assert_eq!(record.want, None);
                    prop_assert!(!record.changes());
                }
                if let Some(want) = record.want {
                    prop_assert!((limits.min_replicas..=limits.max_replicas).contains(&want), "{:?}", record);
                    state.limits.applied(&limits, at, replicas, want);
                    replicas = want;
                }
                wants.push(record.want);
            }
            Ok(wants)
        };
        prop_assert_eq!(run()?, run()?);
    }

    /// More load never proposes fewer pods.
    #[test]
    fn threshold_proposal_is_monotone_in_load(usages in prop::collection::vec(0..2_000_i64, 1..12), more in 0..2_000_i64, target in 10..150_i32, which in 0..12_usize) {
        let limits = Limits { min_replicas: 1, max_replicas: 1_000, ..Limits::default() };
        let replicas = usages.len() as i32;
        let mut higher = usages.clone();
        higher[which % usages.len()] += more;
        let want = |usages: &[i64]| {
            let observation = look(0.0, replicas, pods(&usages.iter().map(|usage| Some(*usage)).collect::<Vec<_>>()));
            let policy = hpa(target);
            let record = decide(&policy, &limits, ScalingState::new(&policy, &limits, 0.0, replicas), &observation).0;
            record.raw.unwrap()
        };
        prop_assert!(want(&usages) <= want(&higher));
    }

    /// The same for KPA, in panic and out of it.
    #[test]
    fn kpa_proposal_is_monotone_in_load(stable in 0.0..5_000.0_f64, panic in 0.0..5_000.0_f64, more in 0.0..5_000.0_f64, ready in 0..50_i32, start in 0..50_i32) {
        let policy = Policy::Kpa(KpaSpec { target: Some(10.0), max_scale_up_rate: 3.0, ..KpaSpec::default() });
        let limits = Limits { min_replicas: 0, max_replicas: 10_000, ..Limits::default() };
        let want = |stable, panic| {
            let seen = KpaObservation { at: 5.0, replicas: ready, ready: Reading::Value(ready), stable: Reading::Value(stable), panic: Reading::Value(panic) };
            once(&policy, &limits, &Observation::Kpa(seen), start).unwrap()
        };
        let base = want(stable, panic);
        prop_assert!(base <= want(stable + more, panic) && base <= want(stable, panic + more));
    }

    /// Pods with unknown usage can only make a change smaller, never reverse it.
    #[test]
    fn missing_pods_never_cause_a_change_in_the_wrong_direction(usages in prop::collection::vec(0..2_000_i64, 2..10), target in 20..150_i32) {
        let limits = Limits { min_replicas: 1, max_replicas: 1_000, ..Limits::default() };
        let replicas = usages.len() as i32;
        let mut some: Vec<_> = usages.iter().map(|usage| Some(*usage)).collect();
        some[0] = None;
        let known: Vec<_> = some.iter().flatten().copied().collect();
        let mean = known.iter().sum::<i64>() as f64 / known.len() as f64 / 10.0;
        let policy = hpa(target);
        let record = decide(&policy, &limits, ScalingState::new(&policy, &limits, 0.0, replicas), &look(0.0, replicas, pods(&some))).0;
        let raw = record.raw.unwrap();
        // Per cent are truncated, so "above" begins a whole per cent above.
        if mean < f64::from(target) {
            prop_assert!(raw <= replicas, "{mean} of {target}: {raw} of {replicas}");
        }
        if mean >= f64::from(target + 1) {
            prop_assert!(raw >= replicas, "{mean} of {target}: {raw} of {replicas}");
        }
    }
}

#[test]
fn stale_and_absent_readings_are_named_and_decide_nothing() {
    let (policy, limits) = (hpa(50), Limits { max_replicas: 20, ..Limits::default() });
    for (pods, word) in
        [(Reading::taken(vec![], 0.0, 61.0, 60.0), "stale"), (Reading::Absent("metrics.k8s.io answered 503".to_owned()), "503")]
    {
        let record = decide(&policy, &limits, ScalingState::new(&policy, &limits, 61.0, 5), &look(61.0, 5, pods)).0;
        assert_eq!(record.want, None);
        assert!(record.message.contains(word), "{}", record.message);
    }
    assert_eq!(Reading::taken(3, 1.0, 61.0, 60.0).fresh(), Some(&3));
}

#[test]
fn pause_and_pin_override_proposals() {
    let busy = look(0.0, 5, pods(&[Some(900); 5]));
    let idle = look(0.0, 5, pods(&[Some(10); 5]));
    let want = |limits: Limits, observation: &Observation| {
        once(&hpa(50), &Limits { max_replicas: 20, downscale_stabilization: 0.0, ..limits }, observation, 5)
    };
    let paused = |pause| Limits { pause: Some(pause), ..Limits::default() };
    assert_eq!(
        (want(paused(Pause::In), &busy), want(paused(Pause::Out), &busy), want(paused(Pause::All), &busy)),
        (Some(9), Some(5), Some(5))
    );
    // The first observation counts as a proposal of five, so only the second one may scale down.
    let policy = hpa(50);
    let shrink = |limits: Limits| {
        let limits = Limits { max_replicas: 20, downscale_stabilization: 0.0, ..limits };
        let state = decide(&policy, &limits, ScalingState::new(&policy, &limits, -30.0, 5), &look(-30.0, 5, pods(&[Some(500); 5]))).1;
        decide(&policy, &limits, state, &idle).0.want
    };
    assert_eq!((shrink(Limits::default()), shrink(paused(Pause::In)), shrink(paused(Pause::Out))), (Some(1), Some(5), Some(1)));
    assert_eq!(want(Limits { pin: Some(7), ..Limits::default() }, &busy), Some(7));
}

#[test]
fn stabilization_window_applies_after_a_restart_of_kpa() {
    let behavior: Behavior = serde_json::from_str(r#"{"scaleDown":{"stabilizationWindowSeconds":60}}"#).unwrap();
    let limits = Limits { min_replicas: 1, max_replicas: 10, behavior: Some(behavior), ..Limits::default() };
    let policy = Policy::Kpa(KpaSpec::default());
    // With one ready pod there is no panic that would keep the replicas.
    let look = |at: f64| {
        let nothing = || Reading::Value(0.0);
        Observation::Kpa(KpaObservation { at, replicas: 6, ready: Reading::Value(1), stable: nothing(), panic: nothing() })
    };
    let (record, state) = decide(&policy, &limits, ScalingState::new(&policy, &limits, 0.0, 1), &look(0.0));
    assert_eq!(record.want, Some(6));
    assert_eq!(decide(&policy, &limits, state, &look(60.0)).0.want, Some(1));
}

#[test]
fn learner_assigns_cost_to_the_action_that_was_carried_out() {
    use drover_autoscaling::PolicyState;
    let policy = Policy::QLearning(QLearningSpec { noise: 0.0, ..QLearningSpec::default() });
    let limits = Limits { min_replicas: 1, max_replicas: 4, pause: Some(Pause::Out), ..Limits::default() };
    let full = QLearningObservation {
        at: 0.0,
        pods: 2,
        cpu: Reading::Value(1.0),
        expired: Reading::Value(0.0),
        pod_seconds: Reading::Value(30.0),
    };
    // The guard adds a pod and the pause forbids it, so the next cost belongs to "no change".
    let (record, state) = decide(&policy, &limits, ScalingState::new(&policy, &limits, 0.0, 2), &Observation::QLearning(full));
    assert_eq!((record.raw, record.want), (Some(3), Some(2)));
    let PolicyState::QLearning(mut memory) = state.policy else { unreachable!("a learner's state") };
    assert_eq!(memory.last.unwrap().action, 1);
    memory.carried_out(4);
    assert_eq!(memory.last, None, "adding two pods is not an action of the table");
}
