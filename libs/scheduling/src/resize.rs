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
