//! Apps that call each other as an instance of [`crate::groups`] with members as places, and a placement of them in words. `call_choice.rs`
//! chooses between the placements of policies, which `call_draft.rs` makes.
//!
//! The constraints are the same as without calls: intents, logical cloud, provider priority, and room on nodes. An app goes to a less
//! preferred provider only if the better one has no room for it (or for its group, with `keep_together`). If this placement fails, each
//! app is placed on its own.

use std::collections::{BTreeMap, BTreeSet};

use crate::calling_apps::{CallingApps, MIB};
use crate::fit::Ask;
use crate::groups::{Instance, Layout, Place, Rules, Traffic, Weights};
use crate::slot::{Slot, equals};
use crate::trial::Trial;
use crate::{CallGroup, CallStory, CallTerms, DigRef, Ledger, MemberKey, MemberRoom, Packing, PolicyStory};

/// Number of members of each provider priority that are considered for an app, those with most room first (least for `packing: tight`).
const MEMBERS_PER_PRIORITY: usize = 32;

/// The apps of a deployment intent group with their calls, as an instance of `groups`.
pub(crate) struct CallPlacement<'a, 's> {
    pub(super) slots: &'s [Slot<'a>],
    pub(super) callers: CallingApps<'a>,
    pub(super) instance: Instance,
    pub(super) weights: Weights,
    pub(super) rooms: Vec<&'a MemberRoom>,
    /// Containers of running apps as (container, place).
    pub(super) fixed: Vec<(u32, usize)>,
    /// The container of each slot.
    container: Vec<u32>,
    /// The allowed places of each slot, sorted by provider priority, then in the order without calls.
    pub(super) open: Vec<Vec<usize>>,
}

