//! The ledger's model: a [`Fleet`] kept as an index, changed claim by claim, never inconsistent.
//!
//! Not here: durability and ids (placement's), what to claim ([`crate::place`], [`crate::transact`]). The invariant: the
//! index always equals one computed from scratch out of the same members, capacities and claims.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use uuid::Uuid;

use crate::{Capacity, Claim, Fleet, FleetMember, Interner, MemberKey, MemberRoom};

/// Members, their room and the claims on it.
///
/// Every change is one [`Ledger::put_claim`] after the other; an [`Undo`] takes them back in reverse, so that a batch
/// that could not be committed leaves no trace.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Sequence number of the last change (placement's head); decisions carry it.
    pub seq: i64,
    rooms: BTreeMap<MemberKey, MemberRoom>,
    claims: HashMap<Uuid, Arc<Claim>>,
    by_member: HashMap<MemberKey, BTreeSet<Uuid>>,
    /// Claims of apps whose calls are known, by deployment intent group.
    calling: HashMap<Uuid, BTreeSet<Uuid>>,
    /// A logical cloud is most of what an app asks for, and the same for many apps.
    pub(crate) clouds: Interner<[MemberKey]>,
}

/// What claims were before a change. Take changes back in reverse order of making them.
#[derive(Debug, Default)]
#[must_use = "dropping it keeps the change for good"]
pub struct Undo {
    before: Vec<(Uuid, Option<Arc<Claim>>)>,
}

impl Undo {
    /// Claims that the change wrote or removed, each once.
    pub fn touched(&self) -> BTreeSet<Uuid> {
        self.before.iter().map(|(id, _)| *id).collect()
    }
    /// Keeps the change: nothing to take back.
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
    /// The same as plain data.
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

    /// Registers or changes a member.
    pub fn set_member(&mut self, member: FleetMember) {
        let key = member.key.clone();
        self.room_mut(&key).member = Some(member);
    }

    /// A member is gone. Claims on it stay until they are released.
    pub fn remove_member(&mut self, key: &MemberKey) {
        self.rooms.remove(key);
    }

    /// What was seen of a member, aged `capacity.age_ms`; none: nothing is known any more.
    pub fn set_capacity(&mut self, key: &MemberKey, capacity: Option<Arc<Capacity>>) {
        self.room_mut(key);
        let ids = self.by_member.get(key);
        let claims = ids.into_iter().flatten().filter_map(|id| self.claims.get(id));
        if let Some(room) = self.rooms.get_mut(key) {
            room.set_capacity(capacity, claims);
        }
    }

    /// Sets how old the knowledge of each member is; none: unknown. Call it before a batch of decisions.
    pub fn set_ages(&mut self, age: impl Fn(&MemberKey) -> Option<u64>) {
        for room in self.rooms.values_mut() {
            room.age_ms = age(&room.key);
        }
    }

    fn room_mut(&mut self, key: &MemberKey) -> &mut MemberRoom {
        self.rooms.entry(key.clone()).or_insert_with(|| MemberRoom::new(key.clone()))
    }

    /// A member's room.
    pub fn room(&self, key: &MemberKey) -> Option<&MemberRoom> {
        self.rooms.get(key)
    }

    /// The registered member of that key, given as a string.
    pub(crate) fn registered(&self, key: &str) -> Option<&MemberRoom> {
        self.rooms.get(key).filter(|room| room.member.is_some())
    }

    /// All members, by key.
    pub fn rooms(&self) -> impl Iterator<Item = &MemberRoom> {
        self.rooms.values()
    }

    /// A claim.
    pub fn claim(&self, id: &Uuid) -> Option<&Arc<Claim>> {
        self.claims.get(id)
    }

    /// All claims, in no particular order.
    pub fn claims(&self) -> impl Iterator<Item = &Arc<Claim>> {
        self.claims.values()
    }

    /// Claims on a member, by id.
    pub fn claims_of(&self, member: &MemberKey) -> impl Iterator<Item = &Arc<Claim>> {
        self.by_member.get(member).into_iter().flatten().filter_map(|id| self.claims.get(id))
    }

    /// Claims of a deployment intent group whose calls are known, by id.
    pub(crate) fn calling(&self, dig: Uuid) -> impl Iterator<Item = &Claim> {
        self.calling.get(&dig).into_iter().flatten().filter_map(|id| self.claims.get(id)).map(Arc::as_ref)
    }

    /// Members that have claims, in no particular order.
    pub fn claimed(&self) -> impl Iterator<Item = &MemberKey> {
        self.by_member.iter().filter(|(_, ids)| !ids.is_empty()).map(|(key, _)| key)
    }

    /// Writes a claim as it is, or removes it, and returns what was there. Nothing is judged: this is also how the ledger
    /// is loaded and how the changes of another process are followed.
    pub fn put_claim(&mut self, id: Uuid, claim: Option<Arc<Claim>>) -> Option<Arc<Claim>> {
        let old = self.claims.get(&id).cloned();
        if let Some(old) = old.as_deref().filter(|old| old.request.terms.calls.is_some())
            && let Some(ids) = self.calling.get_mut(&old.dig.id)
        {
            ids.remove(&id);
            if ids.is_empty() {
                self.calling.remove(&old.dig.id);
            }
        }
        if let Some(new) = claim.as_deref().filter(|new| new.request.terms.calls.is_some()) {
            self.calling.entry(new.dig.id).or_default().insert(id);
        }
        if let Some(old) = &old
            && claim.as_ref().is_none_or(|new| new.member != old.member)
        {
            if let Some(room) = self.rooms.get_mut(&old.member) {
                room.replace(Some(old), None);
            }
            if let Some(ids) = self.by_member.get_mut(&old.member) {
                ids.remove(&id);
            }
        }
        match claim {
            None => {
                self.claims.remove(&id);
            }
            Some(new) => {
                let same = old.as_deref().filter(|old| old.member == new.member);
                if let Some(room) = self.rooms.get_mut(&new.member) {
                    room.replace(same, Some(&new));
                }
                if same.is_none() {
                    self.index(&new);
                }
                self.claims.insert(id, new);
            }
        }
        for touched in [old.clone(), self.claims.get(&id).cloned()].into_iter().flatten() {
            self.settle(&touched.member);
        }
        old
    }

    /// Where nodes are short, what one claim counts depends on the others.
    fn settle(&mut self, member: &MemberKey) {
        if let Some(room) = self.rooms.get_mut(member).filter(|room| room.is_strained()) {
            let ids = self.by_member.get(member);
            room.recount(ids.into_iter().flatten().filter_map(|id| self.claims.get(id)));
        }
    }

    fn index(&mut self, claim: &Claim) {
        match self.by_member.get_mut(&claim.member) {
            Some(ids) => {
                ids.insert(claim.id);
            }
            None => {
                self.by_member.insert(claim.member.clone(), BTreeSet::from([claim.id]));
            }
        }
    }

    /// [`Ledger::put_claim`] that remembers how to take it back.
    pub(crate) fn put(&mut self, undo: &mut Undo, id: Uuid, claim: Option<Arc<Claim>>) {
        let before = self.put_claim(id, claim);
        undo.record(id, before);
    }

    /// Takes a change back.
    pub fn undo(&mut self, undo: Undo) {
        for (id, before) in undo.before.into_iter().rev() {
            self.put_claim(id, before);
        }
    }
}
