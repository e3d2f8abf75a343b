//! The safety rules: what holds for every policy, on any node, whatever the guard remembers.

use std::time::Duration;

use crate::node::{GIB, container, guards, node, observations};
use drover_memguard::{
    Action, Activity, Container, Decision, Denial, Guard, GuardState, Lever, Levers, Moment, NodeMemory, Observation, PaperSettings,
    Permission, PodFacts, Policy, QosClass, Reading, Safety, judge,
};
use proptest::prelude::*;

fn held(activity: Activity) -> bool {
    !matches!(activity, Activity::Running { lease: None })
}

/// Steps the guard twice, so that the second step has something to remember.
fn two_steps(guard: &Guard, first: &Observation, second: &Observation) -> (GuardState, Vec<Decision>) {
    let mut state = GuardState::default();
    guard.step(&mut state, first, Moment(100_000));
    let decisions = guard.step(&mut state, second, Moment(100_250));
    (state, decisions)
}

proptest! {
    #[test]
    fn step_decides_once_per_container_and_holds_only_eligible_ones(
        guard in guards(), first in observations(100_000), second in observations(100_250),
    ) {
        let (_, decisions) = two_steps(&guard, &first, &second);
        for decision in &decisions {
            let Some(id) = decision.action.container() else { continue };
            let container = second.containers.iter().find(|container| container.id == *id).unwrap();
            prop_assert!(container.permission.granted() || decision.action.releases(), "{decision:?}");
            prop_assert_eq!(decisions.iter().filter(|other| other.action.container() == Some(id)).count(), 1);
        }
    }

    #[test]
    fn step_only_releases_when_node_memory_is_missing_or_outdated(guard in guards(), first in observations(100_000), second in observations(90_000)) {
        // The second observation has readings that are ten seconds old.
        let (_, decisions) = two_steps(&guard, &first, &second);
        prop_assert!(decisions.iter().all(|decision| decision.action.releases()), "{decisions:?}");
        let mut unseen = first.clone();
        unseen.node = Reading::Missing;
        let (_, decisions) = two_steps(&guard, &first, &unseen);
        prop_assert!(decisions.iter().all(|decision| decision.action.releases()), "{decisions:?}");
    }

    #[test]
    fn step_never_holds_a_container_whose_reading_is_missing_or_outdated(guard in guards(), first in observations(100_000), mut second in observations(100_250)) {
        let unusable = [Reading::Missing, Reading::seen(GIB, Moment(90_000))];
        for (number, container) in second.containers.iter_mut().enumerate().filter(|(number, _)| number % 3 < 2) {
            container.memory = unusable[number % 3];
        }
        let (_, decisions) = two_steps(&guard, &first, &second);
        for id in decisions.iter().filter(|decision| !decision.action.releases()).filter_map(|decision| decision.action.container()) {
            let container = second.containers.iter().find(|container| container.id == *id).unwrap();
            prop_assert!(!unusable.contains(&container.memory), "{container:?}");
        }
    }

    #[test]
    fn step_never_holds_the_last_runnable_container_and_releases_one_if_all_are_held(guard in guards(), first in observations(100_000), second in observations(100_250)) {
        let (_, decisions) = two_steps(&guard, &first, &second);
        let after = |container: &&Container| {
            let decided = decisions.iter().find(|decision| decision.action.container() == Some(&container.id));
            decided.map_or(!held(container.activity), |decision| decision.action.releases())
        };
        let eligible = || second.containers.iter().filter(|container| container.permission.granted());
        let ran = eligible().filter(|container| !held(container.activity)).count();
        let runs = eligible().filter(after).count();
        prop_assert!(runs >= ran.min(guard.safety.keep_running), "{ran} ran, {runs} run: {decisions:?}");
        // A paused container whose memory is known can be released, so one always runs.
        let could = eligible().any(|container| !matches!(container.activity, Activity::AtGate { .. }) && container.memory != Reading::Missing);
        prop_assert!(!could || runs >= 1 || guard.safety.keep_running == 0, "{decisions:?}");
    }

    #[test]
    fn step_releases_every_container_that_was_held_for_the_longest_time(guard in guards(), mut seen in observations(900_000)) {
        for container in &mut seen.containers {
            match &mut container.activity {
                Activity::Paused { since, .. } | Activity::AtGate { since } => *since = Moment(0),
                Activity::Running { lease: Some(lease) } => lease.since = Moment(0),
                Activity::Running { lease: None } => {}
            }
        }
        let decisions = guard.step(&mut GuardState::default(), &seen, Moment(900_000));
        for container in seen.containers.iter().filter(|container| held(container.activity)) {
            let freed = decisions.iter().find(|decision| decision.action.container() == Some(&container.id));
            prop_assert!(freed.is_some_and(|decision| decision.action.releases()), "{container:?}");
        }
    }

    #[test]
    fn pauses_end_within_the_probe_budget_and_use_a_granted_lever(guard in guards(), first in observations(100_000), second in observations(100_250)) {
        let (_, decisions) = two_steps(&guard, &first, &second);
        for decision in &decisions {
            if let Action::Pause { container, until, lever } = &decision.action {
                let container = second.containers.iter().find(|candidate| candidate.id == *container).unwrap();
                let longest = container.permission.longest(guard.safety.max_pause);
                prop_assert!(*until <= Moment(100_250) + longest && *until > Moment(100_250));
                let levers = container.permission.levers();
                let there = match lever {
                    Lever::Freeze => levers.freeze,
                    Lever::Quota => levers.quota,
                };
                prop_assert!(there);
            }
        }
    }

    #[test]
    fn pauses_never_exceed_a_disruption_budget(guard in guards(), mut second in observations(100_250), allowed in 0_u32..4) {
        for container in &mut second.containers {
            container.budgets = vec!["shop".into()];
        }
        second.budgets.insert("shop".into(), allowed);
        let paused = second.containers.iter().filter(|container| matches!(container.activity, Activity::Paused { .. })).count();
        let (_, decisions) = two_steps(&guard, &second, &second);
        let new = decisions.iter().filter(|decision| matches!(decision.action, Action::Pause { .. })).count();
        let freed = decisions.iter().filter(|decision| matches!(decision.action, Action::Resume { .. })).count();
        prop_assert!(new == 0 || paused - freed + new <= allowed as usize, "{paused} paused, {freed} freed, {new} new, {allowed} allowed");
    }

    #[test]
    fn guard_and_state_round_trip_through_json(guard in guards(), first in observations(100_000), second in observations(100_250)) {
        let (state, decisions) = two_steps(&guard, &first, &second);
        let again: Guard = serde_json::from_str(&serde_json::to_string(&guard).unwrap()).unwrap();
        prop_assert_eq!(&again, &guard);
        let mut remembered: GuardState = serde_json::from_str(&serde_json::to_string(&state).unwrap()).unwrap();
        let mut state = state;
        prop_assert_eq!(guard.step(&mut remembered, &second, Moment(100_500)), guard.step(&mut state, &second, Moment(100_500)));
        let _: Vec<Decision> = serde_json::from_str(&serde_json::to_string(&decisions).unwrap()).unwrap();
    }
}

