//! The ledger in memory: a [`Fleet`] as an index that is updated claim by claim.
//!
//! Durability and ids are placement's; what to claim is decided in `place.rs` and `transact.rs`. Invariant: the index equals one computed
//! from scratch from the same members, capacities and claims.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use uuid::Uuid;

use crate::growing::copy_of;
use crate::{Capacity, Claim, Fleet, FleetMember, Interner, MemberKey, MemberRoom};

/// Members, their room and their claims.
///
/// Every change is a sequence of [`Ledger::put_claim`]; an [`Undo`] reverts them in reverse order, so that a batch that could not be
/// committed leaves no trace.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Sequence number of the last change (the head in placement). Decisions carry it.
    pub seq: i64,
    rooms: BTreeMap<MemberKey, MemberRoom>,
    claims: HashMap<Uuid, Arc<Claim>>,
    by_member: HashMap<MemberKey, BTreeMap<Uuid, Arc<Claim>>>,
    /// Each claim with its deployment intent group, as (group, claim).
    by_group: BTreeSet<(Uuid, Uuid)>,
    /// Shared logical clouds: they are the largest part of a request, and many apps have the same one.
    pub(crate) clouds: Interner<[MemberKey]>,
}

/// The claims before a change. Several changes must be reverted in the reverse order of making them.
#[derive(Debug, Default)]
#[must_use = "dropping it makes the change permanent"]
pub struct Undo {
    before: Vec<(Uuid, Option<Arc<Claim>>)>,
}

impl Undo {
    /// Ids of the claims that the change wrote or removed.
    pub fn touched(&self) -> BTreeSet<Uuid> {
        self.before.iter().map(|(id, _)| *id).collect()
    }
    /// Makes the change permanent.
    pub fn keep(self) {}
    pub(crate) fn record(&mut self, id: Uuid, before: Option<Arc<Claim>>) {
        self.before.push((id, before));
    }
}

impl From<&Fleet> for Ledger {
    fn from(fleet: &Fleet) -> Self {
        let mut ledger = Self::default();
        for claim in fleet.claims.values() {
            ledger.put_claim(claim.id, Some(Arc::clone(claim)));
        }
        for member in fleet.members.values() {
            ledger.set_member(member.clone());
        }
        for (key, capacity) in &fleet.capacity {
            ledger.set_capacity(key, Some(Arc::clone(capacity)));
        }
        ledger
    }
}

impl Ledger {
    /// The ledger as plain data.
    pub fn fleet(&self) -> Fleet {
        let capacity = |room: &MemberRoom| {
            let mut capacity = room.capacity.clone()?;
            let age = room.age_ms?;
            if capacity.age_ms != age {
                Arc::make_mut(&mut capacity).age_ms = age;
            }
            Some((room.key.clone(), capacity))
        };
        Fleet {
            members: self.rooms.values().filter_map(|r| Some((r.key.clone(), r.member.clone()?))).collect(),
            capacity: self.rooms.values().filter_map(capacity).collect(),
            claims: self.claims.iter().map(|(id, claim)| (*id, Arc::clone(claim))).collect(),
        }
    }

    /// Registers a member or updates it.
    pub fn set_member(&mut self, member: FleetMember) {
        let key = member.key.clone();
        self.room_mut(&key).member = Some(member);
    }

    /// Removes a member. Its claims stay until they are released.
    pub fn remove_member(&mut self, key: &MemberKey) {
        self.rooms.remove(key);
    }

    /// Sets the observed capacity of a member, with the age `capacity.age_ms`; `None` makes it unknown.
    pub fn set_capacity(&mut self, key: &MemberKey, capacity: Option<Arc<Capacity>>) {
        self.room_mut(key);
        let claims = self.by_member.get(key).into_iter().flat_map(BTreeMap::values);
        if let Some(room) = self.rooms.get_mut(key) {
            room.set_capacity(capacity, claims);
        }
    }

    /// Sets the age of each member's capacity in milliseconds; `None`: unknown. Must be called before each batch of decisions.
    pub fn set_ages(&mut self, age: impl Fn(&MemberKey) -> Option<u64>) {
        for room in self.rooms.values_mut() {
            room.age_ms = age(&room.key);
        }
    }

    fn room_mut(&mut self, key: &MemberKey) -> &mut MemberRoom {
        self.rooms.entry(key.clone()).or_insert_with(|| MemberRoom::new(key.clone()))
    }

    /// Replaces the room of a member.
    pub(crate) fn set_room(&mut self, room: MemberRoom) {
        self.rooms.insert(room.key.clone(), room);
    }

    /// The room of a member.
    pub fn room(&self, key: &MemberKey) -> Option<&MemberRoom> {
        self.rooms.get(key)
    }

    /// The room of a registered member, by its key as a string.
    pub(crate) fn registered(&self, key: &str) -> Option<&MemberRoom> {
        self.rooms.get(key).filter(|room| room.member.is_some())
    }

    /// The rooms of all members, sorted by key.
    pub fn rooms(&self) -> impl Iterator<Item = &MemberRoom> {
        self.rooms.values()
    }

    /// A claim by its id.
    pub fn claim(&self, id: &Uuid) -> Option<&Arc<Claim>> {
        self.claims.get(id)
    }

    /// All claims, in no particular order.
    pub fn claims(&self) -> impl Iterator<Item = &Arc<Claim>> {
        self.claims.values()
    }

    /// Claims on a member, sorted by id.
    pub fn claims_of(&self, member: &MemberKey) -> impl Iterator<Item = &Arc<Claim>> {
        self.by_member.get(member).into_iter().flat_map(BTreeMap::values)
    }

