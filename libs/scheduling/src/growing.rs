//! Additional pods of a copy that somebody else has scaled beyond its claim, while room is made for them ([`crate::Demand::grows`]).
//!
//! The pods exist already, and the scheduler of the member starts them as soon as there is room: before their claim is held, and even before
//! it is made. So what is observed of the copy beyond its own claim is a part of what they ask for. It counts once.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use crate::{Amounts, AppRequest, ByNode, Capacity, Claim, Ledger, MemberRoom, Observed};

/// The claim of the copy that grows by the pods of this one.
pub(crate) fn copy_of(claim: &Claim) -> Option<Uuid> {
    claim.request.demand.grows
}

/// Divides the observation of a copy into what its claim is for and what is beyond that. Pods on the nodes of the claim's witness belong to
/// it first.
pub(crate) fn divide(claim: &Claim, observed: &Observed) -> (Observed, Observed) {
    let (mut assumed, mut left) = (BTreeMap::<&str, Amounts>::new(), Amounts::default());
    for pods in &claim.pods {
        if let Some(group) = claim.request.demand.groups.get(pods.group) {
            assumed.entry(&pods.node).or_default().add(&group.requests, i64::from(pods.count));
            left.add(&group.requests, i64::from(pods.count));
        }
    }
    let nothing = Amounts::default();
    let mut own: BTreeMap<&str, Amounts> = BTreeMap::new();
    for elsewhere in [false, true] {
        for (node, requests) in observed.requests.iter() {
            let own = own.entry(node).or_default();
            let here = requests.minus(own).min(&left).max(&nothing);
            let here = if elsewhere { here } else { here.min(assumed.get(node).unwrap_or(&nothing)) };
            own.add(&here, 1);
            left.add(&here, -1);
        }
    }
    let beyond = observed.requests.iter().map(|(node, requests)| (node, requests.minus(own.get(node).unwrap_or(&nothing))));
    let beyond = by_node(beyond.collect());
    (Observed { requests: by_node(own), ..observed.clone() }, Observed { requests: beyond, ..Observed::default() })
}

fn by_node(amounts: BTreeMap<&str, Amounts>) -> ByNode {
    let some = amounts.into_iter().filter(|(_, amounts)| !amounts.is_zero());
    some.map(|(node, amounts)| (node.to_owned(), amounts)).collect::<BTreeMap<String, Amounts>>().into()
}

/// By claim: what is observed of each copy among `claims` that has another claim for additional pods, without these pods; and what is observed
/// of the additional pods.
pub(crate) fn divided<'c>(capacity: &Capacity, claims: impl Iterator<Item = &'c Arc<Claim>> + Clone) -> BTreeMap<Uuid, Observed> {
    let mut divided = BTreeMap::new();
    for (more, copy) in claims.clone().filter_map(|more| Some((more, copy_of(more)?))) {
        let copy = claims.clone().find(|claim| claim.id == copy && !divided.contains_key(&copy));
        if let Some((copy, observed)) = copy.and_then(|copy| Some((copy, capacity.observed.get(&copy.id)?))) {
            let (own, beyond) = divide(copy, observed);
            divided.extend([(copy.id, own), (more.id, beyond)]);
        }
    }
    divided
}

impl Ledger {
    /// The ledger as it is for apps that are additional pods of copies: those of them that run already do not count, because room is sought
    /// for all of them. `None` if no app is that.
    pub(crate) fn for_growth<'r>(&self, apps: impl Iterator<Item = &'r AppRequest>) -> Option<Self> {
        let copies: Vec<&Arc<Claim>> = apps.filter_map(|app| self.claim(&app.demand.grows?)).collect();
        if copies.is_empty() {
            return None;
        }
        let mut ledger = self.clone();
        for copy in copies {
            if let Some(room) = ledger.room_for_growth(copy) {
                ledger.set_room(room);
            }
        }
        Some(ledger)
    }

    /// The same for the room of one copy. `None` if nothing is observed of it.
    pub(crate) fn room_for_growth(&self, copy: &Claim) -> Option<MemberRoom> {
        let room = self.room(&copy.member)?;
        let mut capacity = Capacity::clone(room.capacity.as_ref()?);
        let observed = capacity.observed.get_mut(&copy.id)?;
        *observed = divide(copy, observed).0;
        let (mut seen, claims) = (room.clone(), self.claims_of(&copy.member).collect::<Vec<_>>());
        seen.set_capacity(Some(Arc::new(capacity)), claims.iter().copied());
        seen.age_ms = room.age_ms;
        Some(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClaimState, Demand, DigRef, MemberKey, PodGroup, PodsOnNode};

    fn claim(pods: &[(&str, u32)]) -> Claim {
        let replicas = pods.iter().map(|(_, count)| count).sum();
        let group = PodGroup { replicas, requests: Amounts::pod(500, 10), ..PodGroup::default() };
        Claim {
            id: Uuid::from_u128(1),
            dig: Arc::new(DigRef::default()),
            request: Arc::new(AppRequest { demand: Demand { groups: vec![group], ..Demand::default() }, ..AppRequest::default() }),
            member: MemberKey::default(),
            state: ClaimState::Held,
            pods: pods.iter().map(|(node, count)| PodsOnNode { node: (*node).into(), group: 0, count: *count }).collect(),
            surging: false,
            fence: 0,
            operation: Uuid::nil(),
        }
    }

    fn pods_on(nodes: &[(&str, i64)]) -> ByNode {
        let amounts = nodes.iter().map(|(node, count)| ((*node).to_owned(), Amounts::pod(500, 10).times(*count)));
        amounts.collect::<BTreeMap<_, _>>().into()
    }

    #[test]
    fn what_is_observed_beyond_a_claim_is_divided_from_it() {
        for (claimed, seen, own, beyond) in [
            (&[("n1", 2)][..], &[("n1", 2)][..], &[("n1", 2)][..], &[][..]),
            (&[("n1", 2)], &[("n1", 1)], &[("n1", 1)], &[]),
            (&[("n1", 1)], &[("n1", 1), ("n2", 2)], &[("n1", 1)], &[("n2", 2)]),
            // The scheduler has put the pod elsewhere: one of those that are there is the copy's own.
            (&[("n2", 1)], &[("n1", 3)], &[("n1", 1)], &[("n1", 2)]),
            (&[("n1", 1), ("n3", 1)], &[("n1", 2), ("n2", 1)], &[("n1", 2)], &[("n2", 1)]),
        ] {
            let observed = Observed { requests: pods_on(seen), ready_s: Some(1.0), ..Observed::default() };
            let found = divide(&claim(claimed), &observed);
            assert_eq!((found.0.requests, found.1.requests), (pods_on(own), pods_on(beyond)), "{claimed:?} claimed, {seen:?} seen");
            assert_eq!((found.0.ready_s, found.1.ready_s), (Some(1.0), None));
        }
    }
}
