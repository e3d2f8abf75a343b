//! Nobody is touched unless every question is answered in favour, and each refusal names its own reason.

use std::time::Duration;

use drover_memguard::{Denial, Facts, Handler, Levers, Patience, Permission, Probe, Qos, judge};

const ALL: Levers = Levers { freeze: true, quota: true, high: true };

fn job() -> Facts {
    Facts {
        namespace: "default".into(),
        owner_kind: Some("Job".into()),
        qos: Some(Qos::Burstable),
        probes: Some(Vec::new()),
        ..Facts::default()
    }
}

fn labelled(facts: Facts, value: &str) -> Facts {
    Facts { labels: [("memguard/pausable".to_owned(), value.to_owned())].into(), ..facts }
}

fn probe(period: u64, timeout: u64, failure_threshold: u32) -> Probe {
    Probe { period: Duration::from_secs(period), timeout: Duration::from_secs(timeout), failure_threshold, handler: Handler::Network }
}

fn denial(facts: &Facts) -> Option<Denial> {
    match judge(facts, ALL) {
        Permission::Denied { because } => Some(because),
        Permission::Granted { .. } => None,
    }
}

#[test]
fn a_plain_job_may_be_touched_and_nothing_known_may_not() {
    assert_eq!(judge(&job(), ALL), Permission::Granted { levers: ALL, patience: None });
    assert_eq!(denial(&Facts::default()), Some(Denial::UnknownQos));
    assert_eq!(denial(&Facts { qos: Some(Qos::BestEffort), ..Facts::default() }), Some(Denial::NotOptedIn));
}

#[test]
fn each_rule_refuses_even_who_asked_for_it() {
    let cases = [
        (Facts { is_guard: true, ..job() }, Denial::Guard),
        (Facts { namespace: "kube-system".into(), ..job() }, Denial::SystemNamespace),
        (Facts { is_static: true, ..job() }, Denial::StaticPod),
        (Facts { priority_class: Some("system-node-critical".into()), ..job() }, Denial::SystemPriority),
        (Facts { privileged: true, ..job() }, Denial::Privileged),
        (Facts { node_plugin: true, ..job() }, Denial::NodePlugin),
        (Facts { owner_kind: Some("DaemonSet".into()), ..job() }, Denial::DaemonSet),
        (Facts { qos: Some(Qos::Guaranteed), ..job() }, Denial::Guaranteed),
        (Facts { qos: None, ..job() }, Denial::UnknownQos),
        (Facts { holds_lease: true, ..job() }, Denial::LeaseHolder),
        (Facts { paused_by_others: true, ..job() }, Denial::PausedByOthers),
    ];
    for (facts, expected) in cases {
        assert_eq!(denial(&facts), Some(expected));
        assert_eq!(denial(&labelled(facts, "true")), Some(expected), "a label does not lift it");
    }
    assert_eq!(denial(&labelled(job(), "false")), Some(Denial::Forbidden));
    assert_eq!(denial(&labelled(job(), "yes please")), Some(Denial::Forbidden), "an unclear word is no consent");
}

#[test]
fn others_than_jobs_need_the_label() {
    for (owner, refused) in
        [(Some("ReplicaSet"), Denial::NotOptedIn), (Some("StatefulSet"), Denial::StatefulSet), (None, Denial::NotOptedIn)]
    {
        let facts = Facts { owner_kind: owner.map(str::to_owned), ..job() };
        assert_eq!(denial(&facts), Some(refused));
        assert_eq!(denial(&labelled(facts, "true")), None);
    }
}

#[test]
fn probes_bound_the_pause_or_forbid_the_freezer() {
    let with = |probes: Vec<Probe>| judge(&Facts { probes: Some(probes), ..job() }, ALL);
    assert_eq!(probe(10, 1, 3).budget(), Duration::from_secs(18));
    assert_eq!(
        with(vec![probe(10, 1, 3), probe(10, 1, 6)]),
        Permission::Granted { levers: ALL, patience: Some(Patience { longest_millis: 18_000, answered_millis: 11_000 }) }
    );
    // (2 - 1) * 5 - 2 = 3 s: too short to be of use, and too impatient for a quota.
    let gentle = Levers { high: true, ..Levers::default() };
    assert_eq!(with(vec![probe(5, 1, 2)]), Permission::Granted { levers: gentle, patience: None });
    let patient = Levers { quota: true, high: true, freeze: false };
    assert_eq!(with(vec![probe(4, 3, 3)]), Permission::Granted { levers: patient, patience: None });
    // Not known: as if they were the kubelet's defaults.
    assert_eq!(
        judge(&Facts { probes: None, ..job() }, ALL),
        Permission::Granted { levers: ALL, patience: Some(Patience { longest_millis: 18_000, answered_millis: 11_000 }) }
    );
}

#[test]
fn what_the_node_lacks_is_not_offered() {
    assert_eq!(judge(&job(), Levers::default()), Permission::Denied { because: Denial::NoLever });
    let freezer = Levers { freeze: true, ..Levers::default() };
    let tight = Facts { probes: Some(vec![probe(5, 1, 2)]), ..job() };
    assert_eq!(judge(&tight, freezer), Permission::Denied { because: Denial::ProbesTooTight });
    let own_cpus = judge(&Facts { exclusive_cpus: true, ..job() }, ALL);
    assert_eq!(own_cpus.levers(), Levers { quota: false, ..ALL });
}