#[test]
fn step_releases_all_after_node_memory_was_missing_for_long() {
    let guard = Guard { policy: Policy::by_name("bank").unwrap(), safety: Safety::default() };
    let mut state = GuardState::default();
    let mut seen = Observation { node: node(7 * GIB, 8 * GIB, 1000), ..Default::default() };
    let mut paused = container("a", GIB, Some(2 * GIB), 1000);
    paused.activity = Activity::Paused { since: Moment(900), lever: Lever::Freeze };
    seen.containers = vec![paused, container("b", GIB, Some(2 * GIB), 1000)];
    guard.step(&mut state, &seen, Moment(1000));
    seen.node = Reading::Missing;
    assert!(guard.step(&mut state, &seen, Moment(3000)).is_empty(), "a short gap must change nothing");
    let decisions = guard.step(&mut state, &seen, Moment(1000) + guard.safety.blind);
    assert_eq!(decisions.len(), 1);
    assert!(matches!(&decisions[0].action, Action::Resume { container } if container.0.as_ref() == "a"), "{decisions:?}");
}

#[test]
fn a_container_held_for_the_longest_time_is_not_held_again_during_the_cooldown() {
    let guard = Guard { policy: Policy::by_name("bank").unwrap(), safety: Safety::default() };
    let safety = &guard.safety;
    let mut state = GuardState::default();
    let look = |at: u64, activity: Activity| {
        let mut far = container("far", GIB, Some(4 * GIB), at);
        far.activity = activity;
        far.permission = Permission::Granted { levers: Levers { freeze: true, ..Levers::default() }, probe_budget: None };
        // `near` is at its limit, and nothing is left for `far`, which was observed to grow.
        let near = container("near", 3 * GIB, Some(3 * GIB), at);
        Observation { node: node(8 * GIB - 64, 8 * GIB, at), containers: vec![far, near], ..Default::default() }
    };
    let running = Activity::Running { lease: None };
    let pauses = |decisions: &[Decision]| decisions.iter().any(|decision| matches!(decision.action, Action::Pause { .. }));
    let mut grow = look(0, running);
    grow.containers[0].memory = Reading::seen(GIB / 2, Moment(0));
    guard.step(&mut state, &grow, Moment(0));
    assert!(pauses(&guard.step(&mut state, &look(500, running), Moment(500))), "it grows and no memory is left");
    let late = 500 + safety.max_pause.as_millis() as u64;
    let paused = Activity::Paused { since: Moment(500), lever: Lever::Freeze };
    assert!(matches!(guard.step(&mut state, &look(late, paused), Moment(late))[..], [Decision { action: Action::Resume { .. }, .. }]));
    assert!(!pauses(&guard.step(&mut state, &look(late + 500, running), Moment(late + 500))), "it was just released");
    let later = Moment(late) + safety.cooldown + Duration::from_millis(500);
    assert!(pauses(&guard.step(&mut state, &look(later.0, running), later)), "the cooldown is over");
}

