//! The one in-memory copy: the ledger, who is registered, how old each member's capacity is, which fences released claims.
//!
//! Claims change only by the writer's hand. Members and capacity change here and nowhere else: they are never written down.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_api::members::Member;
use drover_scheduling::{Capacity, Claim, FleetMember, ImageNames, Ledger, MemberKey, MemberRoom, MemberState};
use uuid::Uuid;

use super::Fences;
use crate::store::News;

/// See the module.
#[derive(Clone, Default)]
pub struct Book {
    /// Members, capacity, claims.
    pub ledger: Ledger,
    /// Fences of those who released claims, so that an older writer cannot take the room after all.
    pub fences: Fences,
    /// Members that may be other than the fleet was told; who tells it takes them.
    pub changed: BTreeSet<MemberKey>,
    registered: Option<BTreeMap<MemberKey, FleetMember>>,
    seen: HashMap<MemberKey, Seen>,
    names: ImageNames,
}

/// When a capacity came and how old it was then.
#[derive(Clone, Copy)]
struct Seen {
    at: Instant,
    age: Duration,
}

impl Seen {
    /// How old it is now, milliseconds.
    fn age_ms(&self) -> u64 {
        u64::try_from((self.age + self.at.elapsed()).as_millis()).unwrap_or(u64::MAX)
    }
}

impl Book {
    /// Whether it is known at all which members there are.
    pub fn knows_members(&self) -> bool {
        self.registered.is_some()
    }

    /// A batch of the feed `members`.
    pub fn follow_members(&mut self, reset: bool, items: Vec<(String, Option<Member>)>) {
        let registered = self.registered.get_or_insert_default();
        if reset {
            registered.clear();
        }
        let keys: Vec<MemberKey> = items.iter().map(|(key, _)| MemberKey(key.clone())).collect();
        for (key, member) in items {
            let key = MemberKey(key);
            match member {
                Some(member) => registered.insert(key.clone(), fleet_member(key, member)),
                None => registered.remove(&key),
            };
        }
        if reset {
            self.settle_members();
        }
        keys.iter().for_each(|key| self.settle(key));
    }

    /// Makes the ledger's members those that are registered, and those that are not but still have claims: these leave.
    pub fn settle_members(&mut self) {
        let registered = self.registered.iter().flat_map(BTreeMap::keys);
        let rooms = self.ledger.rooms().map(|room| &room.key);
        let keys: BTreeSet<MemberKey> = registered.chain(rooms).chain(self.ledger.claimed()).cloned().collect();
        keys.iter().for_each(|key| self.settle(key));
    }

    /// The same for one member.
    fn settle(&mut self, key: &MemberKey) {
        let Some(registered) = &self.registered else { return };
        let room = self.ledger.room(key);
        let known = room.and_then(|room| room.member.as_ref());
        let claimed = self.ledger.claims_of(key).next().is_some();
        let due = registered.get(key).cloned().or_else(|| claimed.then(|| leaving(key, known)));
        // A room may be there without a member: it goes.
        if due.as_ref() == known && (due.is_some() || room.is_none()) {
            return;
        }
        self.changed.insert(key.clone());
        match due {
            Some(member) => self.ledger.set_member(member),
            None => {
                self.ledger.remove_member(key);
                self.seen.remove(key);
            }
        }
    }

    /// A value of the feed `capacity`.
    pub fn follow_capacity(&mut self, key: MemberKey, capacity: Option<Arc<Capacity>>) {
        match &capacity {
            Some(capacity) => self.seen.insert(key.clone(), Seen { at: Instant::now(), age: Duration::from_millis(capacity.age_ms) }),
            None => self.seen.remove(&key),
        };
        self.ledger.set_capacity(&key, capacity);
        self.settle(&key);
    }

    /// Lets a member's images be kept once, whoever else has them.
    pub fn share_images(&mut self, key: &MemberKey, capacity: &mut Capacity) {
        self.names.share_all(capacity, self.ledger.room(key).and_then(|room| room.capacity.as_deref()));
    }

    /// Members whose capacity is told but not in `keys`.
    pub fn capacity_besides(&self, keys: &[MemberKey]) -> Vec<MemberKey> {
        self.seen.keys().filter(|key| !keys.contains(key)).cloned().collect()
    }

    /// Whether pods of one of these bindings take room where it is known well enough to say so.
    pub fn sees(&self, bindings: &BTreeSet<Uuid>) -> bool {
        let fresh = |room: &&MemberRoom| self.age_ms(&room.key).is_some_and(|age| age <= Capacity::FRESH_MS);
        self.ledger.rooms().filter(fresh).filter_map(|room| room.capacity.as_ref()).any(|capacity| {
            let observed = bindings.iter().filter_map(|binding| capacity.observed.get(binding));
            observed.into_iter().any(|observed| !observed.requests.is_empty())
        })
    }

    /// How old the knowledge of a member is, milliseconds.
    pub fn age_ms(&self, key: &MemberKey) -> Option<u64> {
        self.seen.get(key).map(Seen::age_ms)
    }

    /// Tells the ledger the time, so to say. Before every batch and every look.
    pub fn refresh_ages(&mut self) {
        let seen = &self.seen;
        self.ledger.set_ages(|key| seen.get(key).map(Seen::age_ms));
    }

    /// Follows what was written to the log; returns the claims that are now different or gone.
    pub fn follow_log(&mut self, news: News) -> Vec<Uuid> {
        let mut touched = Vec::new();
        if news.all {
            touched.extend(self.ledger.claims().map(|claim| claim.id));
            for id in &touched {
                self.ledger.put_claim(*id, None);
            }
            self.fences.clear();
        }
        // A released claim may have been taken again: what lives wins.
        for (id, fence) in news.released {
            self.fences.insert(id, fence);
            self.ledger.put_claim(id, None);
            touched.push(id);
        }
        for claim in news.claims {
            touched.push(claim.id);
            self.ledger.put_claim(claim.id, Some(Arc::new(claim)));
        }
        self.ledger.seq = news.head;
        self.settle_members();
        touched
    }

    /// The claims of one app of a group.
    pub fn claims_of_app(&self, project: &str, group: &str, app: &str) -> Vec<Arc<Claim>> {
        let mut claims: Vec<Arc<Claim>> = self
            .ledger
            .claims()
            .filter(|claim| claim.dig.project == project && claim.request.app == app)
            .filter(|claim| claim.dig.name == group || claim.dig.composite_app == group)
            .cloned()
            .collect();
        claims.sort_by(|a, b| (&a.dig.name, &a.member, a.id).cmp(&(&b.dig.name, &b.member, b.id)));
        claims
    }
}

fn fleet_member(key: MemberKey, member: Member) -> FleetMember {
    FleetMember { key, priority: member.priority, labels: member.labels, state: member.state, reason: member.reason }
}

/// A member that only its claims, and what was known of it, tell of.
fn leaving(key: &MemberKey, known: Option<&FleetMember>) -> FleetMember {
    FleetMember {
        key: key.clone(),
        priority: known.map_or(10, |known| known.priority),
        labels: known.map(|known| known.labels.clone()).unwrap_or_default(),
        state: MemberState::Deregistering,
        reason: Some("no longer registered; applications still have room there".to_owned()),
    }
}
