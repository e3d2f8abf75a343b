//! Scaling to zero and back: each transition of the state machine.

use drover_autoscaling::kpa::KpaSpec;
use drover_autoscaling::kpa::zero::{Activity, Situation, UNKNOWN, activity, serves_directly, step};

fn situation(desired: i32, activity: Activity, activity_for: f64) -> Situation {
    Situation {
        desired,
        min: 0,
        max: 10,
        initialized: true,
        enabled: true,
        activity,
        activity_for,
        proxied_for: None,
        probe: Some(true),
        progress_deadline: 600.0,
    }
}

#[test]
fn step_applies_bounds_and_keeps_unknown() {
    let spec = KpaSpec::default();
    assert_eq!((step(&spec, &situation(25, Activity::Active, 1.0)).want, step(&spec, &situation(3, Activity::Active, 1.0)).want), (10, 3));
    let unbounded = Situation { max: 0, min: 2, ..situation(25, Activity::Active, 1.0) };
    assert_eq!((step(&spec, &unbounded).want, step(&spec, &Situation { desired: 0, ..unbounded }).want), (25, 2));
    let away = KpaSpec { reachable: false, ..KpaSpec::default() };
    assert_eq!(step(&away, &Situation { desired: 1, ..unbounded }).want, 1);
    // The initial scale holds until it was reached once.
    let initial = KpaSpec { initial_scale: 4, ..KpaSpec::default() };
    let fresh = Situation { initialized: false, ..situation(1, Activity::Activating, 5.0) };
    assert_eq!((step(&initial, &fresh).want, step(&initial, &Situation { initialized: true, ..fresh }).want), (4, 1));
    // Nothing is known yet, so nothing is written.
    let unknown = step(&spec, &situation(UNKNOWN, Activity::Active, 1.0));
    assert_eq!((unknown.want, unknown.apply), (UNKNOWN, false));
}

#[test]
fn step_scales_to_zero_after_stable_window_and_grace_period() {
    let spec = KpaSpec::default();
    let at = |situation: Situation| {
        let step = step(&spec, &situation);
        (step.want, step.apply)
    };
    // Active: one pod for the rest of the stable window, then inactive, but not gone yet.
    assert_eq!(at(situation(0, Activity::Active, 59.0)), (1, true));
    assert_eq!(step(&spec, &situation(0, Activity::Active, 59.0)).again, Some(1.0));
    assert_eq!(at(situation(0, Activity::Active, 60.0)), (0, false));
    // Inactive: gone when the activator answers and the grace period is over, or it has been in the path for that long.
    assert_eq!(at(situation(0, Activity::Inactive, 29.0)), (0, false));
    assert_eq!(at(situation(0, Activity::Inactive, 30.0)), (0, true));
    let proxied = Situation { proxied_for: Some(31.0), ..situation(0, Activity::Inactive, 1.0) };
    assert_eq!(at(proxied), (0, true));
    assert_eq!(step(&spec, &Situation { proxied_for: Some(10.0), ..proxied }).again, Some(20.0));
    let silent = step(&spec, &Situation { probe: Some(false), ..proxied });
    assert_eq!((silent.want, silent.apply, silent.probe), (0, false, false));
    assert!(step(&spec, &Situation { probe: None, ..proxied }).probe);
    // Without a limit on bursts the activator is not probed.
    let unlimited = KpaSpec { target_burst_capacity: -1.0, ..KpaSpec::default() };
    assert!(step(&unlimited, &Situation { probe: None, ..situation(0, Activity::Inactive, 30.0) }).apply);
    // Retention keeps the last pod, unless requests cannot reach it.
    let kept = KpaSpec { scale_to_zero_pod_retention: 90.0, ..KpaSpec::default() };
    let long = Situation { proxied_for: Some(80.0), ..situation(0, Activity::Inactive, 80.0) };
    assert_eq!((step(&kept, &long).apply, step(&kept, &long).again), (false, Some(10.0)));
    assert!(step(&KpaSpec { reachable: false, ..kept }, &long).apply);
    // Not allowed at all: one pod stays.
    assert_eq!(at(Situation { enabled: false, ..situation(0, Activity::Inactive, 900.0) }), (1, true));
    // A workload that never became active is scaled to zero after the deadline and 30 s.
    assert_eq!(at(situation(0, Activity::Activating, 629.0)), (UNKNOWN, false));
    assert_eq!(at(situation(UNKNOWN, Activity::Activating, 631.0)), (0, true));
}

#[test]
fn activity_follows_wanted_and_ready_pods() {
    use Activity::{Activating, Active, Inactive};
    let rows = [
        (0, 5, 2, Active, Inactive),
        (3, 1, 2, Inactive, Activating),
        (3, 2, 2, Inactive, Active),
        (1, 0, 0, Active, Activating),
        (UNKNOWN, 1, 2, Inactive, Inactive),
        (UNKNOWN, 1, 2, Activating, Activating),
        (UNKNOWN, 1, 2, Active, Activating),
        (UNKNOWN, 2, 2, Inactive, Inactive),
        (UNKNOWN, 2, 2, Activating, Active),
    ];
    for (want, ready, min, now, then) in rows {
        assert_eq!(activity(want, ready, min, 1, true, now), then, "want {want}, {ready} ready of {min}, {now:?}");
    }
    // An initial scale of 0 is reached without pods, and means inactive.
    assert_eq!(activity(UNKNOWN, 0, 0, 0, false, Activating), Inactive);
    assert_eq!(activity(2, 2, 0, 3, false, Activating), Activating);
}

#[test]
fn serves_directly_only_with_pods_and_burst_capacity() {
    assert!(serves_directly(1, 0));
    assert!(!serves_directly(1, -1) && !serves_directly(0, 5) && !serves_directly(UNKNOWN, 5));
}
