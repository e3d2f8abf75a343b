//! Places apps that call each other: first group by group, then improves the placement by moving groups and apps.
//!
//! The objective is that of [`crate::groups`] with members as places. The constraints are the same as without calls: intents, logical
//! cloud, provider priority, and room on nodes. An app goes to a less preferred provider only if the better one has no room for it (or for
//! its group, with `keep_together`). If this placement fails, each app is placed on its own.

use std::collections::{BTreeMap, BTreeSet};

use crate::calling_apps::{CallingApps, MIB};
use crate::fit::Ask;
use crate::groups::{Instance, Layout, Place, Rules, Traffic, Weights};
use crate::slot::{Slot, equals};
use crate::trial::{Tenant, Trial};
use crate::{CallGroup, CallStory, CallTerms, DigRef, Ledger, MemberKey, MemberRoom, Packing};

/// Number of members of each provider priority that are considered for an app, those with most room first (least for `packing: tight`).
const MEMBERS_PER_PRIORITY: usize = 32;
/// Limit on improvement rounds over all groups and apps. A round without a change is the last.
const ROUNDS: usize = 8;
/// An improvement below this is a rounding error.
const ROUNDING: f64 = 1e-9;

/// The apps of a deployment intent group with their calls, as an instance of `groups`.
pub(crate) struct CallPlacement<'a, 's> {
    slots: &'s [Slot<'a>],
    callers: CallingApps<'a>,
    instance: Instance,
    weights: Weights,
    rooms: Vec<&'a MemberRoom>,
    /// Containers of running apps as (container, place).
    fixed: Vec<(u32, usize)>,
    /// The container of each slot.
    container: Vec<u32>,
    /// The allowed places of each slot, sorted by provider priority, then in the order without calls.
    open: Vec<Vec<usize>>,
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
            let ranked = equals(&known).flat_map(|equals| slot.rank(equals, &nobody).into_iter().take(MEMBERS_PER_PRIORITY));
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

    /// A member for each slot (`None`: satisfied by another slot of its app). Returns `None` if some slot gets no room.
    pub fn choose(&self) -> Option<Vec<Option<&'a MemberRoom>>> {
        let mut draft = Draft {
            of: self,
            layout: Layout::empty(&self.instance, self.weights),
            trial: Trial::default(),
            at: vec![None; self.slots.len()],
        };
        self.fixed.iter().for_each(|(container, at)| draft.layout.put(&[*container], *at));
        if !self.callers.units.iter().all(|unit| draft.place(unit)) {
            return None;
        }
        draft.improve();
        Some(draft.at.into_iter().map(|at| at.map(|at| self.rooms[at])).collect())
    }

    /// The groups and the calls that leave their cluster, with the slots on `chosen` (`None`: not placed).
    pub fn story(&self, chosen: Option<&[Option<&'a MemberRoom>]>) -> CallStory {
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

    fn ask(&self, slot: usize) -> Ask<'a> {
        Ask::held(&self.slots[slot].request.demand)
    }

    /// Whether it is the only slot of its app. Moving it leaves no other slot of the app unsatisfied.
    fn alone(&self, slot: usize) -> bool {
        self.slots.iter().filter(|other| other.app == self.slots[slot].app).count() == 1
    }

    fn containers(&self, unit: &[usize]) -> Vec<u32> {
        unit.iter().map(|slot| self.container[*slot]).collect()
    }

    /// The places that all slots of a unit may use.
    fn common(&self, unit: &[usize]) -> Vec<usize> {
        let (first, others) = unit.split_first().map_or((&[][..], &[][..]), |(first, others)| (&self.open[*first][..], others));
        first.iter().copied().filter(|at| others.iter().all(|slot| self.open[*slot].contains(at))).collect()
    }
}

impl Ledger {
    /// The groups of a running deployment intent group and the calls that leave their cluster, or `None` if no calls are known.
    pub fn call_story(&self, dig: &DigRef) -> Option<CallStory> {
        Some(CallPlacement::of(self, dig, &[], &[])?.story(Some(&[])))
    }
}

/// A placement under construction: its objective value and its packing.
struct Draft<'t, 'a, 's> {
    of: &'t CallPlacement<'a, 's>,
    layout: Layout<'t>,
    trial: Trial<'a>,
    at: Vec<Option<usize>>,
}

