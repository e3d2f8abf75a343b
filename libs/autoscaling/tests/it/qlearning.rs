//! The learner: buckets, masks, delayed updates, guards, and readings that it does not learn from.

use drover_autoscaling::qlearning::{
    BUCKETS, Choice, QLearningObservation, QLearningSpec, QLearningState, QTable, TakenAction, bucket, step,
};
use drover_autoscaling::{Limits, Reading};
use serde_json::{Value, json};

use crate::{decide, decider};

fn seen(pods: i32, cpu: f64, expired: f64, pod_seconds: f64) -> QLearningObservation {
    QLearningObservation {
        at: 0.0,
        pods,
        cpu: Reading::Value(cpu),
        expired: Reading::Value(expired),
        pod_seconds: Reading::Value(pod_seconds),
    }
}

fn greedy(
    spec: &QLearningSpec,
    state: &mut QLearningState,
    seen: &QLearningObservation,
) -> (i32, drover_autoscaling::qlearning::QLearningSteps) {
    step(spec, state, seen, Choice::Neighbour(0.0)).unwrap()
}

fn learner(guards: bool) -> (QLearningSpec, QLearningState) {
    let limits = Limits { min_replicas: 1, max_replicas: 4, ..Limits::default() };
    (QLearningSpec { guards, alpha: 0.5, gamma: 0.5, ..QLearningSpec::default() }, QLearningState::new(&limits))
}

#[test]
fn bucket_is_one_per_tenth_and_one_for_full() {
    for (cpu, at) in [(0.0, 0), (0.0999, 0), (0.1, 1), (0.3, 3), (0.7, 7), (0.999, 9), (0.999_999_5, 10), (1.0, 10), (1.7, 10), (-0.1, 0)] {
        assert_eq!(bucket(cpu), at, "{cpu}");
    }
}

#[test]
fn step_assigns_cost_to_the_previous_action() {
    let (spec, mut state) = learner(false);
    greedy(&spec, &mut state, &seen(2, 0.55, 0.0, 0.0));
    let taken = state.last.unwrap();
    assert_eq!((taken.pods, taken.bucket), (2, 5));
    // Nothing is known of the next state: −(30 + 0.1 · 50) · α
    greedy(&spec, &mut state, &seen(3, 0.4, 50.0, 30.0));
    assert!((state.table.value(2, 5, taken.action) + 17.5).abs() < 1e-12);
    // The best legal action of the next state counts: at 2 pods with CPU 0.55 two actions are untried, 0 is best.
    let second = state.last.unwrap();
    greedy(&spec, &mut state, &seen(2, 0.55, 0.0, 10.0));
    assert!((state.table.value(3, 4, second.action) + 5.0).abs() < 1e-12);
}

#[test]
fn step_ignores_illegal_actions_of_the_next_state() {
    // At one pod, "one fewer" stays at 0 for ever; the maximum must not be that.
    let (spec, mut state) = learner(false);
    let mut last = (1, 0);
    for _ in 0..400 {
        let (want, _) = greedy(&spec, &mut state, &seen(last.0, 0.35, 0.0, 15.0 * f64::from(last.0)));
        last = (want.clamp(1, 4), 0);
    }
    assert_eq!(state.table.value(1, 3, 0), 0.0, "never tried");
    // 15 a period for ever: −15/(1 − 0.5)
    assert!((state.table.value(1, 3, 1) + 30.0).abs() < 1.0, "{}", state.table.value(1, 3, 1));
}

#[test]
fn step_learns_nothing_from_missing_readings() {
    let (spec, mut state) = learner(false);
    greedy(&spec, &mut state, &seen(2, 0.5, 0.0, 0.0));
    let before = state.clone();
    let blind = QLearningObservation { cpu: Reading::Stale { value: 0.1, age: 90.0 }, ..seen(2, 0.5, 1e6, 1e6) };
    assert!(step(&spec, &mut state, &blind, Choice::Neighbour(0.0)).is_none());
    assert_eq!((&state.table, state.last), (&before.table, None));
    // The period after the gap has no previous state.
    greedy(&spec, &mut state, &seen(2, 0.5, 1e6, 1e6));
    assert_eq!(state.table, before.table);
    // Without the cost there is a decision, but nothing is learned.
    let free = QLearningObservation { expired: Reading::Absent("mesh".to_owned()), ..seen(2, 0.5, 0.0, 30.0) };
    let (_, steps) = greedy(&spec, &mut state, &free);
    assert_eq!((steps.cost, &state.table), (None, &before.table));
}

