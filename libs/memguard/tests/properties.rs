//! What holds for every policy, on any node, whatever was remembered: the safety rules.

#![allow(clippy::unwrap_used, reason = "a test says what is wrong by failing")]

mod world;

use std::time::Duration;

use drover_memguard::{
    Action, Activity, Container, Denial, Facts, Guard, Lever, Levers, Moment, NodeMemory, Observation, PaperSettings, Permission, Policy,
    Qos, Reading, Safety, State, judge,
};
use proptest::prelude::*;
use world::{GIB, container, guards, node, observations};

fn held(activity: Activity) -> bool {
    !matches!(activity, Activity::Running { lease: None })
}

/// Steps the guard twice, so that it has something to remember.
fn two_steps(
    guard: &Guard,
    first: &drover_memguard::Observation,
    second: &drover_memguard::Observation,
) -> (State, Vec<drover_memguard::Decision>) {
    let mut state = State::default();
    guard.step(&mut state, first, Moment(100_000));
    let decisions = guard.step(&mut state, second, Moment(100_250));
    (state, decisions)
}

proptest! {
    #[test]
    fn only_who_may_be_touched_is_touched_once_and_only_releases_touch_others(
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
    fn nobody_is_held_on_missing_or_old_data(guard in guards(), first in observations(100_000), second in observations(90_000)) {
        // The second look shows readings that are ten seconds old.
        let (_, decisions) = two_steps(&guard, &first, &second);
        prop_assert!(decisions.iter().all(|decision| decision.action.releases()), "{decisions:?}");
        let mut unseen = first.clone();
        unseen.node = Reading::Missing;
        let (_, decisions) = two_steps(&guard, &first, &unseen);
        prop_assert!(decisions.iter().all(|decision| decision.action.releases()), "{decisions:?}");
    }

    #[test]
    fn who_cannot_be_seen_is_not_held(guard in guards(), first in observations(100_000), mut second in observations(100_250)) {
        for container in second.containers.iter_mut().step_by(2) {
            container.memory = Reading::Missing;
        }
        let (_, decisions) = two_steps(&guard, &first, &second);
        for id in decisions.iter().filter(|decision| !decision.action.releases()).filter_map(|decision| decision.action.container()) {
            let container = second.containers.iter().find(|container| container.id == *id).unwrap();
            prop_assert!(container.memory != Reading::Missing);
        }
    }

    #[test]
    fn the_last_who_runs_is_never_held_and_of_all_held_one_goes_on(guard in guards(), first in observations(100_000), second in observations(100_250)) {
        let (_, decisions) = two_steps(&guard, &first, &second);
        let after = |container: &&drover_memguard::Container| {
            let decided = decisions.iter().find(|decision| decision.action.container() == Some(&container.id));
            decided.map_or(!held(container.activity), |decision| decision.action.releases())
        };
        let eligible = || second.containers.iter().filter(|container| container.permission.granted());
        let ran = eligible().filter(|container| !held(container.activity)).count();
        let runs = eligible().filter(after).count();
        prop_assert!(runs >= ran.min(guard.safety.keep_running), "{ran} ran, {runs} run: {decisions:?}");
        // Who is paused and seen may go on, so somebody does.
        let could = eligible().any(|container| !matches!(container.activity, Activity::AtGate { .. }) && container.memory != Reading::Missing);
        prop_assert!(!could || runs >= 1 || guard.safety.keep_running == 0, "{decisions:?}");
    }

    #[test]
    fn whoever_was_held_long_enough_goes_on_in_the_same_step(guard in guards(), mut seen in observations(900_000)) {
        for container in &mut seen.containers {
            match &mut container.activity {
                Activity::Paused { since, .. } | Activity::AtGate { since } => *since = Moment(0),
                Activity::Running { lease: Some(lease) } => lease.since = Moment(0),
                Activity::Running { lease: None } => {}
            }
        }
        let decisions = guard.step(&mut State::default(), &seen, Moment(900_000));
        for container in seen.containers.iter().filter(|container| held(container.activity)) {
            let freed = decisions.iter().find(|decision| decision.action.container() == Some(&container.id));
            prop_assert!(freed.is_some_and(|decision| decision.action.releases()), "{container:?}");
        }
    }

    #[test]
    fn pauses_have_an_end_within_the_probes(guard in guards(), first in observations(100_000), second in observations(100_250)) {
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
    fn budgets_are_kept(guard in guards(), mut second in observations(100_250), allowed in 0_u32..4) {
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
    fn state_and_guard_survive_being_written_down(guard in guards(), first in observations(100_000), second in observations(100_250)) {
        let (state, decisions) = two_steps(&guard, &first, &second);
        let again: Guard = serde_json::from_str(&serde_json::to_string(&guard).unwrap()).unwrap();
        prop_assert_eq!(&again, &guard);
        let mut remembered: State = serde_json::from_str(&serde_json::to_string(&state).unwrap()).unwrap();
        let mut state = state;
        prop_assert_eq!(guard.step(&mut remembered, &second, Moment(100_500)), guard.step(&mut state, &second, Moment(100_500)));
        let _: Vec<drover_memguard::Decision> = serde_json::from_str(&serde_json::to_string(&decisions).unwrap()).unwrap();
    }
}

#[test]
fn everything_held_is_let_go_when_the_node_is_not_seen_for_long() {
    let guard = Guard { policy: drover_memguard::Policy::by_name("bank").unwrap(), safety: drover_memguard::Safety::default() };
    let mut state = State::default();
    let mut seen = drover_memguard::Observation { node: node(7 * GIB, 8 * GIB, 1000), ..Default::default() };
    let mut paused = container("a", GIB, Some(2 * GIB), 1000);
    paused.activity = Activity::Paused { since: Moment(900), lever: Lever::Freeze };
    seen.containers = vec![paused, container("b", GIB, Some(2 * GIB), 1000)];
    guard.step(&mut state, &seen, Moment(1000));
    seen.node = Reading::Missing;
    assert!(guard.step(&mut state, &seen, Moment(3000)).is_empty(), "a short gap changes nothing");
    let decisions = guard.step(&mut state, &seen, Moment(1000) + guard.safety.blind);
    assert_eq!(decisions.len(), 1);
    assert!(matches!(&decisions[0].action, Action::Resume { container } if container.0.as_ref() == "a"), "{decisions:?}");
}

#[test]
fn who_was_held_long_enough_is_left_alone_for_a_while() {
    let guard = Guard { policy: drover_memguard::Policy::by_name("bank").unwrap(), safety: drover_memguard::Safety::default() };
    let safety = &guard.safety;
    let mut state = State::default();
    let look = |at: u64, activity: Activity| {
        let mut far = container("far", GIB, Some(4 * GIB), at);
        far.activity = activity;
        far.permission = Permission::Granted { levers: Levers { freeze: true, ..Levers::default() }, patience: None };
        // The nearest is at its limit, and nothing is left for `far`, which was seen to grow.
        let near = container("near", 3 * GIB, Some(3 * GIB), at);
        drover_memguard::Observation { node: node(8 * GIB - 64, 8 * GIB, at), containers: vec![far, near], ..Default::default() }
    };
    let running = Activity::Running { lease: None };
    let pauses = |decisions: &[drover_memguard::Decision]| decisions.iter().any(|decision| matches!(decision.action, Action::Pause { .. }));
    let mut grow = look(0, running);
    grow.containers[0].memory = Reading::seen(GIB / 2, Moment(0));
    guard.step(&mut state, &grow, Moment(0));
    assert!(pauses(&guard.step(&mut state, &look(500, running), Moment(500))), "it grows and nothing is left");
    let late = 500 + safety.max_pause.as_millis() as u64;
    let paused = Activity::Paused { since: Moment(500), lever: Lever::Freeze };
    assert!(matches!(
        guard.step(&mut state, &look(late, paused), Moment(late))[..],
        [drover_memguard::Decision { action: Action::Resume { .. }, .. }]
    ));
    assert!(!pauses(&guard.step(&mut state, &look(late + 500, running), Moment(late + 500))), "it was just let go");
    let later = Moment(late) + safety.cooldown + Duration::from_millis(500);
    assert!(pauses(&guard.step(&mut state, &look(later.0, running), later)), "the while is over");
}

#[test]
fn denied_is_denied_whatever_was_done_before() {
    let guard = Guard { policy: drover_memguard::Policy::by_name("bank").unwrap(), safety: drover_memguard::Safety::default() };
    let mut paused = container("a", GIB, Some(2 * GIB), 1000);
    paused.activity = Activity::Paused { since: Moment(900), lever: Lever::Freeze };
    paused.permission = Permission::Denied { because: Denial::LeaseHolder };
    let seen = drover_memguard::Observation { node: node(8 * GIB, 8 * GIB, 1000), containers: vec![paused], ..Default::default() };
    let decisions = guard.step(&mut State::default(), &seen, Moment(1000));
    assert!(matches!(&decisions[..], [only] if matches!(only.action, Action::Resume { .. })), "{decisions:?}");
}

#[test]
fn of_two_who_both_do_not_fit_only_one_is_held() {
    let guard = Guard { policy: drover_memguard::Policy::by_name("bank").unwrap(), safety: drover_memguard::Safety::default() };
    let mut state = State::default();
    let look = |memory: u64, at: u64| drover_memguard::Observation {
        node: node(8 * GIB - 64, 8 * GIB, at),
        containers: vec![container("a", memory, Some(8 * GIB), at), container("b", memory, Some(8 * GIB), at)],
        ..Default::default()
    };
    guard.step(&mut state, &look(GIB, 0), Moment(0));
    let decisions = guard.step(&mut state, &look(2 * GIB, 500), Moment(500));
    assert_eq!(decisions.iter().filter(|decision| !decision.action.releases()).count(), 1, "{decisions:?}");
}

#[test]
fn a_governed_sacrifice_takes_the_youngest_once_and_only_when_nobody_fits() {
    use drover_memguard::{PaperSettings, Policy, Sacrifices, Safety};
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
        drover_memguard::Observation {
            node: node(8 * GIB - 64, 8 * GIB, at),
            containers: vec![one("old", 10), one("young", 500)],
            ..Default::default()
        }
    };
    let killed = |decisions: &[drover_memguard::Decision]| -> Vec<String> {
        let kills = decisions.iter().filter(|decision| matches!(decision.action, Action::Sacrifice { .. }));
        kills.filter_map(|decision| decision.action.container().map(ToString::to_string)).collect()
    };
    for (memory, expected) in [(3 * GIB, vec!["young".to_owned()]), (4 * GIB, vec![])] {
        let mut state = State::default();
        guard.step(&mut state, &look(memory, 1_000, false), Moment(1_000));
        assert_eq!(killed(&guard.step(&mut state, &look(memory, 2_500, true), Moment(2_500))), expected, "{memory}");
        // The rule has dropped them from its list by now: restrict again, and ask again too soon.
        guard.step(&mut state, &look(memory, 4_000, true), Moment(4_000));
        assert!(killed(&guard.step(&mut state, &look(memory, 5_500, true), Moment(5_500))).is_empty(), "too soon");
    }
}

/// A kubelet with the default probe beside a container that is paused and let go as memory comes and goes.
fn most_failures_in_a_row(short: &[bool], phase: u64) -> u32 {
    let settings = PaperSettings { upper: 0.5, lower: 0.5, per_round: 9, round: Duration::from_secs(1) };
    let safety = Safety { keep_running: 0, cooldown: Duration::ZERO, high_first: false, ..Safety::default() };
    let guard = Guard { policy: Policy::Paper(settings), safety };
    let facts = Facts { namespace: "a".into(), owner_kind: Some("Job".into()), qos: Some(Qos::Burstable), ..Facts::default() };
    let permission = judge(&facts, Levers { freeze: true, ..Levers::default() });
    let (mut state, mut activity) = (State::default(), Activity::Running { lease: None });
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
    fn pauses_with_whatever_interruptions_never_exhaust_a_probe(short in prop::collection::vec(prop::bool::weighted(0.8), 100), phase in 0_u64..20) {
        prop_assert!(most_failures_in_a_row(&short, phase) < 3);
    }
}

#[test]
fn without_interruptions_it_is_paused_for_as_long_as_its_probe_bears() {
    assert_eq!(most_failures_in_a_row(&[true; 100], 0), 2, "else the property proves nothing");
}

/// The kubelet counts failures across restarts of a container: seen on a real one.
#[test]
fn what_went_unanswered_before_a_restart_counts_after_it() {
    let guard = Guard { policy: Policy::None, safety: Safety::default() };
    let facts = Facts { namespace: "a".into(), owner_kind: Some("Job".into()), qos: Some(Qos::Burstable), ..Facts::default() };
    let permission = judge(&facts, Levers { freeze: true, ..Levers::default() });
    let second = |second: u64| Moment(100_000 + second * 1000);
    let one = |id: &str, activity, at: Moment| {
        let one = container(id, 1, Some(GIB), at.0);
        Container { name: "default/c/main".into(), permission, activity, ..one }
    };
    let running = Activity::Running { lease: None };
    let mut state = State::default();
    let look = |state: &mut State, containers: Vec<Container>, at: Moment| {
        let node = Reading::seen(NodeMemory { used: GIB, capacity: 4 * GIB }, at);
        guard.step(state, &Observation { node, containers, ..Observation::default() }, at);
    };
    // Paused for ten seconds, then killed: its successor may be held for eight more.
    look(&mut state, vec![one("1", running, second(0))], second(0));
    let paused = Activity::Paused { since: second(1), lever: Lever::Freeze };
    look(&mut state, vec![one("1", paused, second(1))], second(1));
    look(&mut state, vec![one("1", paused, second(11))], second(11));
    look(&mut state, Vec::new(), second(12));
    assert_eq!(guard.hold_until(&state, &one("2", running, second(12)), second(12)), second(19));
    // It runs until a probe was answered; only its own death counts against the third.
    for at in 12..=24 {
        look(&mut state, vec![one("2", running, second(at))], second(at));
    }
    assert_eq!(guard.hold_until(&state, &one("2", running, second(24)), second(24)), second(42));
    assert_eq!(guard.hold_until(&state, &one("3", running, second(30)), second(30)), second(42));
}