impl<'a, 's> CallPlacement<'a, 's> {
    /// The instance for the slots of `dig`, or `None` if there are no calls or no places.
    pub fn of(ledger: &'a Ledger, dig: &DigRef, requested: &[&'a str], slots: &'s [Slot<'a>]) -> Option<Self> {
        let callers = CallingApps::of(ledger, dig, requested, slots, |slot| slots[slot].known().first().copied())?;
        let nobody = Trial::default();
        let mut rooms: Vec<&MemberRoom> = Vec::new();
        let mut place: BTreeMap<&MemberKey, usize> = BTreeMap::new();
        let mut put = |room: &'a MemberRoom| {
            *place.entry(&room.key).or_insert_with(|| {
                rooms.push(room);
                rooms.len() - 1
            })
        };
        let mut open = Vec::with_capacity(slots.len());
        for slot in slots {
            let ask = Ask::held(&slot.request.demand);
            let known: Vec<&MemberRoom> =
                slot.known().into_iter().filter(|room| room.sums().is_some() && nobody.may_fit(room, ask)).collect();
            let ranked = equals(&known).flat_map(|equals| slot.rank(equals, &nobody).take(MEMBERS_PER_PRIORITY));
            open.push(ranked.map(|(room, _)| put(room)).collect::<Vec<_>>());
        }
        let settled: Vec<(usize, usize)> = callers.settled.iter().map(|(service, room)| (*service, put(room))).collect();
        let places = rooms.iter().enumerate().filter_map(|(at, room)| place_of(at, room)).collect();
        let mut instance = Instance::new(&callers.graph, Traffic::Uniform, &callers.grouping, places, Rules::default()).ok()?;
        if !callers.terms.latencies.is_empty() {
            instance = instance.with_distances(distances(&rooms, callers.terms)).ok()?;
        }

        let mut nth = BTreeMap::new();
        let ids: BTreeMap<(usize, usize), u32> =
            instance.containers().iter().enumerate().map(|(id, c)| ((c.service, c.replica), id as u32)).collect();
        let mut next = |service: usize| {
            let replica: &mut usize = nth.entry(service).or_default();
            *replica += 1;
            ids[&(service, *replica - 1)]
        };
        let container: Vec<u32> = slots.iter().map(|slot| next(slot.app)).collect();
        let fixed = settled.iter().map(|(service, at)| (next(*service), *at)).collect();
        let tight = slots.iter().any(|slot| slot.request.terms.packing == Packing::Tight);
        // With tight packing, clusters are not balanced.
        let weights = if tight { Weights { cluster: 0.0, ..Weights::default() } } else { Weights::default() };
        Some(Self { slots, callers, instance, weights, rooms, fixed, container, open })
    }

    /// The groups and the calls that leave their cluster, with the slots on `chosen` (`None`: not placed) by a policy.
    pub fn story(&self, chosen: Option<&[Option<&'a MemberRoom>]>, chosen_by: Option<PolicyStory>) -> CallStory {
        let mut layout = Layout::empty(&self.instance, self.weights);
        self.fixed.iter().for_each(|(container, at)| layout.put(&[*container], *at));
        for (slot, room) in chosen.iter().flat_map(|chosen| chosen.iter().enumerate()) {
            if let Some(at) = room.and_then(|room| self.rooms.iter().position(|known| known.key == room.key)) {
                layout.put(&[self.container[slot]], at);
            }
        }
        let groups = self.callers.grouping.groups.iter().map(|group| {
            let here = (0..self.instance.containers().len() as u32)
                .filter(|c| group.contains(&self.instance.containers()[*c as usize].service))
                .filter_map(|c| layout.at(c))
                .map(|at| self.rooms[at].key.clone());
            CallGroup {
                apps: group.iter().map(|s| self.callers.apps[*s].to_owned()).collect(),
                members: here.collect::<BTreeSet<_>>().into_iter().collect(),
            }
        });
        let (mut crossing, mut waiting) = (0.0, 0.0);
        for a in 0..self.instance.containers().len() as u32 {
            for (b, calls) in self.instance.near(a).iter().filter(|(b, _)| *b > a) {
                if let (Some(p), Some(q)) = (layout.at(a), layout.at(*b))
                    && p != q
                {
                    crossing += calls;
                    waiting += calls * f64::from(self.callers.terms.latency(&self.rooms[p].key, &self.rooms[q].key));
                }
            }
        }
        let total = self.instance.total_calls().max(f64::MIN_POSITIVE);
        CallStory {
            rho: self.callers.terms.rho,
            groups: groups.collect(),
            between_groups: self.callers.grouping.between(&self.callers.graph),
            crossing: chosen.map(|_| crossing / total),
            waiting_us: chosen.filter(|_| !self.callers.terms.latencies.is_empty()).map(|_| waiting / total),
            chosen_by,
        }
    }

    /// The calls from and to a slot's app: those that stay in the cluster if the slot is on `key`, and the total.
    pub fn kept(&self, slot: usize, key: &MemberKey, chosen: &[Option<&'a MemberRoom>]) -> (f64, f64) {
        let (mut kept, mut all) = (0.0, 0.0);
        let at = |container: u32| {
            let new = self.container.iter().position(|c| *c == container).and_then(|slot| chosen[slot]).map(|room| &room.key);
            new.or_else(|| self.fixed.iter().find(|(c, _)| *c == container).map(|(_, at)| &self.rooms[*at].key))
        };
        for (other, calls) in self.instance.near(self.container[slot]) {
            all += calls;
            kept += if at(*other) == Some(key) { *calls } else { 0.0 };
        }
        (kept, all)
    }

    pub(super) fn ask(&self, slot: usize) -> Ask<'a> {
        Ask::held(&self.slots[slot].request.demand)
    }

    /// Whether it is the only slot of its app. Moving it leaves no other slot of the app unsatisfied.
    pub(super) fn alone(&self, slot: usize) -> bool {
        self.slots.iter().filter(|other| other.app == self.slots[slot].app).count() == 1
    }

    pub(super) fn containers(&self, unit: &[usize]) -> Vec<u32> {
        unit.iter().map(|slot| self.container[*slot]).collect()
    }

    /// The places that all slots of a unit may use.
    pub(super) fn common(&self, unit: &[usize]) -> Vec<usize> {
        let (first, others) = unit.split_first().map_or((&[][..], &[][..]), |(first, others)| (&self.open[*first][..], others));
        first.iter().copied().filter(|at| others.iter().all(|slot| self.open[*slot].contains(at))).collect()
    }
}

impl Ledger {
    /// The groups of a running deployment intent group and the calls that leave their cluster, or `None` if no calls are known.
    pub fn call_story(&self, dig: &DigRef) -> Option<CallStory> {
        Some(CallPlacement::of(self, dig, &[], &[])?.story(Some(&[]), None))
    }
}

fn place_of(at: usize, room: &MemberRoom) -> Option<Place> {
    let (allocatable, free) = room.sums()?;
    let taken = allocatable.minus(free);
    Some(Place {
        name: room.key.0.clone(),
        capacity: [allocatable.cpu as f64, allocatable.memory as f64 / MIB],
        taken: [taken.cpu.max(0) as f64, taken.memory.max(0) as f64 / MIB],
        domain: at,
    })
}

fn distances(rooms: &[&MemberRoom], terms: &CallTerms) -> Vec<f64> {
    rooms.iter().flat_map(|a| rooms.iter().map(|b| terms.distance(&a.key, &b.key))).collect()
}