impl<'a> Draft<'_, 'a, '_> {
    /// Places a unit on one place if possible, else slot by slot. Returns false if a slot has no room.
    fn place(&mut self, unit: &[usize]) -> bool {
        if unit.len() > 1 && self.whole(unit) {
            return true;
        }
        unit.iter().all(|slot| self.single(*slot))
    }

    fn whole(&mut self, unit: &[usize]) -> bool {
        let together = self.of;
        let levels: BTreeSet<u8> = unit.iter().flat_map(|slot| &together.open[*slot]).map(|at| together.rooms[*at].priority()).collect();
        let common = together.common(unit);
        for level in levels {
            let here = common.iter().copied().filter(|at| together.rooms[*at].priority() == level);
            if self.best(unit, here.collect()) {
                return true;
            }
            let fits = |slot: &usize| {
                let mut here = together.open[*slot].iter().map(|at| together.rooms[*at]).filter(|room| room.priority() == level);
                here.any(|room| self.trial.fit(room, together.ask(*slot)).is_some())
            };
            if !together.callers.terms.keep_together && unit.iter().any(fits) {
                return false;
            }
        }
        false
    }

    fn single(&mut self, slot: usize) -> bool {
        let together = self.of;
        let chosen: Vec<Option<&MemberRoom>> = self.at.iter().map(|at| at.map(|at| together.rooms[at])).collect();
        if together.slots[slot].satisfied(together.slots, &chosen) {
            return true;
        }
        let levels = together.open[slot].chunk_by(|a, b| together.rooms[*a].priority() == together.rooms[*b].priority());
        levels.into_iter().any(|level| self.best(&[slot], level.to_vec()))
    }

    /// Puts an unplaced unit on the place with room and the lowest objective value; the first one among equals.
    fn best(&mut self, unit: &[usize], places: Vec<usize>) -> bool {
        let containers = self.of.containers(unit);
        let mut ranked: Vec<(f64, usize)> = places.into_iter().map(|at| (self.layout.value_with(&containers, at), at)).collect();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
        ranked.into_iter().any(|(_, at)| self.add(unit, at))
    }

    fn add(&mut self, unit: &[usize], at: usize) -> bool {
        let room = self.of.rooms[at];
        for (n, slot) in unit.iter().enumerate() {
            if !self.trial.add(room, Tenant::New(*slot), self.of.ask(*slot)) {
                for added in &unit[..n] {
                    self.trial.remove(room, Tenant::New(*added));
                }
                return false;
            }
        }
        self.layout.put(&self.of.containers(unit), at);
        unit.iter().for_each(|slot| self.at[*slot] = Some(at));
        true
    }

    /// Moves groups, then single apps, to other members of the same provider priority while that lowers the objective.
    fn improve(&mut self) {
        let singles = (0..self.at.len()).map(|slot| vec![slot]);
        let units: Vec<Vec<usize>> = self.of.callers.units.iter().filter(|unit| unit.len() > 1).cloned().chain(singles).collect();
        for _ in 0..ROUNDS {
            let moved = units.iter().filter(|unit| self.better(unit)).count();
            if moved == 0 {
                return;
            }
        }
    }

    fn better(&mut self, unit: &[usize]) -> bool {
        let Some(from) = self.at[unit[0]].filter(|from| unit.iter().all(|slot| self.at[*slot] == Some(*from))) else { return false };
        if !unit.iter().all(|slot| self.of.alone(*slot)) {
            return false;
        }
        let room = self.of.rooms[from];
        let containers = self.of.containers(unit);
        let before = self.layout.value();
        self.layout.take(&containers);
        let others = self.of.common(unit).into_iter().filter(|at| *at != from && self.of.rooms[*at].priority() == room.priority());
        let mut ranked: Vec<(f64, usize)> = others.map(|at| (self.layout.value_with(&containers, at), at)).collect();
        ranked.retain(|(value, _)| *value < before - ROUNDING);
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
        let out: Vec<_> = unit.iter().filter_map(|slot| self.trial.remove(room, Tenant::New(*slot))).collect();
        if ranked.into_iter().any(|(_, at)| self.add(unit, at)) {
            return true;
        }
        out.into_iter().for_each(|taken| self.trial.put_back(room, taken));
        self.layout.put(&containers, from);
        false
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
