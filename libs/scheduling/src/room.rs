//! The room of one member, kept current claim by claim: what is free on each node now and later.
//!
//! ```text
//! now   = allocatable - foreign - Σ held - Σ leaving   - leftovers
//! later = allocatable - foreign - Σ held - Σ promised  - leftovers      (leftovers: pods of bindings without a claim here)
//! ```
//! A claim counts what is observed of it where it is observed; what it claims beyond that stays on its assumed nodes,
//! so that in all it counts the larger of both and on no node more than the larger of both.
//!
//! The member's scheduler may have put the pods of others on an assumed node. Then there is no room there for what is still to
//! come, which will be somewhere else in the member: it counts there (`displaced.rs`), else that room would be given away twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::displaced::Displaced;
use crate::fit::Free;
use crate::usage::{Remaining, find, usage};
use crate::{Amounts, Capacity, Claim, ClaimState, FleetMember, MemberKey, Node, Observed};

/// A member with its room.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemberRoom {
    /// Key.
    pub key: MemberKey,
    /// The registered cluster; absent: only its capacity is known (feeds arrive in any order), so nothing goes there.
    pub member: Option<FleetMember>,
    /// What was last seen of it.
    pub capacity: Option<Arc<Capacity>>,
    /// Age of that; absent: unknown.
    pub age_ms: Option<u64>,
    nodes: Arc<Vec<Node>>,
    remaining: Remaining,
    /// Claims that count elsewhere than they say, because their nodes are taken.
    displaced: Displaced,
    /// More is counted on some node than it has.
    overdrawn: bool,
    /// The most that is free on any schedulable node, resource by resource, now and later: skips members quickly.
    largest: Amounts,
    /// Sums over schedulable nodes.
    allocatable: Amounts,
    free: Amounts,
}

impl MemberRoom {
    pub(crate) fn new(key: MemberKey) -> Self {
        Self { key, ..Self::default() }
    }

