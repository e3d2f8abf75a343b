//! Placing apps that call each other: group by group over clusters, then group by group and app by app better while that helps.
//!
//! What is wished for is the objective of [`crate::groups`] with members as places. What must hold is what holds without
//! calls: intents, logical cloud, provider priority, room on nodes. An app goes to a worse provider only when the better one has
//! no room for it (or for its group, with `keep_together`). Whatever fails here falls back to placing each app on its own.

use std::collections::{BTreeMap, BTreeSet};

use crate::callers::{Callers, MIB};
use crate::fit::Ask;
use crate::groups::{Instance, Layout, Place, Rules, Traffic, Weights};
use crate::slot::{Slot, equals};
use crate::trial::{Tenant, Trial};
use crate::{CallGroup, CallStory, CallTerms, DigRef, Ledger, MemberKey, MemberRoom, Packing};

/// Members of one provider priority that are looked at for an app, those with most room first (or least, `packing: tight`).
const LOOKED_AT: usize = 32;
/// Rounds over all groups and apps in which each may go where that is better; a round without a change ends it.
const ROUNDS: usize = 8;
/// What is no improvement but rounding.
const NOTHING: f64 = 1e-9;

/// Apps of one group of apps, with their calls, as an instance of `groups`.
pub(crate) struct Together<'a, 's> {
    slots: &'s [Slot<'a>],
    callers: Callers<'a>,
    instance: Instance,
    weights: Weights,
    rooms: Vec<&'a MemberRoom>,
    /// Containers of apps that run, and where.
    fixed: Vec<(u32, usize)>,
    /// The container of each slot.
    container: Vec<u32>,
    /// Places that a slot may take, by provider priority, then in the order without calls.
    open: Vec<Vec<usize>>,
}

impl<'a, 's> Together<'a, 's> {
    /// None where nobody calls anybody, or there is nowhere to go.
    pub fn of(ledger: &'a Ledger, dig: &DigRef, requested: &[&'a str], slots: &'s [Slot<'a>]) -> Option<Self> {
        let callers = Callers::of(ledger, dig, requested, slots, |slot| slots[slot].known().first().copied())?;
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
            let ranked = equals(&known).flat_map(|equals| slot.rank(equals, &nobody).into_iter().take(LOOKED_AT));
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
        // Who packs tightly does not want clusters equally full.
        let weights = if tight { Weights { cluster: 0.0, ..Weights::default() } } else { Weights::default() };
        Some(Self { slots, callers, instance, weights, rooms, fixed, container, open })
    }

    /// A member for each slot (none: satisfied by another of its app), or none at all where this way finds no room.
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

    /// What came of it: groups, and the calls that leave their cluster. None of `chosen`: not placed.
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

    /// Of the calls from and to a slot's app: how many stay if it is on `key` and the others where they are; and all of them.
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

    /// Whether it is the only slot of its app: it can go anywhere without leaving another unsatisfied.
    fn alone(&self, slot: usize) -> bool {
        self.slots.iter().filter(|other| other.app == self.slots[slot].app).count() == 1
    }

    fn containers(&self, unit: &[usize]) -> Vec<u32> {
        unit.iter().map(|slot| self.container[*slot]).collect()
    }

    /// Places that all of a unit may take.
    fn common(&self, unit: &[usize]) -> Vec<usize> {
        let (first, others) = unit.split_first().map_or((&[][..], &[][..]), |(first, others)| (&self.open[*first][..], others));
        first.iter().copied().filter(|at| others.iter().all(|slot| self.open[*slot].contains(at))).collect()
    }
}

impl Ledger {
    /// The groups of a deployment intent group as it runs, and the calls that leave their cluster; none: no calls are known.
    pub fn call_story(&self, dig: &DigRef) -> Option<CallStory> {
        Some(Together::of(self, dig, &[], &[])?.story(Some(&[])))
    }
}

/// A placement in the making: what it is worth, and whether it fits.
struct Draft<'t, 'a, 's> {
    of: &'t Together<'a, 's>,
    layout: Layout<'t>,
    trial: Trial<'a>,
    at: Vec<Option<usize>>,
}

impl<'a> Draft<'_, 'a, '_> {
    /// Places a unit together where it may be, else its slots one by one. False: one of them has no room.
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

    /// Puts an unplaced unit on that of `places` with room where the objective is least; the earlier among equals.
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

    /// Groups, then apps, go to another member of the same provider priority while that makes the objective less.
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
        ranked.retain(|(value, _)| *value < before - NOTHING);
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
