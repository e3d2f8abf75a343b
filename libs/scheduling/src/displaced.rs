//! Displaced pods: claimed pods that are not observed yet, and whose assumed node other pods have filled meanwhile.
//!
//! The member's scheduler will run them on some other node, so their room must count there. Pods that still fit on their assumed node
//! keep it; each other pod counts on the first node, by name, with room for it. A pod that fits nowhere counts on its assumed node.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use crate::fit::Free;
use crate::matching::admits;
use crate::usage::{Remaining, counts_as, usage};
use crate::{Amounts, Claim, ClaimState, Observed, PodGroup};

/// The amounts of a claim by node index, each with the state in which it counts.
type Counted = Vec<(ClaimState, usize, Amounts)>;

/// Claims that count on other nodes than their witness says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Displaced(BTreeMap<Uuid, Counted>);

/// A claimed pod that is not observed yet, or amounts that cannot be divided into pods.
struct Unseen<'a> {
    claim: &'a Claim,
    /// The assumed node.
    node: usize,
    requests: Amounts,
    /// The pod's group, if the amounts could be divided into pods.
    group: Option<&'a PodGroup>,
}

impl Unseen<'_> {
    fn has_room(&self, left: &Remaining, node: usize) -> bool {
        left.fits(self.claim.state, node, &self.requests)
    }
}

impl Displaced {
    /// Finds the displaced ones among `claims`, which are all claims of the member. `free` counts them on their assumed nodes.
    pub fn of<'c, 'o>(
        free: Free<'_>,
        observed: impl Fn(&Claim) -> Option<&'o Observed>,
        claims: impl Iterator<Item = &'c Arc<Claim>>,
    ) -> Self {
        let mut left = Remaining::of(free);
        let (mut unseen, mut counted) = (Vec::new(), BTreeMap::<Uuid, Counted>::new());
        for claim in claims {
            usage(free.nodes, claim, observed(claim), |node, amounts, times, seen| {
                if seen {
                    counted.entry(claim.id).or_default().push((counts_as(claim, seen), node, amounts.times(times)));
                } else {
                    left.add(claim.state, node, amounts, times);
                    unseen.extend(pods(claim, node, amounts, times));
                }
            });
        }
        let mut homeless = Vec::new();
        for pod in unseen {
            match pod.has_room(&left, pod.node) {
                true => {
                    left.add(pod.claim.state, pod.node, &pod.requests, -1);
                    counted.entry(pod.claim.id).or_default().push((pod.claim.state, pod.node, pod.requests));
                }
                false => homeless.push(pod),
            }
        }
        let mut displaced = Self::default();
        for pod in &homeless {
            let takes = |node: &usize| {
                let there = &free.nodes[*node];
                !there.unschedulable && pod.group.is_some_and(|group| admits(there, group).is_ok()) && pod.has_room(&left, *node)
            };
            let elsewhere = (0..free.nodes.len()).find(takes);
            let node = elsewhere.unwrap_or(pod.node);
            left.add(pod.claim.state, node, &pod.requests, -1);
            counted.entry(pod.claim.id).or_default().push((pod.claim.state, node, pod.requests.clone()));
            if elsewhere.is_some() {
                displaced.0.insert(pod.claim.id, Counted::new());
            }
        }
        for (claim, whole) in &mut displaced.0 {
            *whole = counted.remove(claim).unwrap_or_default();
        }
        displaced
    }

    /// Whether no claim is displaced.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The nodes on which a displaced `claim` counts; `None` if it is not displaced.
    pub fn get(&self, claim: &Claim) -> Option<&Counted> {
        self.0.get(&claim.id)
    }
}

/// Divides amounts into single pods if they are a multiple of one group's pods; else returns them as one piece, which is never displaced.
fn pods<'a>(claim: &'a Claim, node: usize, amounts: &Amounts, times: i64) -> Vec<Unseen<'a>> {
    let whole = amounts.times(times);
    match divide(claim, &whole) {
        Some((group, count)) => (0..count).map(|_| Unseen { claim, node, requests: group.requests.clone(), group: Some(group) }).collect(),
        None => vec![Unseen { claim, node, requests: whole, group: None }],
    }
}

/// The group of which `whole` are so many pods, if it is a multiple of one pod.
pub(crate) fn divide<'a>(claim: &'a Claim, whole: &Amounts) -> Option<(&'a PodGroup, u32)> {
    claim.request.demand.groups.iter().filter(|group| !group.per_node && group.requests.pods > 0).find_map(|group| {
        let count = whole.pods / group.requests.pods;
        (count > 0 && group.requests.times(count) == *whole).then_some((group, u32::try_from(count).ok()?))
    })
}