#[test]
fn guards_override_the_table() {
    let mut decider = decider(json!({"policy": "qlearning", "qlearning": {"noise": 0}}));
    let mut at = |pods: i32, cpu: f64| decide(&mut decider, json!({"t": 0, "pods": pods, "cpu": cpu, "expired": 0, "podSeconds": 0}));
    // At full CPU a pod is added even if that is not the best action; at the maximum there is none to add.
    assert_eq!((at(2, 1.0).action, at(4, 1.2).want), (Some(1), Some(4)));
    // 0.5 · 510.2/291.1 = 0.876 > 0.85 never fewer; 0.48 → 0.841 may be.
    for _ in 0..200 {
        assert_ne!(at(2, 0.5).action, Some(-1));
    }
    assert!((0..200).any(|_| at(2, 0.48).action == Some(-1)));
}

#[test]
fn noise_picks_neighbours_and_repeats_per_seed() {
    let actions = |seed: u64, best: i32| {
        let mut table = QTable::new(1, 4);
        let mut values = serde_json::to_value(&table).unwrap();
        // At 2 pods, bucket 5 (the second row): make one action the best.
        let first = (BUCKETS + 5) * 3;
        for action in 0..3 {
            values["values"][first + action] = json!(if action as i32 - 1 == best { 0.0 } else { -100.0 });
        }
        table = serde_json::from_value(values).unwrap();
        let spec = QLearningSpec { guards: false, alpha: 1e-12, seed, ..QLearningSpec::default() };
        let mut state = QLearningState::from_table(table);
        (0..4000)
            .map(|_| {
                state.last = None;
                step(&spec, &mut state, &seen(2, 0.55, 0.0, 0.0), Choice::Neighbour(0.1)).unwrap().1.action
            })
            .collect::<Vec<_>>()
    };
    let share = |actions: &[i32], action: i32| actions.iter().filter(|&&taken| taken == action).count() as f64 / 4000.0;
    let (down, stay, up) = (actions(1, -1), actions(1, 0), actions(1, 1));
    // 10 % over two or three neighbours, including the best action itself: 5 % or 3.3 % each. Five sigma around that.
    assert!((share(&down, 0) - 0.05).abs() < 0.018 && share(&down, 1) == 0.0);
    assert!((share(&stay, -1) - 0.033).abs() < 0.015 && (share(&stay, 1) - 0.033).abs() < 0.015);
    assert!((share(&up, 0) - 0.05).abs() < 0.018 && share(&up, -1) == 0.0);
    assert_eq!(stay, actions(1, 0));
    assert_ne!(stay, actions(2, 0));
}

#[test]
fn table_check_refuses_other_versions_bounds_and_shapes() {
    let table = QTable::new(1, 4);
    assert!(table.check(1, 4).is_ok());
    assert!(table.check(1, 5).is_err() && table.check(2, 4).is_err());
    let broken = |change: fn(&mut Value)| {
        let mut value = serde_json::to_value(&table).unwrap();
        change(&mut value);
        serde_json::from_value::<QTable>(value)
            .map_err(|error| error.to_string())
            .and_then(|table| table.check(1, 4).map_err(|error| error.to_string()))
    };
    assert!(broken(|value| value["version"] = json!(2)).unwrap_err().contains("version"));
    assert!(broken(|value| value["actions"] = json!([-2, 0, 2])).is_err());
    assert!(broken(|value| value["buckets"] = json!(10)).is_err());
    assert!(broken(|value| value["values"] = json!([1.0])).is_err());
    assert!(broken(|value| value["extra"] = json!(1)).is_err());
    assert!(broken(|_| {}).is_ok());
    // A state is the same after writing and reading it.
    let mut state = QLearningState::from_table(table);
    state.last = Some(TakenAction { pods: 2, bucket: 3, action: 1 });
    let again: QLearningState = serde_json::from_str(&serde_json::to_string(&state).unwrap()).unwrap();
    assert_eq!(state, again);
}
