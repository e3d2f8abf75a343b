//! Finds nodes for the claims of a transaction that need room on one member.

use std::sync::Arc;

use crate::fit::{Ask, Free, pack};
use crate::growing::divide;
use crate::misfit::explain;
use crate::usage::{Remaining, counts_as, find, usage};
use crate::{Claim, ClaimState, Difference, MemberRoom, PodsOnNode};

/// A claim that needs room on its member.
pub(crate) struct Pending {
    pub claim: Claim,
    pub purpose: Purpose,
    /// The claim as it counts before the transaction.
    pub old: Option<Arc<Claim>>,
}

/// Why a claim needs room.
#[derive(PartialEq)]
pub(crate) enum Purpose {
    /// A new claim in the requested state.
    Take,
    /// A new claim: held if it fits now, else promised.
    TakeWhatFits,
    /// A promised claim becomes held.
    Admit,
    /// A claim gets more or larger pods; the kept ones stay on their nodes.
    Grow { kept: Vec<PodsOnNode> },
}

impl Pending {
    fn ask(&self) -> Ask<'_> {
        Ask { demand: &self.claim.request.demand, surge: self.claim.surging, now: self.claim.state != ClaimState::Promised }
    }
    pub fn differs(&self, code: &str, detail: String) -> Difference {
        Difference { code: code.into(), claim: self.claim.id, detail }
    }
}

/// Finds nodes for all pending claims of one member, or returns why some of them have no room.
pub(crate) fn grant(room: &MemberRoom, mut pending: Vec<Pending>) -> Result<Vec<Claim>, Vec<Difference>> {
    let mut left = Remaining::of(room.free());
    for one in &pending {
        count_old(&mut left, room, one, 1);
    }
    choose_states(left.free(room.nodes()), &mut pending);
    let asks: Vec<Ask<'_>> = pending.iter().map(Pending::ask).collect();
    if let Some(packing) = pack(left.free(room.nodes()), &asks) {
        return Ok(pending.into_iter().zip(packing).map(|(one, pods)| Claim { pods, ..one.claim }).collect());
    }
    one_by_one(room, pending)
}

/// Frees (`sign` 1) or takes (-1) the room that the claim counts before the transaction.
fn count_old(left: &mut Remaining, room: &MemberRoom, one: &Pending, sign: i64) {
    let Some(claim) = &one.old else { return };
    room.usage(claim, |state, n, amounts, times| left.add(state, n, amounts, sign * times));
}

/// Sets the state of claims with [`Purpose::TakeWhatFits`]: held if they fit now beside all others, else promised.
fn choose_states(free: Free<'_>, pending: &mut [Pending]) {
    let open: Vec<usize> = (0..pending.len()).filter(|i| pending[*i].purpose == Purpose::TakeWhatFits).collect();
    if open.is_empty() || pack(free, &pending.iter().map(Pending::ask).collect::<Vec<_>>()).is_some() {
        return;
    }
    for i in &open {
        pending[*i].claim.state = ClaimState::Promised;
    }
    for i in &open {
        pending[*i].claim.state = ClaimState::Held;
        if pack(free, &pending.iter().map(Pending::ask).collect::<Vec<_>>()).is_none() {
            pending[*i].claim.state = ClaimState::Promised;
        }
    }
}

/// The second attempt, one claim after the other, after a joint packing failed: claims that are admitted or grow may keep their pods on
/// their nodes, even if pods of others over-commit those nodes.
fn one_by_one(room: &MemberRoom, pending: Vec<Pending>) -> Result<Vec<Claim>, Vec<Difference>> {
    let mut left = Remaining::of(room.free());
    let mut granted = Vec::new();
    let mut refused = Vec::new();
    for one in pending {
        count_old(&mut left, room, &one, 1);
        let ask = one.ask();
        let afresh = pack(left.free(room.nodes()), &[ask]).and_then(|mut all| all.pop());
        let pods = afresh.or_else(|| match &one.purpose {
            Purpose::Admit => in_place(left.free(room.nodes()), &one),
            Purpose::Grow { kept } => keep_and_add(room, left.clone(), &one, kept),
            Purpose::Take | Purpose::TakeWhatFits => None,
        });
        let Some(pods) = pods else {
            let why = explain(left.free(room.nodes()), ask);
            let taken = one.purpose == Purpose::Admit && pack(left.free(room.nodes()), &[Ask { now: false, ..ask }]).is_none();
            let code = if taken { Difference::ROOM_TAKEN } else { "no_room" };
            refused.push(one.differs(code, format!("{} on {}: {}", one.claim.request.app, room.key, why.reason())));
            count_old(&mut left, room, &one, -1);
            continue;
        };
        let claim = Claim { pods, ..one.claim };
        usage(room.nodes(), &claim, None, |n, amounts, times, _| left.add(claim.state, n, amounts, -times));
        granted.push(claim);
    }
    if refused.is_empty() { Ok(granted) } else { Err(refused) }
}

/// The promised nodes, if they have room now. Their later room was reserved by the promise.
fn in_place(free: Free<'_>, one: &Pending) -> Option<Vec<PodsOnNode>> {
    let old = one.old.as_deref()?;
    let mut now = free.now.to_vec();
    for pods in &old.pods {
        let n = find(free.nodes, &pods.node)?;
        let requests = &old.request.demand.groups.get(pods.group)?.requests;
        for _ in 0..pods.count {
            if !now[n].fits(requests) {
                return None;
            }
            now[n].add(requests, -1);
        }
    }
    Some(old.pods.clone())
}

/// Leaves `kept` without a check on the nodes where they are observed, or else on those that the claim assumes, and finds nodes for the other
/// pods. `left` is what is free without the claim.
fn keep_and_add(room: &MemberRoom, mut left: Remaining, one: &Pending, kept: &[PodsOnNode]) -> Option<Vec<PodsOnNode>> {
    let claim = &one.claim;
    let stays = Claim { pods: kept.to_vec(), ..claim.clone() };
    let seen = room.observed(claim).map(|observed| divide(&stays, observed).0);
    usage(room.nodes(), &stays, seen.as_ref(), |n, amounts, times, seen| left.add(counts_as(claim, seen), n, amounts, -times));

    let mut rest = claim.request.demand.clone();
    for group in rest.groups.iter_mut().filter(|g| !g.per_node) {
        group.replicas += if claim.surging { group.surge } else { 0 };
    }
    for pods in kept {
        let group = &mut rest.groups[pods.group];
        // A pod per node has one on each already.
        group.replicas = if group.per_node { 0 } else { group.replicas.saturating_sub(pods.count) };
        group.per_node = false;
    }
    let ask = Ask { demand: &rest, surge: false, now: claim.state != ClaimState::Promised };
    let mut pods = pack(left.free(room.nodes()), &[ask])?.pop()?;
    for keep in kept {
        match pods.iter_mut().find(|p| p.group == keep.group && p.node == keep.node) {
            Some(there) => there.count += keep.count,
            None => pods.push(keep.clone()),
        }
    }
    pods.sort_by(|a, b| (a.group, &a.node).cmp(&(b.group, &b.node)));
    Some(pods)
}
