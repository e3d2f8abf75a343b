//! The amounts that a claim counts on the nodes of its member, and the remaining free amounts.

use std::collections::BTreeMap;

use crate::fit::Free;
use crate::matching::admits;
use crate::{Amounts, Claim, ClaimState, Node, Observed};

/// The free amounts on each node of a member, now and later, updated while claims are added and removed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Remaining {
    pub now: Vec<Amounts>,
    pub later: Vec<Amounts>,
}

impl Remaining {
    pub fn of(free: Free<'_>) -> Self {
        Self { now: free.now.to_vec(), later: free.later.to_vec() }
    }

    pub fn free<'r>(&'r self, nodes: &'r [Node]) -> Free<'r> {
        Free { nodes, now: &self.now, later: &self.later }
    }

    /// Adds `times` the `amounts` to the free amounts of `node`: now, later or both, depending on the claim's state.
    pub fn add(&mut self, state: ClaimState, node: usize, amounts: &Amounts, times: i64) {
        if state != ClaimState::Promised {
            self.now[node].add(amounts, times);
        }
        if state != ClaimState::Leaving {
            self.later[node].add(amounts, times);
        }
    }

    /// Whether `amounts` fit on `node` when they count: now, later or both, depending on the claim's state.
    pub fn fits(&self, state: ClaimState, node: usize, amounts: &Amounts) -> bool {
        (state == ClaimState::Promised || self.now[node].fits(amounts)) && (state == ClaimState::Leaving || self.later[node].fits(amounts))
    }
}

/// How a part of a claim counts. Pods that are observed are there now, also those of a copy that grows into room that is only promised.
pub(crate) fn counts_as(claim: &Claim, observed: bool) -> ClaimState {
    if observed && claim.state == ClaimState::Promised { ClaimState::Held } else { claim.state }
}

/// Index of a node by name.
pub(crate) fn find(nodes: &[Node], name: &str) -> Option<usize> {
    nodes.binary_search_by(|n| n.name.as_str().cmp(name)).ok()
}

/// Calls `each` with the amounts that a claim counts on each node, as (node, amounts, times, whether observed).
pub(crate) fn usage(nodes: &[Node], claim: &Claim, observed: Option<&Observed>, mut each: impl FnMut(usize, &Amounts, i64, bool)) {
    let claimed = |each: &mut dyn FnMut(usize, &Amounts, i64)| {
        for pods in &claim.pods {
            let Some(group) = claim.request.demand.groups.get(pods.group) else { continue };
            // If a node was removed, its pods will run elsewhere. Until they are observed they count on the first node that admits them.
            let home = || (0..nodes.len()).find(|n| admits(&nodes[*n], group).is_ok());
            if let Some(n) = find(nodes, &pods.node).or_else(home) {
                each(n, &group.requests, i64::from(pods.count));
            }
        }
    };
    let Some(observed) = observed.filter(|o| !o.requests.is_empty()) else {
        return claimed(&mut |n, amounts, times| each(n, amounts, times, false));
    };
    let mut assumed: BTreeMap<usize, Amounts> = BTreeMap::new();
    let mut rest = Amounts::default();
    claimed(&mut |n, amounts, times| {
        assumed.entry(n).or_default().add(amounts, times);
        rest.add(amounts, times);
    });
    for (name, requests) in observed.requests.iter() {
        rest.add(requests, -1);
        if let Some(n) = find(nodes, name) {
            each(n, requests, 1, true);
            if let Some(there) = assumed.get_mut(&n) {
                there.add(requests, -1);
            }
        }
    }
    // Amounts claimed beyond the observed ones count on the assumed nodes where less is observed than assumed.
    for (n, unseen) in assumed {
        let mut kept = Amounts::default();
        let resources: Vec<String> = unseen.asked().map(str::to_owned).collect();
        for resource in resources {
            let amount = unseen.get(&resource).min(rest.get(&resource)).max(0);
            *kept.get_mut(&resource) = amount;
            *rest.get_mut(&resource) -= amount;
        }
        if !kept.is_zero() {
            each(n, &kept, 1, false);
        }
    }
}
