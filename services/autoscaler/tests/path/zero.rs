//! When the last pod is removed, and the first one is added.

use drover_autoscaler::path::zero::{AppActivity, AppObservation};
use drover_autoscaling::kpa::KpaSpec;
use drover_autoscaling::{Limits, Seconds};

fn limits() -> Limits {
    Limits { min_replicas: 0, max_replicas: 10, ..Limits::default() }
}

fn quiet(at: Seconds) -> AppObservation {
    AppObservation { at, want: Some(0), replicas: 1, ready: 1, proxied_for: None, answers: true }
}

/// When the last pod is removed, with an observation every 2 s. `early`: activators are in the path from the start, else once zero pods are wanted.
fn goes_at(answers: impl Fn(Seconds) -> bool, early: bool) -> Option<Seconds> {
    let spec = KpaSpec::default();
    let mut activity = AppActivity::initial(&quiet(0.0));
    let mut since = early.then_some(0.0);
    for tick in 0..300 {
        let at = f64::from(tick) * 2.0;
        let observed = AppObservation { proxied_for: since.map(|since| at - since), answers: answers(at), ..quiet(at) };
        let step = activity.step(&spec, &limits(), &observed);
        if step.apply && step.want == 0 {
            return Some(at);
        }
        if step.want == 0 {
            since = since.or(Some(at)); // zero wanted: activators come into the path
        }
    }
    None
}

#[test]
fn last_pod_stays_for_stable_window_and_grace_period() {
    assert_eq!(goes_at(|_| true, false), Some(90.0));
}

#[test]
fn grace_period_counts_earlier_time_of_activators_in_path() {
    assert_eq!(goes_at(|_| true, true), Some(62.0));
}

#[test]
fn last_pod_stays_while_no_activator_answers() {
    assert_eq!(goes_at(|_| false, true), None);
    assert_eq!(goes_at(|at| at >= 200.0, true), Some(200.0));
}

#[test]
fn missing_decision_writes_nothing() {
    let mut activity = AppActivity::initial(&quiet(0.0));
    for tick in 0..100 {
        let observed = AppObservation { want: None, ..quiet(f64::from(tick) * 2.0) };
        assert!(!activity.step(&KpaSpec::default(), &limits(), &observed).apply);
    }
}

#[test]
fn first_pod_is_written_at_once() {
    let mut activity = AppActivity::initial(&AppObservation { replicas: 0, ready: 0, ..quiet(0.0) });
    let step =
        activity.step(&KpaSpec::default(), &limits(), &AppObservation { at: 0.5, want: Some(3), replicas: 0, ready: 0, ..quiet(0.0) });
    assert_eq!((step.apply, step.want), (true, 3));
}