#[test]
fn step_releases_a_held_container_that_is_denied() {
    let guard = Guard { policy: Policy::by_name("bank").unwrap(), safety: Safety::default() };
    let mut paused = container("a", GIB, Some(2 * GIB), 1000);
    paused.activity = Activity::Paused { since: Moment(900), lever: Lever::Freeze };
    paused.permission = Permission::Denied { because: Denial::LeaseHolder };
    let seen = Observation { node: node(8 * GIB, 8 * GIB, 1000), containers: vec![paused], ..Default::default() };
    let decisions = guard.step(&mut GuardState::default(), &seen, Moment(1000));
    assert!(matches!(&decisions[..], [only] if matches!(only.action, Action::Resume { .. })), "{decisions:?}");
}

#[test]
fn step_holds_only_one_of_two_containers_that_do_not_fit() {
    let guard = Guard { policy: Policy::by_name("bank").unwrap(), safety: Safety::default() };
    let mut state = GuardState::default();
    let look = |memory: u64, at: u64| Observation {
        node: node(8 * GIB - 64, 8 * GIB, at),
        containers: vec![container("a", memory, Some(8 * GIB), at), container("b", memory, Some(8 * GIB), at)],
        ..Default::default()
    };
    guard.step(&mut state, &look(GIB, 0), Moment(0));
    let decisions = guard.step(&mut state, &look(2 * GIB, 500), Moment(500));
    assert_eq!(decisions.iter().filter(|decision| !decision.action.releases()).count(), 1, "{decisions:?}");
}

#[test]
fn a_governed_sacrifice_takes_the_youngest_once_and_only_when_no_container_fits() {
    use drover_memguard::Sacrifices;
    let paper = PaperSettings { round: Duration::from_secs(1), per_round: 2, ..PaperSettings::default() };
    let sacrifices = Sacrifices::Governed { every: Duration::from_secs(60), per_hour: 10 };
    let guard =
        Guard { policy: Policy::Paper(paper), safety: Safety { sacrifices, keep_running: 0, high_first: false, ..Safety::default() } };
    let look = |memory: u64, at: u64, paused: bool| {
        let one = |id: &str, started: u64| {
            let mut one = container(id, memory, Some(4 * GIB), at);
            one.started = Moment(started);
            if paused {
                one.activity = Activity::Paused { since: Moment(1_000), lever: Lever::Freeze };
            }
            one
        };
        Observation { node: node(8 * GIB - 64, 8 * GIB, at), containers: vec![one("old", 10), one("young", 500)], ..Default::default() }
    };
    let killed = |decisions: &[Decision]| -> Vec<String> {
        let kills = decisions.iter().filter(|decision| matches!(decision.action, Action::Sacrifice { .. }));
        kills.filter_map(|decision| decision.action.container().map(ToString::to_string)).collect()
    };
    for (memory, expected) in [(3 * GIB, vec!["young".to_owned()]), (4 * GIB, vec![])] {
        let mut state = GuardState::default();
        guard.step(&mut state, &look(memory, 1_000, false), Moment(1_000));
        assert_eq!(killed(&guard.step(&mut state, &look(memory, 2_500, true), Moment(2_500))), expected, "{memory}");
        // The paper's rule has dropped them from its list by now: it restricts them again and proposes another sacrifice, too soon.
        guard.step(&mut state, &look(memory, 4_000, true), Moment(4_000));
        assert!(killed(&guard.step(&mut state, &look(memory, 5_500, true), Moment(5_500))).is_empty(), "too soon");
    }
}

