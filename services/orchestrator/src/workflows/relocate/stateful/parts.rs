//! Which pods of an app, with which volumes, each of its copies runs at a point of the move. Pure.
//!
//! The pods are in the order in which they move: by StatefulSet, the highest ordinal first. After `n` of them the first `n` belong to the new
//! copy and the others to the old one. Invariant: what one copy runs at a point, the other one releases; where pods may overlap, the new
//! copy may be one pod ahead.

use std::sync::Arc;

use drover_api::bindings::{Release, ReleasedClaim, SetShare, Share, StatefulPod};

/// The pods of an app in the order in which they move.
pub(super) fn order(mut pods: Vec<StatefulPod>) -> Vec<StatefulPod> {
    // Stable, so that StatefulSets stay as they came.
    let sets: Vec<(String, String)> = pods.iter().map(|pod| (pod.namespace.clone(), pod.set.clone())).collect();
    let rank = |pod: &StatefulPod| sets.iter().position(|(namespace, set)| *namespace == pod.namespace && *set == pod.set);
    pods.sort_by_key(|pod| (rank(pod), std::cmp::Reverse(pod.ordinal)));
    pods
}

/// Whether each pod may start in the new copy before it has stopped in the old one: the app says so of all volumes, and each of them may be
/// written by several nodes.
pub(super) fn may_overlap(pods: &[StatefulPod]) -> bool {
    let mut volumes = pods.iter().flat_map(|pod| &pod.volumes).peekable();
    volumes.peek().is_some() && volumes.all(|volume| drover_members::may_overlap(&volume.claim))
}

/// What the old copy runs after `stopped` pods have stopped there.
pub(super) fn old(pods: &[StatefulPod], stopped: usize) -> Arc<Share> {
    let (releases, runs) = pods.split_at(stopped.min(pods.len()));
    share(pods, runs, releases, false)
}

/// What the new copy runs after `started` pods were started there.
pub(super) fn new(pods: &[StatefulPod], started: usize) -> Arc<Share> {
    let (runs, releases) = pods.split_at(started.min(pods.len()));
    share(pods, runs, releases, true)
}

fn share(all: &[StatefulPod], runs: &[StatefulPod], releases: &[StatefulPod], is_new: bool) -> Arc<Share> {
    let mut sets: Vec<SetShare> = Vec::new();
    for pod in all {
        if !sets.iter().any(|set| set.namespace == pod.namespace && set.name == pod.set) {
            let of_set = |pods: &[StatefulPod]| -> Vec<u32> {
                pods.iter().filter(|other| other.namespace == pod.namespace && other.set == pod.set).map(|pod| pod.ordinal).collect()
            };
            let here = of_set(runs);
            // A set without pods keeps a start above or at those of the other copy, so that a pod that is added is not one of them.
            let none =
                if is_new { of_set(all).into_iter().max().map_or(0, |last| last + 1) } else { of_set(all).into_iter().min().unwrap_or(0) };
            let start = here.iter().copied().min().unwrap_or(none);
            let replicas = u32::try_from(here.len()).unwrap_or(u32::MAX);
            sets.push(SetShare { namespace: pod.namespace.clone(), name: pod.set.clone(), start, replicas });
        }
    }
    let volumes = runs.iter().flat_map(|pod| pod.volumes.clone()).collect();
    Arc::new(Share { sets, volumes, releases: releases.iter().map(release).collect() })
}

/// What a pod releases when it stops.
fn release(pod: &StatefulPod) -> Release {
    let claim = |volume: &drover_api::bindings::TakenVolume| ReleasedClaim {
        name: volume.claim_name().1.to_owned(),
        volume: volume.volume_name().to_owned(),
    };
    Release { namespace: pod.namespace.clone(), pod: name(pod), set: pod.set.clone(), claims: pod.volumes.iter().map(claim).collect() }
}

/// Name of a pod.
pub(super) fn name(pod: &StatefulPod) -> String {
    format!("{}-{}", pod.set, pod.ordinal)
}

/// A pod as statuses name it.
pub(super) fn key(pod: &StatefulPod) -> String {
    format!("{}/{}", pod.namespace, name(pod))
}

#[cfg(test)]
mod tests {
    use drover_api::bindings::TakenVolume;
    use drover_members::labels::MAY_OVERLAP;
    use serde_json::json;

    use super::*;

    fn pods() -> Vec<StatefulPod> {
        let pod = |set: &str, ordinal: u32| {
            let volume = TakenVolume {
                claim: json!({"metadata": {"namespace": "n", "name": format!("data-{set}-{ordinal}")}}),
                volume: json!({"metadata": {"name": format!("pv-{set}-{ordinal}")}}),
            };
            StatefulPod { namespace: "n".into(), set: set.into(), ordinal, volumes: vec![volume] }
        };
        order(vec![pod("db", 3), pod("db", 4), pod("db", 5), pod("queue", 0)])
    }
    fn sets(share: &Share) -> Vec<(String, u32, u32)> {
        share.sets.iter().map(|set| (set.name.clone(), set.start, set.replicas)).collect()
    }

    #[test]
    fn at_every_point_each_pod_and_volume_is_in_exactly_one_place() {
        let pods = pods();
        assert_eq!(pods.iter().map(name).collect::<Vec<_>>(), ["db-5", "db-4", "db-3", "queue-0"]);
        for moved in 0..=pods.len() {
            let (old, new) = (old(&pods, moved), new(&pods, moved));
            let runs = |share: &Share| -> Vec<String> {
                let names = |set: &SetShare| (set.start..set.start + set.replicas).map(|n| format!("{}-{n}", set.name)).collect::<Vec<_>>();
                share.sets.iter().flat_map(names).collect()
            };
            let mut all = [runs(&old), runs(&new)].concat();
            all.sort();
            assert_eq!(all, ["db-3", "db-4", "db-5", "queue-0"], "after {moved}");
            assert_eq!((new.volumes.len(), old.volumes.len()), (moved, pods.len() - moved));
            assert_eq!((old.releases.len(), new.releases.len()), (moved, pods.len() - moved));
        }
        assert_eq!(sets(&new(&pods, 2)), [("db".to_owned(), 4, 2), ("queue".to_owned(), 1, 0)]);
        assert_eq!(old(&pods, 1).releases[0].claims, [ReleasedClaim { name: "data-db-5".into(), volume: "pv-db-5".into() }]);
    }

    #[test]
    fn pods_overlap_only_if_all_their_volumes_are_shared_and_the_app_says_so() {
        let volume = |mode: &str, says: &str| TakenVolume {
            claim: json!({"metadata": {"annotations": {MAY_OVERLAP: says}}, "spec": {"accessModes": [mode]}}),
            volume: json!({}),
        };
        let with = |volumes: Vec<TakenVolume>| vec![StatefulPod { volumes, ..pods()[0].clone() }];
        assert!(may_overlap(&with(vec![volume("ReadWriteMany", "true")])));
        assert!(!may_overlap(&with(vec![volume("ReadWriteOnce", "true")])));
        assert!(!may_overlap(&with(vec![volume("ReadWriteMany", "yes")])));
        assert!(!may_overlap(&with(vec![volume("ReadWriteMany", "true"), volume("ReadWriteMany", "")])));
        assert!(!may_overlap(&with(vec![])) && !may_overlap(&pods()));
    }
}
