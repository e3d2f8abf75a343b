//! Resizing a claim: the new claim, and which of its pods may stay on their nodes.
//!
//! Workloads are matched by name. During an update the larger of the old and the new demand counts, plus the surge.

use std::sync::Arc;

use crate::{AppRequest, Claim, Demand, PodGroup, PodsOnNode};

/// A claim with its new demand.
pub(crate) enum Resized {
    /// There are no additional and no larger pods, so no room is needed.
    InPlace(Claim),
    /// There are more or larger pods, which need room.
    Grows {
        /// The claim, still without a witness.
        claim: Claim,
        /// Its pods that are not larger than before, on their nodes.
        kept: Vec<PodsOnNode>,
    },
}

/// Resizes `claim` to the demand of `request`.
pub(crate) fn resize(claim: &Claim, request: &Arc<AppRequest>, surge: bool) -> Resized {
    let old = &claim.request.demand;
    let request = match surge {
        true => Arc::new(AppRequest { demand: larger(old, &request.demand), ..AppRequest::clone(request) }),
        false => Arc::clone(request),
    };
    let resized = Claim { request, surging: surge, pods: Vec::new(), ..claim.clone() };
    let mut kept = Vec::new();
    let mut complete = true;
    for (g, group) in resized.request.demand.groups.iter().enumerate() {
        let before = old.groups.iter().position(|o| o.workload == group.workload && !grows(&o.requests, &group.requests));
        let mut left = if group.per_node { u32::MAX } else { group.replicas + if surge { group.surge } else { 0 } };
        for pods in claim.pods.iter().filter(|p| Some(p.group) == before) {
            let count = if group.per_node { pods.count } else { pods.count.min(left) };
            left = if group.per_node { 0 } else { left - count };
            if count > 0 {
                kept.push(PodsOnNode { node: pods.node.clone(), group: g, count });
            }
        }
        complete &= left == 0;
    }
    match complete {
        true => Resized::InPlace(Claim { pods: kept, ..resized }),
        false => Resized::Grows { claim: resized, kept },
    }
}

/// What an update needs where an app runs, besides what its claim has.
#[derive(Clone, Debug, PartialEq)]
pub struct Growth {
    /// Pods that need room; without groups it fits in any case.
    pub demand: Demand,
    /// These are all its pods: pods that grow do not keep their places, so its claim does not count beside them.
    pub replaces: bool,
}

/// The room that the update of an app from `old` to `new` needs for a while, as [`resize`] with surge claims it.
pub fn room_of_update(old: &Demand, new: &Demand) -> Growth {
    let before = |group: &PodGroup| old.groups.iter().find(|old| old.workload == group.workload);
    let mut groups = larger(old, new).groups;
    let replaces = new.groups.iter().any(|group| before(group).is_some_and(|before| grows(&before.requests, &group.requests)));
    for group in &mut groups {
        let known = before(group).filter(|_| !replaces);
        group.replicas = group.replicas + group.surge - known.map_or(0, |before| before.replicas);
        group.surge = 0;
    }
    groups.retain(|group| replaces || if group.per_node { before(group).is_none() } else { group.replicas > 0 });
    Growth { demand: Demand { groups, ..Demand::default() }, replaces }
}

/// What that update needs beside the claim that the app has, so that somebody can hold it until the claim is raised: its additional pods, and
/// of each pod that grows the difference, as a pod of its own that takes no place among the pods of its node. Together they request as much as
/// the raised claim. As the pods of that may have to be on other nodes, it can be raised in the place of both only if they fit there.
pub fn room_beside(old: &Demand, new: &Demand) -> Demand {
    let mut groups = Vec::new();
    for group in larger(old, new).groups {
        let before = old.groups.iter().find(|old| old.workload == group.workload);
        if let Some(before) = before.filter(|before| grows(&before.requests, &group.requests)) {
            let (workload, requests) = (format!("{} grows", group.workload), group.requests.minus(&before.requests));
            groups.push(PodGroup { workload, requests, replicas: before.replicas, surge: 0, ..group.clone() });
        }
        let more = group.replicas + group.surge - before.map_or(0, |before| before.replicas);
        let adds = if group.per_node { before.is_none() } else { more > 0 };
        if adds {
            groups.push(PodGroup { replicas: more, surge: 0, ..group });
        }
    }
    Demand { groups, ..Demand::default() }
}