    /// Its free room, node by node.
    pub fn free(&self) -> Free<'_> {
        self.remaining.free(&self.nodes)
    }

    /// Its nodes, by name.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Whether something may be claimed there at all, now: Ready, and seen not too long ago.
    pub fn is_known(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.state.is_known(self.capacity_age()))
    }

    /// Whether it is not known yet, or not any more, though nobody says that it is silent: then it may soon be heard of.
    pub fn is_awaited(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.state.is_awaited(self.capacity_age()))
    }

    fn capacity_age(&self) -> Option<u64> {
        self.capacity.as_ref().and(self.age_ms)
    }

    /// Priority of its provider; 10 while it is not registered.
    pub fn priority(&self) -> u8 {
        self.member.as_ref().map_or(10, |m| m.priority)
    }

    /// What its schedulable nodes offer and what of it is free, in all; none: nothing that could be shared.
    pub(crate) fn sums(&self) -> Option<(&Amounts, &Amounts)> {
        (self.allocatable.cpu > 0 && self.allocatable.memory > 0).then_some((&self.allocatable, &self.free))
    }

    /// Whether a pod of `requests` may have room on some node. True is no promise.
    pub(crate) fn may_fit(&self, requests: &Amounts) -> bool {
        self.largest.fits(requests)
    }

    /// Dominant share of requests (CPU, memory) over its schedulable nodes after `more` is placed, 0..1 and above.
    pub fn share_with(&self, more: &Amounts) -> f64 {
        let share = |all: i64, free: i64, more: i64| {
            if all <= 0 { if more > 0 { f64::MAX } else { 0.0 } } else { (all - free + more) as f64 / all as f64 }
        };
        share(self.allocatable.cpu, self.free.cpu, more.cpu).max(share(self.allocatable.memory, self.free.memory, more.memory))
    }

    /// Sets what was seen of it, and counts `claims` (all of this member) anew.
    pub(crate) fn set_capacity<'c>(&mut self, capacity: Option<Arc<Capacity>>, claims: impl Iterator<Item = &'c Arc<Claim>> + Clone) {
        self.nodes = capacity.as_ref().map(|c| Arc::clone(&c.nodes)).unwrap_or_default();
        if !self.nodes.is_sorted_by(|a, b| a.name <= b.name) {
            Arc::make_mut(&mut self.nodes).sort_by(|a, b| a.name.cmp(&b.name));
        }
        self.age_ms = capacity.as_ref().map(|c| c.age_ms);
        self.capacity = capacity;
        self.recount(claims);
    }

    /// Whether what a claim counts depends on the others: then a change of one counts all anew.
    pub(crate) fn is_strained(&self) -> bool {
        self.overdrawn || !self.displaced.is_empty()
    }

    /// Counts `claims`, all of this member.
    pub(crate) fn recount<'c>(&mut self, claims: impl Iterator<Item = &'c Arc<Claim>> + Clone) {
        self.displaced = Displaced::default();
        self.count_all(claims.clone());
        if self.overdrawn {
            self.displaced = Displaced::of(self.free(), |claim| self.observed(claim), claims.clone());
            if !self.displaced.is_empty() {
                self.count_all(claims);
            }
        }
    }

    fn count_all<'c>(&mut self, claims: impl Iterator<Item = &'c Arc<Claim>>) {
        let free: Vec<Amounts> = self.nodes.iter().map(|n| n.allocatable.minus(&n.foreign)).collect();
        self.remaining = Remaining { now: free.clone(), later: free };
        let capacity = self.capacity.clone();
        let mut leftovers: BTreeMap<_, _> = capacity.as_ref().map_or_else(BTreeMap::new, |c| c.observed.iter().collect());
        for claim in claims {
            leftovers.remove(&claim.id);
            self.count(claim, -1);
        }
        for observed in leftovers.into_values() {
            self.count_leftover(observed, -1);
        }
        self.sum_up();
    }

    /// A claim is written or goes: `old` no longer counts, `new` does (both of this member).
    pub(crate) fn replace(&mut self, old: Option<&Claim>, new: Option<&Claim>) {
        let capacity = self.capacity.clone();
        let Some(id) = old.or(new).map(|claim| claim.id) else { return };
        let observed = capacity.as_ref().and_then(|c| c.observed.get(&id));
        match (old, observed) {
            (Some(old), _) => self.count(old, 1),
            (None, Some(observed)) => self.count_leftover(observed, 1),
            (None, None) => {}
        }
        match (new, observed) {
            (Some(new), _) => self.count(new, -1),
            (None, Some(observed)) => self.count_leftover(observed, -1),
            (None, None) => {}
        }
        self.sum_up();
    }

    fn count(&mut self, claim: &Claim, sign: i64) {
        let mut remaining = std::mem::take(&mut self.remaining);
        self.usage(claim, |n, amounts, times| remaining.add(claim.state, n, amounts, sign * times));
        self.remaining = remaining;
    }

    /// What a claim of this member counts on each node, as (node, amounts, times).
    pub(crate) fn usage(&self, claim: &Claim, mut each: impl FnMut(usize, &Amounts, i64)) {
        match self.displaced.get(claim) {
            Some(counted) => counted.iter().for_each(|(n, amounts)| each(*n, amounts, 1)),
            None => usage(&self.nodes, claim, self.observed(claim), |n, amounts, times, _| each(n, amounts, times)),
        }
    }

    /// What was seen of a claim.
    pub(crate) fn observed(&self, claim: &Claim) -> Option<&Observed> {
        self.capacity.as_ref()?.observed.get(&claim.id)
    }

    fn count_leftover(&mut self, observed: &Observed, sign: i64) {
        for (node, requests) in observed.requests.iter() {
            if let Some(n) = find(&self.nodes, node) {
                self.remaining.add(ClaimState::Held, n, requests, sign);
            }
        }
    }

    fn sum_up(&mut self) {
        self.largest = Amounts::default();
        self.allocatable = Amounts::default();
        self.free = Amounts::default();
        let short = |amounts: &Amounts| amounts.cpu < 0 || amounts.memory < 0 || amounts.pods < 0 || amounts.extra.values().any(|n| *n < 0);
        self.overdrawn = self.remaining.now.iter().chain(&self.remaining.later).any(short);
        for (n, node) in self.nodes.iter().enumerate() {
            if node.unschedulable {
                continue;
            }
            let free = self.remaining.now[n].min(&self.remaining.later[n]);
            self.largest = self.largest.max(&free);
            self.allocatable.add(&node.allocatable, 1);
            self.free.add(&free, 1);
        }
    }
}