/// Most probe failures in a row that a kubelet with the default probe counts for a container that is paused and resumed as memory comes
/// and goes.
fn most_failures_in_a_row(short: &[bool], phase: u64) -> u32 {
    let settings = PaperSettings { upper: 0.5, lower: 0.5, per_round: 9, round: Duration::from_secs(1) };
    let safety = Safety { keep_running: 0, cooldown: Duration::ZERO, high_first: false, ..Safety::default() };
    let guard = Guard { policy: Policy::Paper(settings), safety };
    let facts = PodFacts { namespace: "a".into(), owner_kind: Some("Job".into()), qos: Some(QosClass::Burstable), ..PodFacts::default() };
    let permission = judge(&facts, Levers { freeze: true, ..Levers::default() });
    let (mut state, mut activity) = (GuardState::default(), Activity::Running { lease: None });
    let (mut failures, mut most) = (0, 0);
    for look in 0..short.len() as u64 * 4 {
        let now = Moment(100_000 + look * 500);
        let mut seen = Observation { containers: vec![container("c", 1, Some(GIB), now.0)], ..Observation::default() };
        seen.node = Reading::seen(NodeMemory { used: if short[look as usize / 4] { 3 * GIB } else { GIB }, capacity: 4 * GIB }, now);
        (seen.containers[0].permission, seen.containers[0].activity) = (permission, activity);
        for decision in guard.step(&mut state, &seen, now) {
            match decision.action {
                Action::Pause { lever, .. } => activity = Activity::Paused { since: now, lever },
                Action::Resume { .. } => activity = Activity::Running { lease: None },
                _ => {}
            }
        }
        if (now.0 + phase * 500).is_multiple_of(10_000) {
            failures = if held(activity) { failures + 1 } else { 0 };
            most = most.max(failures);
        }
    }
    most
}

proptest! {
    #[test]
    fn pauses_with_any_interruptions_never_fail_a_probe_three_times(short in prop::collection::vec(prop::bool::weighted(0.8), 100), phase in 0_u64..20) {
        prop_assert!(most_failures_in_a_row(&short, phase) < 3);
    }
}

#[test]
fn uninterrupted_pauses_use_the_whole_probe_budget() {
    assert_eq!(most_failures_in_a_row(&[true; 100], 0), 2, "otherwise the property above proves nothing");
}

/// A real kubelet was seen to count probe failures across restarts of a container.
#[test]
fn probe_silence_before_a_restart_counts_against_the_successor() {
    let guard = Guard { policy: Policy::None, safety: Safety::default() };
    let facts = PodFacts { namespace: "a".into(), owner_kind: Some("Job".into()), qos: Some(QosClass::Burstable), ..PodFacts::default() };
    let permission = judge(&facts, Levers { freeze: true, ..Levers::default() });
    let second = |second: u64| Moment(100_000 + second * 1000);
    let one = |id: &str, activity, at: Moment| {
        let one = container(id, 1, Some(GIB), at.0);
        Container { name: "default/c/main".into(), permission, activity, ..one }
    };
    let running = Activity::Running { lease: None };
    let mut state = GuardState::default();
    let look = |state: &mut GuardState, containers: Vec<Container>, at: Moment| {
        let node = Reading::seen(NodeMemory { used: GIB, capacity: 4 * GIB }, at);
        guard.step(state, &Observation { node, containers, ..Observation::default() }, at);
    };
    // Paused for ten seconds, then killed: its successor may be held for eight more seconds.
    look(&mut state, vec![one("1", running, second(0))], second(0));
    let paused = Activity::Paused { since: second(1), lever: Lever::Freeze };
    look(&mut state, vec![one("1", paused, second(1))], second(1));
    look(&mut state, vec![one("1", paused, second(11))], second(11));
    look(&mut state, Vec::new(), second(12));
    assert_eq!(guard.hold_until(&state, &one("2", running, second(12)), second(12)), second(19));
    // It runs until a probe was answered, so only its own death counts against the third container.
    for at in 12..=24 {
        look(&mut state, vec![one("2", running, second(at))], second(at));
    }
    assert_eq!(guard.hold_until(&state, &one("2", running, second(24)), second(24)), second(42));
    assert_eq!(guard.hold_until(&state, &one("3", running, second(30)), second(30)), second(42));
}