fn grows(old: &crate::Amounts, new: &crate::Amounts) -> bool {
    new.asked().any(|r| new.get(r) > old.get(r))
}

/// The larger of both demands for each workload. Workloads that the new demand no longer has still run and count too.
fn larger(old: &Demand, new: &Demand) -> Demand {
    let mut both = new.clone();
    for before in &old.groups {
        match both.groups.iter_mut().find(|g| g.workload == before.workload) {
            Some(group) => {
                group.replicas = group.replicas.max(before.replicas);
                group.requests = group.requests.max(&before.requests);
            }
            None => both.groups.push(PodGroup { surge: 0, ..before.clone() }),
        }
    }
    both
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Amounts;

    fn demand(replicas: u32, surge: u32, cpu: i64) -> Demand {
        let requests = Amounts { cpu, pods: 1, ..Amounts::default() };
        Demand {
            groups: vec![PodGroup { workload: "Deployment/web".into(), replicas, surge, requests, ..PodGroup::default() }],
            ..Demand::default()
        }
    }

    fn asked(growth: &Growth) -> Vec<(u32, i64)> {
        growth.demand.groups.iter().map(|group| (group.replicas, group.requests.cpu)).collect()
    }

    #[test]
    fn update_needs_room_for_its_surge_and_for_pods_that_grow() {
        let same = room_of_update(&demand(4, 1, 100), &demand(4, 1, 100));
        assert_eq!((asked(&same), same.replaces), (vec![(1, 100)], false), "only the surge");
        let smaller = room_of_update(&demand(4, 1, 100), &demand(2, 1, 50));
        assert_eq!((asked(&smaller), smaller.replaces), (vec![(1, 100)], false));
        let larger = room_of_update(&demand(4, 1, 100), &demand(4, 1, 150));
        assert_eq!((asked(&larger), larger.replaces), (vec![(5, 150)], true), "every pod needs another place");
        let recreated = room_of_update(&demand(4, 0, 100), &demand(4, 0, 100));
        assert!(recreated.demand.groups.is_empty(), "{recreated:?}");
        let more = room_of_update(&demand(2, 0, 100), &demand(5, 0, 100));
        assert_eq!(asked(&more), [(3, 100)]);
    }

    #[test]
    fn room_beside_a_claim_and_the_claim_are_as_much_as_the_raised_claim() {
        let beside = |old: &Demand, new: &Demand| -> Vec<(u32, i64, i64)> {
            let groups = room_beside(old, new).groups;
            groups.iter().map(|group| (group.replicas, group.requests.cpu, group.requests.pods)).collect()
        };
        assert_eq!(beside(&demand(4, 1, 100), &demand(4, 1, 100)), [(1, 100, 1)], "only the surge");
        assert_eq!(beside(&demand(4, 1, 100), &demand(2, 1, 50)), [(1, 100, 1)]);
        assert_eq!(beside(&demand(4, 1, 100), &demand(4, 1, 150)), [(4, 50, 0), (1, 150, 1)]);
        assert_eq!(beside(&demand(4, 0, 100), &demand(4, 0, 150)), [(4, 50, 0)]);
        assert_eq!(beside(&demand(2, 1, 100), &demand(3, 1, 150)), [(2, 50, 0), (2, 150, 1)]);
        let (old, new) = (demand(2, 1, 100), demand(3, 1, 150));
        let sum = |demand: &Demand| demand.groups.iter().map(|group| i64::from(group.replicas) * group.requests.cpu).sum::<i64>();
        assert_eq!(sum(&old) + sum(&room_beside(&old, &new)), sum(&room_of_update(&old, &new).demand));
    }
}
