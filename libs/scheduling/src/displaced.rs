//! Pods that are still to come and whose assumed nodes were taken meanwhile: where they count instead.
//!
//! Nobody knows where the member's scheduler will put them; that they will be somewhere is certain. They are given the first
//! node, by name, that would take them, those first that have room where they are assumed. What fits nowhere stays where it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use crate::matching::admits;
use crate::room::usage;
use crate::{Amounts, Claim, ClaimState, MemberRoom, PodGroup};

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

/// What is left of the nodes while pods are given theirs.
struct Left {
    now: Vec<Amounts>,
    later: Vec<Amounts>,
}

impl Left {
    fn has_room(&self, node: usize, unseen: &Unseen<'_>) -> bool {
        (unseen.claim.state == ClaimState::Promised || self.now[node].fits(&unseen.requests))
            && (unseen.claim.state == ClaimState::Leaving || self.later[node].fits(&unseen.requests))
    }
    fn add(&mut self, claim: &Claim, node: usize, amounts: &Amounts, times: i64) {
        if claim.state != ClaimState::Promised {
            self.now[node].add(amounts, times);
        }
        if claim.state != ClaimState::Leaving {
            self.later[node].add(amounts, times);
        }
    }
}

impl Displaced {
    /// Those of `claims` (all of `room`, which has counted them where they say).
    pub fn of<'c>(room: &MemberRoom, claims: impl Iterator<Item = &'c Arc<Claim>>) -> Self {
        let free = room.free();
        let mut left = Left { now: free.now.to_vec(), later: free.later.to_vec() };
        let (mut unseen, mut counted) = (Vec::new(), BTreeMap::<Uuid, Counted>::new());
        for claim in claims {
            usage(room.nodes(), claim, room.observed(claim), |node, amounts, times, seen| {
                if seen {
                    counted.entry(claim.id).or_default().push((node, amounts.times(times)));
                } else {
                    left.add(claim, node, amounts, times);
                    unseen.extend(pods(claim, node, amounts, times));
                }
            });
        }
        let mut homeless = Vec::new();
        for pod in unseen {
            match left.has_room(pod.node, &pod) {
                true => {
                    left.add(pod.claim, pod.node, &pod.requests, -1);
                    counted.entry(pod.claim.id).or_default().push((pod.node, pod.requests));
                }
                false => homeless.push(pod),
            }
        }
        let mut displaced = Self::default();
        for pod in &homeless {
            let takes = |node: &usize| {
                let there = &room.nodes()[*node];
                !there.unschedulable && pod.group.is_some_and(|group| admits(there, group).is_ok()) && left.has_room(*node, pod)
            };
            let elsewhere = (0..room.nodes().len()).find(takes);
            let node = elsewhere.unwrap_or(pod.node);
            left.add(pod.claim, node, &pod.requests, -1);
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
