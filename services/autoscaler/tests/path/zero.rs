//! When the last pod goes, and the first comes.

use drover_autoscaler::path::zero::{Around, Life};
use drover_autoscaling::kpa::KpaSpec;
use drover_autoscaling::{Limits, Seconds};

fn limits() -> Limits {
    Limits { min_replicas: 0, max_replicas: 10, ..Limits::default() }
}

fn quiet(at: Seconds) -> Around {
    Around { at, want: Some(0), replicas: 1, ready: 1, proxied_for: None, answers: true }
}

/// When the last pod is taken, looking every 2 s; `proxied` says since when activators are in the path once zero pods are wanted.
fn goes_at(answers: impl Fn(Seconds) -> bool, early: bool) -> Option<Seconds> {
    let spec = KpaSpec::default();
    let mut life = Life::found(&quiet(0.0));
    let mut since = early.then_some(0.0);
    for tick in 0..300 {
        let at = f64::from(tick) * 2.0;
        let around = Around { proxied_for: since.map(|since| at - since), answers: answers(at), ..quiet(at) };
        let step = life.step(&spec, &limits(), &around);
        if step.apply && step.want == 0 {
            return Some(at);
        }
        if step.want == 0 {
            since = since.or(Some(at)); // want 0: the path changes
        }
    }
    None
}

#[test]
fn the_last_pod_stays_a_stable_window_and_a_grace_period() {
    assert_eq!(goes_at(|_| true, false), Some(90.0));
}

#[test]
fn the_grace_period_is_over_when_activators_were_in_the_path_already() {
    assert_eq!(goes_at(|_| true, true), Some(62.0));
}

#[test]
fn the_last_pod_stays_while_no_activator_answers() {
    assert_eq!(goes_at(|_| false, true), None);
    assert_eq!(goes_at(|at| at >= 200.0, true), Some(200.0));
}

#[test]
fn nothing_decided_writes_nothing() {
    let mut life = Life::found(&quiet(0.0));
    for tick in 0..100 {
        let around = Around { want: None, ..quiet(f64::from(tick) * 2.0) };
        assert!(!life.step(&KpaSpec::default(), &limits(), &around).apply);
    }
}

#[test]
fn the_first_pod_is_written_at_once() {
    let mut life = Life::found(&Around { replicas: 0, ready: 0, ..quiet(0.0) });
    let step = life.step(&KpaSpec::default(), &limits(), &Around { at: 0.5, want: Some(3), replicas: 0, ready: 0, ..quiet(0.0) });
    assert_eq!((step.apply, step.want), (true, 3));
}
