//! What one claim counts on the nodes of its member, and the room that is left on them.

use std::collections::BTreeMap;

use crate::fit::Free;
use crate::matching::admits;
use crate::{Amounts, Claim, ClaimState, Node, Observed};

/// What is free on each node of a member, kept while claims are added and taken away.
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

    /// Changes what is free on `node` by `times` the `amounts`, at present and later, as the claim's state says.
    pub fn add(&mut self, state: ClaimState, node: usize, amounts: &Amounts, times: i64) {
        if state != ClaimState::Promised {
            self.now[node].add(amounts, times);
        }
        if state != ClaimState::Leaving {
            self.later[node].add(amounts, times);
        }
    }
}

/// Index of a node by name.
pub(crate) fn find(nodes: &[Node], name: &str) -> Option<usize> {
    nodes.binary_search_by(|n| n.name.as_str().cmp(name)).ok()
}

/// What a claim counts on each node by itself, as (node, amounts, times, whether it is seen there).
pub(crate) fn usage(nodes: &[Node], claim: &Claim, observed: Option<&Observed>, mut each: impl FnMut(usize, &Amounts, i64, bool)) {
    let claimed = |each: &mut dyn FnMut(usize, &Amounts, i64)| {
        for pods in &claim.pods {
            let Some(group) = claim.request.demand.groups.get(pods.group) else { continue };
            // A node that is gone: its pods will run elsewhere, and until they are seen there they count where they may.
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
    // What is claimed beyond what is seen stays on assumed nodes, where less is seen than assumed.
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
