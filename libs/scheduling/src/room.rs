//! The room of one member: the free amounts on each node, now and later, updated claim by claim.
//!
//! ```text
//! now   = allocatable - foreign - Σ held - Σ leaving   - leftovers
//! later = allocatable - foreign - Σ held - Σ promised  - leftovers      (leftovers: pods of bindings without a claim here)
//! ```
//! Observed pods of a claim count on the nodes where they are observed; amounts that it claims beyond them count on its assumed nodes.
//! So a claim counts in total, and on each node, the larger of the claimed and the observed amounts.
//!
//! While room is made for additional pods of a copy (`growing.rs`), its observed pods are divided between its claim and theirs. Observed pods
//! count now whatever the state of their claim.
//!
//! The member's scheduler may have filled an assumed node with pods of others. Pods that are not observed yet then count on another
//! node (`displaced.rs`), since otherwise the room where they will run would be given away twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use crate::displaced::Displaced;
use crate::fit::Free;
use crate::growing::{copy_of, divided};
use crate::usage::{Remaining, counts_as, find, usage};
use crate::{Amounts, Capacity, Claim, ClaimState, FleetMember, MemberKey, Node, Observed};

/// A member and its room.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemberRoom {
    pub key: MemberKey,
    /// The registered cluster. Absent if only its capacity is known, since feeds arrive in any order; then nothing is claimed there.
    pub member: Option<FleetMember>,
    /// Last observed capacity.
    pub capacity: Option<Arc<Capacity>>,
    /// Age of the observation in milliseconds. Absent if unknown.
    pub age_ms: Option<u64>,
    nodes: Arc<Vec<Node>>,
    remaining: Remaining,
    /// Claims that count on other nodes because their assumed nodes are full.
    displaced: Displaced,
    /// Observations that are divided between the claim of a copy and that of its additional pods.
    divided: BTreeMap<Uuid, Observed>,
    /// Some claim here is for additional pods of a copy.
    growing: bool,
    /// How many bindings without a claim here have pods.
    leftovers: usize,
    /// Some node is over-committed.
    overdrawn: bool,
    /// For each resource, the largest free amount on any schedulable node, now and later. Rules out full members quickly.
    largest: Amounts,
    /// Sum over the schedulable nodes.
    allocatable: Amounts,
    free: Amounts,
}

impl MemberRoom {
    pub(crate) fn new(key: MemberKey) -> Self {
        Self { key, ..Self::default() }
    }