    /// Claims of a deployment intent group, sorted by id.
    pub(crate) fn claims_of_group(&self, dig: Uuid) -> impl Iterator<Item = &Claim> {
        let group = self.by_group.range((dig, Uuid::nil())..=(dig, Uuid::max()));
        group.filter_map(|(_, id)| self.claims.get(id)).map(Arc::as_ref)
    }

    /// Members that have claims, in no particular order.
    pub fn claimed(&self) -> impl Iterator<Item = &MemberKey> {
        self.by_member.iter().filter(|(_, claims)| !claims.is_empty()).map(|(key, _)| key)
    }

    /// Writes a claim, or removes it (`None`), without any check, and returns the previous one. Also used to load the ledger and to follow
    /// the changes of another process.
    pub fn put_claim(&mut self, id: Uuid, claim: Option<Arc<Claim>>) -> Option<Arc<Claim>> {
        let old = self.claims.get(&id).cloned();
        let group = |claim: &Option<Arc<Claim>>| claim.as_ref().map(|claim| claim.dig.id);
        if group(&old) != group(&claim) {
            if let Some(dig) = group(&old) {
                self.by_group.remove(&(dig, id));
            }
            self.by_group.extend(group(&claim).map(|dig| (dig, id)));
        }
        if let Some(old) = &old
            && claim.as_ref().is_none_or(|new| new.member != old.member)
        {
            if let Some(room) = self.rooms.get_mut(&old.member) {
                room.replace(Some(old), None);
            }
            if let Some(claims) = self.by_member.get_mut(&old.member) {
                claims.remove(&id);
            }
        }
        // Whether the other claims certainly count as before. Most new claims of a burst find their member strained, and to count all claims
        // of the member for each of them costs more with each app.
        let mut settled = false;
        match claim {
            None => {
                self.claims.remove(&id);
            }
            Some(new) => {
                let same = old.as_deref().filter(|old| old.member == new.member);
                if let Some(room) = self.rooms.get_mut(&new.member) {
                    settled = old.is_none() && room.takes_unchanged(&new);
                    room.replace(same, Some(&new));
                }
                self.index(id, &new);
                self.claims.insert(id, new);
            }
        }
        if !settled {
            for touched in [old.clone(), self.claims.get(&id).cloned()].into_iter().flatten() {
                self.settle(&touched);
            }
        }
        old
    }

    /// Recounts the member of a changed claim where the amounts of a claim depend on the other claims: with over-committed nodes, and where
    /// a copy grows.
    fn settle(&mut self, changed: &Claim) {
        let depends = |room: &&mut MemberRoom| room.is_strained() || room.is_growing() || copy_of(changed).is_some();
        if let Some(room) = self.rooms.get_mut(&changed.member).filter(depends) {
            room.recount(self.by_member.get(&changed.member).into_iter().flat_map(BTreeMap::values));
        }
    }

    fn index(&mut self, id: Uuid, claim: &Arc<Claim>) {
        // Most members are known, and their keys need no copy.
        match self.by_member.get_mut(&claim.member) {
            Some(claims) => {
                claims.insert(id, Arc::clone(claim));
            }
            None => {
                self.by_member.insert(claim.member.clone(), BTreeMap::from([(id, Arc::clone(claim))]));
            }
        }
    }

    /// As [`Ledger::put_claim`], and records how to revert it.
    pub(crate) fn put(&mut self, undo: &mut Undo, id: Uuid, claim: Option<Arc<Claim>>) {
        let before = self.put_claim(id, claim);
        undo.record(id, before);
    }

    /// Reverts a change.
    pub fn undo(&mut self, undo: Undo) {
        for (id, before) in undo.before.into_iter().rev() {
            self.put_claim(id, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClaimState, DigRef};

    fn claim(id: u128, group: u128) -> Arc<Claim> {
        Arc::new(Claim {
            id: Uuid::from_u128(id),
            dig: Arc::new(DigRef { id: Uuid::from_u128(group), ..DigRef::default() }),
            request: Arc::default(),
            member: MemberKey::new("x", "a"),
            state: ClaimState::Held,
            pods: Vec::new(),
            surging: false,
            fence: 1,
            operation: Uuid::nil(),
        })
    }

    #[test]
    fn claims_are_found_by_their_group_after_every_change_and_its_undo() {
        let mut ledger = Ledger::default();
        let of = |ledger: &Ledger, group: u128| -> Vec<u128> {
            ledger.claims_of_group(Uuid::from_u128(group)).map(|claim| claim.id.as_u128()).collect()
        };
        for (id, group) in [(3, 1), (1, 1), (2, 2), (u128::MAX, 1), (0, 2)] {
            ledger.put_claim(Uuid::from_u128(id), Some(claim(id, group)));
        }
        assert_eq!((of(&ledger, 1), of(&ledger, 2), of(&ledger, 3)), (vec![1, 3, u128::MAX], vec![0, 2], vec![]));
        let mut undo = Undo::default();
        ledger.put(&mut undo, Uuid::from_u128(1), None);
        ledger.put(&mut undo, Uuid::from_u128(3), Some(claim(3, 2)));
        ledger.put(&mut undo, Uuid::from_u128(4), Some(claim(4, 1)));
        assert_eq!((of(&ledger, 1), of(&ledger, 2)), (vec![4, u128::MAX], vec![0, 2, 3]));
        ledger.undo(undo);
        assert_eq!((of(&ledger, 1), of(&ledger, 2)), (vec![1, 3, u128::MAX], vec![0, 2]));
    }
}
