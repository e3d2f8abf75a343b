//! The in-memory state: the ledger, the registered members, the age of each member's capacity, and the fences of released claims.
//!
//! Only the writer changes claims. Members and capacity exist only here; they are never stored.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_api::members::Member;
use drover_scheduling::{Capacity, Claim, FleetMember, ImageNames, Ledger, MemberKey, MemberRoom, MemberState};
use uuid::Uuid;

use super::Fences;
use crate::store::LedgerNews;

/// The state that decisions are made on.
#[derive(Clone, Default)]
pub struct Book {
    /// Members, capacity, claims.
    pub ledger: Ledger,
    /// Fences of released claims: a take with a lower fence is refused.
    pub fences: Fences,
    /// Members to publish on the feed `fleet`; the publisher empties the set.
    pub changed: BTreeSet<MemberKey>,
    registered: Option<BTreeMap<MemberKey, FleetMember>>,
    received: HashMap<MemberKey, Received>,
    names: ImageNames,
}

/// When a capacity was received, and its age at that time.
#[derive(Clone, Copy)]
struct Received {
    at: Instant,
    age: Duration,
}

impl Received {
    /// Current age in milliseconds.
    fn age_ms(&self) -> u64 {
        u64::try_from((self.age + self.at.elapsed()).as_millis()).unwrap_or(u64::MAX)
    }
}

impl Book {
    /// Whether the list of members has been received.
    pub fn knows_members(&self) -> bool {
        self.registered.is_some()
    }

    /// Applies a batch of the feed `members`.
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

    /// Sets the ledger's members: those that are registered, and, as `Deregistering`, those that are not but still have claims.
    pub fn settle_members(&mut self) {
        let registered = self.registered.iter().flat_map(BTreeMap::keys);
        let rooms = self.ledger.rooms().map(|room| &room.key);
        let keys: BTreeSet<MemberKey> = registered.chain(rooms).chain(self.ledger.claimed()).cloned().collect();
        keys.iter().for_each(|key| self.settle(key));
    }

    /// As [`Book::settle_members`], for one member.
    fn settle(&mut self, key: &MemberKey) {
        let Some(registered) = &self.registered else { return };
        let room = self.ledger.room(key);
        let known = room.and_then(|room| room.member.as_ref());
        let claimed = self.ledger.claims_of(key).next().is_some();
        let expected = registered.get(key).cloned().or_else(|| claimed.then(|| leaving(key, known)));
        // A room may exist without a member, when capacity arrived first or last: it is removed.
        if expected.as_ref() == known && (expected.is_some() || room.is_none()) {
            return;
        }
        self.changed.insert(key.clone());
        match expected {
            Some(member) => self.ledger.set_member(member),
            None => {
                self.ledger.remove_member(key);
                self.received.remove(key);
            }
        }
    }

    /// Applies a value of the feed `capacity`.
    pub fn follow_capacity(&mut self, key: MemberKey, capacity: Option<Arc<Capacity>>) {
        match &capacity {
            Some(capacity) => {
                self.received.insert(key.clone(), Received { at: Instant::now(), age: Duration::from_millis(capacity.age_ms) })
            }
            None => self.received.remove(&key),
        };
        self.ledger.set_capacity(&key, capacity);
        self.settle(&key);
    }

    /// Shares the memory of image names with other members.
    pub fn share_images(&mut self, key: &MemberKey, capacity: &mut Capacity) {
        self.names.share_all(capacity, self.ledger.room(key).and_then(|room| room.capacity.as_deref()));
    }

    /// Members with a capacity that are not in `keys`.
    pub fn capacity_besides(&self, keys: &[MemberKey]) -> Vec<MemberKey> {
        self.received.keys().filter(|key| !keys.contains(key)).cloned().collect()
    }

    /// Whether a member with fresh capacity reports pods of one of these bindings.
    pub fn observes(&self, bindings: &BTreeSet<Uuid>) -> bool {
        let fresh = |room: &&MemberRoom| self.age_ms(&room.key).is_some_and(|age| age <= Capacity::FRESH_MS);
        self.ledger.rooms().filter(fresh).filter_map(|room| room.capacity.as_ref()).any(|capacity| {
            let observed = bindings.iter().filter_map(|binding| capacity.observed.get(binding));
            observed.into_iter().any(|observed| !observed.requests.is_empty())
        })
    }

    /// Age of a member's capacity in milliseconds.
    pub fn age_ms(&self, key: &MemberKey) -> Option<u64> {
        self.received.get(key).map(Received::age_ms)
    }

    /// Brings the ages of all capacities up to date. Called before every batch and every tentative decision.
    pub fn refresh_ages(&mut self) {
        let received = &self.received;
        self.ledger.set_ages(|key| received.get(key).map(Received::age_ms));
    }

    /// Applies entries that other processes wrote to the log; returns the claims that changed or are gone.
    pub fn follow_log(&mut self, news: LedgerNews) -> Vec<Uuid> {
        let mut touched = Vec::new();
        if news.all {
            touched.extend(self.ledger.claims().map(|claim| claim.id));
            for id in &touched {
                self.ledger.put_claim(*id, None);
            }
            self.fences.clear();
        }
        // Releases first: a released claim may have been taken again.
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

    /// The claims of an app of the deployment intent group or composite app `group`.
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
    let Member { priority, labels, state, reason, cordoned, link, .. } = member;
    FleetMember { key, priority, labels, state, reason, cordoned, link }
}

/// A member that is no longer registered but still has claims.
fn leaving(key: &MemberKey, known: Option<&FleetMember>) -> FleetMember {
    FleetMember {
        key: key.clone(),
        priority: known.map_or(10, |known| known.priority),
        labels: known.map(|known| known.labels.clone()).unwrap_or_default(),
        state: MemberState::Deregistering,
        reason: Some("no longer registered, but applications still have claims there".to_owned()),
        cordoned: None,
        link: None,
    }
}