    /// The free amounts on each node.
    pub fn free(&self) -> Free<'_> {
        self.remaining.free(&self.nodes)
    }

    /// Its nodes, sorted by name.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Whether room may be claimed now: the member is Ready and its capacity was observed recently.
    pub fn is_known(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.state.is_known(self.capacity_age()))
    }

    /// Whether its capacity is unknown but expected soon; see [`crate::MemberState::is_awaited`].
    pub fn is_awaited(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.state.is_awaited(self.capacity_age()))
    }

    fn capacity_age(&self) -> Option<u64> {
        self.capacity.as_ref().and(self.age_ms)
    }

    /// Whether pods of apps that have left still take room. They are gone soon, or the observation is older than their end.
    pub fn has_leftovers(&self) -> bool {
        self.leftovers > 0
    }

    /// Priority of its provider; 10 if it is not registered.
    pub fn priority(&self) -> u8 {
        self.member.as_ref().map_or(10, |m| m.priority)
    }

    /// Total allocatable and free amounts of its schedulable nodes, or `None` if it has no CPU or no memory.
    pub(crate) fn sums(&self) -> Option<(&Amounts, &Amounts)> {
        (self.allocatable.cpu > 0 && self.allocatable.memory > 0).then_some((&self.allocatable, &self.free))
    }

    /// For each resource, the largest free amount on any schedulable node, now and later; at least 0.
    pub(crate) fn largest(&self) -> &Amounts {
        &self.largest
    }

    /// Whether a pod with these requests might fit on some node. `false` is certain, `true` is not.
    pub(crate) fn may_fit(&self, requests: &Amounts) -> bool {
        self.largest.fits(requests)
    }

    /// The dominant share: the larger of the CPU and memory requests after `more` is placed, as a share of the schedulable nodes' capacity.
    pub fn share_with(&self, more: &Amounts) -> f64 {
        let share = |all: i64, free: i64, more: i64| {
            if all <= 0 { if more > 0 { f64::MAX } else { 0.0 } } else { (all - free + more) as f64 / all as f64 }
        };
        share(self.allocatable.cpu, self.free.cpu, more.cpu).max(share(self.allocatable.memory, self.free.memory, more.memory))
    }

    /// Sets the observed capacity and recounts `claims`, which are all claims of this member.
    pub(crate) fn set_capacity<'c>(&mut self, capacity: Option<Arc<Capacity>>, claims: impl Iterator<Item = &'c Arc<Claim>> + Clone) {
        self.nodes = capacity.as_ref().map(|c| Arc::clone(&c.nodes)).unwrap_or_default();
        if !self.nodes.is_sorted_by(|a, b| a.name <= b.name) {
            Arc::make_mut(&mut self.nodes).sort_by(|a, b| a.name.cmp(&b.name));
        }
        self.age_ms = capacity.as_ref().map(|c| c.age_ms);
        self.capacity = capacity;
        self.recount(claims);
    }

    /// Whether the amounts of a claim depend on the other claims, so that each change needs a recount.
    pub(crate) fn is_strained(&self) -> bool {
        self.overdrawn || !self.displaced.is_empty()
    }

    /// Whether some claim here is for additional pods of a copy: then, too, each change needs a recount.
    pub(crate) fn is_growing(&self) -> bool {
        self.growing
    }

    /// Whether a new claim on this strained member certainly leaves the amounts of all others as they are: none of its pods is observed, and all
    /// fit on their assumed nodes beside what counts there. A pod that found room on a node still does, and none finds more.
    pub(crate) fn takes_unchanged(&self, new: &Claim) -> bool {
        if !self.is_strained() || self.growing || copy_of(new).is_some() || self.observed(new).is_some() {
            return false;
        }
        let mut asked: BTreeMap<usize, Amounts> = BTreeMap::new();
        usage(&self.nodes, new, None, |node, amounts, times, _| asked.entry(node).or_default().add(amounts, times));
        asked.iter().all(|(node, amounts)| self.remaining.fits(new.state, *node, amounts))
    }

    /// Recounts `claims`, which are all claims of this member.
    pub(crate) fn recount<'c>(&mut self, claims: impl Iterator<Item = &'c Arc<Claim>> + Clone) {
        self.displaced = Displaced::default();
        self.growing = claims.clone().any(|claim| copy_of(claim).is_some());
        let growing = self.capacity.as_ref().filter(|_| self.growing);
        self.divided = growing.map(|capacity| divided(capacity, claims.clone())).unwrap_or_default();
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
        self.leftovers = leftovers.len();
        for observed in leftovers.into_values() {
            self.count_leftover(observed, -1);
        }
        self.sum_up();
    }

    /// Replaces a claim of this member: `old` no longer counts, `new` does.
    pub(crate) fn replace(&mut self, old: Option<&Claim>, new: Option<&Claim>) {
        let capacity = self.capacity.clone();
        let Some(id) = old.or(new).map(|claim| claim.id) else { return };
        let observed = capacity.as_ref().and_then(|c| c.observed.get(&id));
        match (old, observed) {
            (Some(old), _) => self.count(old, 1),
            (None, Some(observed)) => {
                self.leftovers -= 1;
                self.count_leftover(observed, 1);
            }
            (None, None) => {}
        }
        match (new, observed) {
            (Some(new), _) => self.count(new, -1),
            (None, Some(observed)) => {
                self.leftovers += 1;
                self.count_leftover(observed, -1);
            }
            (None, None) => {}
        }
        self.sum_up();
    }

    fn count(&mut self, claim: &Claim, sign: i64) {
        let mut remaining = std::mem::take(&mut self.remaining);
        self.usage(claim, |state, n, amounts, times| remaining.add(state, n, amounts, sign * times));
        self.remaining = remaining;
    }

    /// Calls `each` with the amounts that a claim of this member counts on each node, as (state, node, amounts, times).
    pub(crate) fn usage(&self, claim: &Claim, mut each: impl FnMut(ClaimState, usize, &Amounts, i64)) {
        match self.displaced.get(claim) {
            Some(counted) => counted.iter().for_each(|(state, n, amounts)| each(*state, *n, amounts, 1)),
            None => {
                let each = |n, amounts: &Amounts, times, observed| each(counts_as(claim, observed), n, amounts, times);
                usage(&self.nodes, claim, self.observed(claim), each);
            }
        }
    }

    /// The observation of a claim.
    pub(crate) fn observed(&self, claim: &Claim) -> Option<&Observed> {
        self.divided.get(&claim.id).or_else(|| self.capacity.as_ref()?.observed.get(&claim.id))
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
