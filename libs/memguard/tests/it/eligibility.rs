//! Eligibility: a container may be held only if every rule allows it, and each denial names its rule.

use std::time::Duration;

use drover_memguard::{Denial, Levers, Permission, PodFacts, Probe, ProbeBudget, QosClass, judge};

const ALL: Levers = Levers { freeze: true, quota: true, high: true };

fn job() -> PodFacts {
    PodFacts {
        namespace: "default".into(),
        owner_kind: Some("Job".into()),
        qos: Some(QosClass::Burstable),
        probes: Some(Vec::new()),
        ..PodFacts::default()
    }
}

fn labelled(facts: PodFacts, value: &str) -> PodFacts {
    PodFacts { labels: [("memguard/pausable".to_owned(), value.to_owned())].into(), ..facts }
}

fn probe(period: u64, timeout: u64, failure_threshold: u32) -> Probe {
    Probe { period: Duration::from_secs(period), timeout: Duration::from_secs(timeout), failure_threshold }
}

fn denial(facts: &PodFacts) -> Option<Denial> {
    match judge(facts, ALL) {
        Permission::Denied { because } => Some(because),
        Permission::Granted { .. } => None,
    }
}

#[test]
fn judge_grants_a_job_and_denies_a_pod_of_which_nothing_is_known() {
    assert_eq!(judge(&job(), ALL), Permission::Granted { levers: ALL, probe_budget: None });
    assert_eq!(denial(&PodFacts::default()), Some(Denial::UnknownQos));
    assert_eq!(denial(&PodFacts { qos: Some(QosClass::BestEffort), ..PodFacts::default() }), Some(Denial::NotOptedIn));
}

#[test]
fn judge_denies_each_excluded_kind_of_pod_even_with_the_label() {
    let cases = [
        (PodFacts { is_guard: true, ..job() }, Denial::Guard),
        (PodFacts { namespace: "kube-system".into(), ..job() }, Denial::SystemNamespace),
        (PodFacts { is_static: true, ..job() }, Denial::StaticPod),
        (PodFacts { priority_class: Some("system-node-critical".into()), ..job() }, Denial::SystemPriority),
        (PodFacts { privileged: true, ..job() }, Denial::Privileged),
        (PodFacts { node_plugin: true, ..job() }, Denial::NodePlugin),
        (PodFacts { owner_kind: Some("DaemonSet".into()), ..job() }, Denial::DaemonSet),
        (PodFacts { qos: Some(QosClass::Guaranteed), ..job() }, Denial::Guaranteed),
        (PodFacts { qos: None, ..job() }, Denial::UnknownQos),
        (PodFacts { holds_lease: true, ..job() }, Denial::LeaseHolder),
        (PodFacts { paused_by_others: true, ..job() }, Denial::PausedByOthers),
    ];
    for (facts, expected) in cases {
        assert_eq!(denial(&facts), Some(expected));
        assert_eq!(denial(&labelled(facts, "true")), Some(expected), "the label does not lift the denial");
    }
    assert_eq!(denial(&labelled(job(), "false")), Some(Denial::Forbidden));
    assert_eq!(denial(&labelled(job(), "yes please")), Some(Denial::Forbidden), "a value other than true is no consent");
}

#[test]
fn judge_denies_other_owners_than_jobs_without_the_label() {
    for (owner, refused) in
        [(Some("ReplicaSet"), Denial::NotOptedIn), (Some("StatefulSet"), Denial::StatefulSet), (None, Denial::NotOptedIn)]
    {
        let facts = PodFacts { owner_kind: owner.map(str::to_owned), ..job() };
        assert_eq!(denial(&facts), Some(refused));
        assert_eq!(denial(&labelled(facts, "true")), None);
    }
}

#[test]
fn judge_limits_pauses_by_probes_or_withholds_the_freezer() {
    let with = |probes: Vec<Probe>| judge(&PodFacts { probes: Some(probes), ..job() }, ALL);
    assert_eq!(probe(10, 1, 3).budget(), Duration::from_secs(18));
    assert_eq!(
        with(vec![probe(10, 1, 3), probe(10, 1, 6)]),
        Permission::Granted { levers: ALL, probe_budget: Some(ProbeBudget { longest_millis: 18_000, answered_millis: 11_000 }) }
    );
    // (2 - 1) * 5 - 2 = 3 s: too short a pause to be of use, and too short a time-out for a quota.
    let gentle = Levers { high: true, ..Levers::default() };
    assert_eq!(with(vec![probe(5, 1, 2)]), Permission::Granted { levers: gentle, probe_budget: None });
    let patient = Levers { quota: true, high: true, freeze: false };
    assert_eq!(with(vec![probe(4, 3, 3)]), Permission::Granted { levers: patient, probe_budget: None });
    // Probes that are not known count as the kubelet's defaults.
    assert_eq!(
        judge(&PodFacts { probes: None, ..job() }, ALL),
        Permission::Granted { levers: ALL, probe_budget: Some(ProbeBudget { longest_millis: 18_000, answered_millis: 11_000 }) }
    );
}

#[test]
fn judge_grants_only_levers_that_the_node_offers() {
    assert_eq!(judge(&job(), Levers::default()), Permission::Denied { because: Denial::NoLever });
    let freezer = Levers { freeze: true, ..Levers::default() };
    let tight = PodFacts { probes: Some(vec![probe(5, 1, 2)]), ..job() };
    assert_eq!(judge(&tight, freezer), Permission::Denied { because: Denial::ProbesTooTight });
    let own_cpus = judge(&PodFacts { exclusive_cpus: true, ..job() }, ALL);
    assert_eq!(own_cpus.levers(), Levers { quota: false, ..ALL });
}
