//! Pods that are still to come and whose assumed nodes were taken meanwhile: where they count instead.
//!
//! Nobody knows where the member's scheduler will put them; that they will be somewhere is certain. They are given the first
//! node, by name, that would take them, those first that have room where they are assumed. What fits nowhere stays where it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use crate::fit::Free;
use crate::matching::admits;
use crate::usage::{Remaining, usage};
use crate::{Amounts, Claim, ClaimState, Observed, PodGroup};

/// What a claim counts: amounts by index of a node.
type Counted = Vec<(usize, Amounts)>;

/// Claims that count elsewhere than they say.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Displaced(BTreeMap<Uuid, Counted>);

/// Some pods that are not seen yet.
struct Unseen<'a> {
    claim: &'a Claim,
    /// Where they are assumed.
    node: usize,
    requests: Amounts,
    /// What they are, where that can be told.
    group: Option<&'a PodGroup>,
}

impl Unseen<'_> {
    fn has_room(&self, left: &Remaining, node: usize) -> bool {
        (self.claim.state == ClaimState::Promised || left.now[node].fits(&self.requests))
            && (self.claim.state == ClaimState::Leaving || left.later[node].fits(&self.requests))
    }
}

impl Displaced {
    /// Those of `claims` (all of `room`, which has counted them where they say).
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
                    counted.entry(claim.id).or_default().push((node, amounts.times(times)));
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
                    counted.entry(pod.claim.id).or_default().push((pod.node, pod.requests));
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
            counted.entry(pod.claim.id).or_default().push((node, pod.requests.clone()));
            if elsewhere.is_some() {
                displaced.0.insert(pod.claim.id, Counted::new());
            }
        }
        for (claim, whole) in &mut displaced.0 {
            *whole = counted.remove(claim).unwrap_or_default();
        }
        displaced
    }

    /// Whether everybody counts where they say.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What `claim` counts, if that is elsewhere.
    pub fn get(&self, claim: &Claim) -> Option<&Counted> {
        self.0.get(&claim.id)
    }
}

/// Amounts as single pods where they can be told apart, else in one piece that stays.
fn pods<'a>(claim: &'a Claim, node: usize, amounts: &Amounts, times: i64) -> Vec<Unseen<'a>> {
    let whole = amounts.times(times);
    let pods = |group: &&PodGroup| {
        let count = if group.requests.pods > 0 { whole.pods / group.requests.pods } else { 0 };
        !group.per_node && count > 0 && group.requests.times(count) == whole
    };
    match claim.request.demand.groups.iter().find(pods) {
        Some(group) => {
            let count = whole.pods / group.requests.pods;
            (0..count).map(|_| Unseen { claim, node, requests: group.requests.clone(), group: Some(group) }).collect()
        }
        None => vec![Unseen { claim, node, requests: whole, group: None }],
    }
}
