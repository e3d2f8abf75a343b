//! A placement of apps that call each other under construction: a policy places unit by unit, then a local search moves groups and single
//! apps to members of the same provider priority while that lowers the objective. Capacity, intents and priorities always hold.

use std::collections::BTreeSet;

use crate::call_placement::CallPlacement;
use crate::groups::Layout;
use crate::trial::{Tenant, Trial};
use crate::{LoadChange, MemberRoom, PolicyStep, PolicyStory, ScoredMember, SearchMove};

/// Limit on the rounds of the local search over all groups and apps. A round without a change is the last.
const ROUNDS: usize = 8;
/// An improvement below this is a rounding error.
const ROUNDING: f64 = 1e-9;

/// A placement under construction: its objective value and its packing, and how it came about.
#[derive(Clone)]
pub(crate) struct Draft<'t, 'a, 's> {
    pub(super) of: &'t CallPlacement<'a, 's>,
    pub(super) layout: Layout<'t>,
    pub(super) trial: Trial<'a>,
    /// The place of each slot.
    pub(super) at: Vec<Option<usize>>,
    steps: Vec<PolicyStep>,
    before_search: f64,
    moves: Vec<SearchMove>,
}

impl<'t, 'a, 's> Draft<'t, 'a, 's> {
    /// Nothing is placed but what runs.
    pub(super) fn new(of: &'t CallPlacement<'a, 's>) -> Self {
        let mut layout = Layout::empty(&of.instance, of.weights);
        of.fixed.iter().for_each(|(container, at)| layout.put(&[*container], *at));
        let at = vec![None; of.slots.len()];
        Self { of, layout, trial: Trial::default(), at, steps: Vec::new(), before_search: 0.0, moves: Vec::new() }
    }

    /// The placement of `cgs-greedy`, or `None` if some slot gets no room.
    pub fn greedy(of: &'t CallPlacement<'a, 's>) -> Option<Self> {
        let mut draft = Self::new(of);
        of.callers.units.iter().all(|unit| draft.place(unit)).then(|| draft.searched())
    }

    /// The objective; lower is better.
    pub fn objective(&self) -> f64 {
        self.layout.value()
    }

    /// Whether it uses better providers or, where these are equal, has the better objective.
    pub fn is_better_than(&self, other: &Self) -> bool {
        let priorities = |draft: &Self| draft.at.iter().flatten().map(|at| u32::from(draft.of.rooms[*at].priority())).sum::<u32>();
        let (mine, theirs) = (priorities(self), priorities(other));
        mine < theirs || mine == theirs && self.objective() < other.objective() - ROUNDING
    }

    /// The members of the slots, and how they were chosen.
    pub fn finish(self) -> (Vec<Option<&'a MemberRoom>>, PolicyStory) {
        let story = PolicyStory {
            objective: self.objective(),
            before_search: self.before_search,
            steps: self.steps,
            search: self.moves,
            ..PolicyStory::default()
        };
        (self.at.into_iter().map(|at| at.map(|at| self.of.rooms[at])).collect(), story)
    }

    /// Whether another slot of its app is placed on a member that satisfies it.
    pub(super) fn is_satisfied(&self, slot: usize) -> bool {
        let chosen: Vec<Option<&MemberRoom>> = self.at.iter().map(|at| at.map(|at| self.of.rooms[at])).collect();
        self.of.slots[slot].satisfied(self.of.slots, &chosen)
    }

    /// The provider priorities of the places that some slot of a unit may use, the best first.
    pub(super) fn levels(&self, unit: &[usize]) -> BTreeSet<u8> {
        unit.iter().flat_map(|slot| &self.of.open[*slot]).map(|at| self.of.rooms[*at].priority()).collect()
    }

    /// Whether a slot has room alone at a provider priority.
    pub(super) fn fits_at(&self, slot: usize, level: u8) -> bool {
        let mut here = self.of.open[slot].iter().map(|at| self.of.rooms[*at]).filter(|room| room.priority() == level);
        here.any(|room| self.trial.fit(room, self.of.ask(slot)).is_some())
    }

    /// Places a unit on one place if possible, else slot by slot. Returns false if a slot has no room.
    fn place(&mut self, unit: &[usize]) -> bool {
        if unit.len() > 1 && self.whole(unit) {
            return true;
        }
        unit.iter().all(|slot| self.single(*slot))
    }

    /// Places a unit on one place, at the best provider priority at which all of it has room. Returns false if it stays unplaced.
    fn whole(&mut self, unit: &[usize]) -> bool {
        let placement = self.of;
        let common = placement.common(unit);
        for level in self.levels(unit) {
            let here = common.iter().copied().filter(|at| placement.rooms[*at].priority() == level);
            if self.best(unit, here.collect()) {
                return true;
            }
            if !placement.callers.terms.keep_together && unit.iter().any(|slot| self.fits_at(*slot, level)) {
                return false;
            }
        }
        false
    }

    /// Places a slot at the best provider priority at which it has room, unless it needs no place. Returns false if it has none.
    fn single(&mut self, slot: usize) -> bool {
        let placement = self.of;
        let levels = placement.open[slot].chunk_by(|a, b| placement.rooms[*a].priority() == placement.rooms[*b].priority());
        self.is_satisfied(slot) || levels.into_iter().any(|level| self.best(&[slot], level.to_vec()))
    }

    /// Puts an unplaced unit on the place with room and the lowest objective value; the first one among equals.
    fn best(&mut self, unit: &[usize], places: Vec<usize>) -> bool {
        let containers = self.of.containers(unit);
        let mut ranked: Vec<(f64, usize)> = places.into_iter().map(|at| (self.layout.value_with(&containers, at), at)).collect();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
        let ranked: Vec<(f64, Option<usize>)> = ranked.into_iter().map(|(value, at)| (value, Some(at))).collect();
        (0..ranked.len()).any(|nth| self.take(unit, &ranked, nth))
    }

    /// Takes an option of a unit if there is room: a place, or (`None`) to place it in parts. Records the step.
    pub(super) fn take(&mut self, unit: &[usize], ranked: &[(f64, Option<usize>)], nth: usize) -> bool {
        let (score, option) = ranked[nth];
        let containers = self.of.containers(unit);
        let load = |draft: &Self| option.map_or(0.0, |at| draft.layout.load(at));
        let (before, kept) = (load(self), option.and_then(|at| self.kept(&containers, at)));
        if option.is_some_and(|at| !self.add(unit, at)) {
            return false;
        }
        let key = |at: usize| self.of.rooms[at].key.clone();
        let next = ranked.iter().enumerate().find_map(|(n, (score, at))| Some((*score, at.filter(|_| n != nth)?)));
        self.steps.push(PolicyStep {
            apps: self.names(unit),
            member: option.map(key),
            options: ranked.iter().filter(|(_, at)| at.is_some()).count() as u32,
            score,
            next: next.map(|(score, at)| ScoredMember { member: key(at), score }),
            kept,
            load: option.map(|_| LoadChange { before, after: load(self) }),
        });
        true
    }

    /// The share of the calls of unplaced containers to placed ones that stay on a place.
    fn kept(&self, containers: &[u32], at: usize) -> Option<f64> {
        let near = containers.iter().flat_map(|container| self.of.instance.near(*container));
        let all: f64 = near.filter(|(other, _)| self.layout.at(*other).is_some()).map(|(_, calls)| calls).sum();
        (all > 0.0).then(|| self.layout.calls_to(containers, at) / all)
    }

    fn names(&self, unit: &[usize]) -> Vec<String> {
        unit.iter().map(|slot| self.of.slots[*slot].request.app.clone()).collect()
    }

    /// Puts a unit on a place. Returns false, and changes nothing, if it has no room there.
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

    /// After the local search.
    pub(super) fn searched(mut self) -> Self {
        self.before_search = self.objective();
        self.search();
        self
    }

    /// Moves groups, then single apps, to other members of the same provider priority while that lowers the objective.
    fn search(&mut self) {
        let singles = (0..self.at.len()).map(|slot| vec![slot]);
        let units: Vec<Vec<usize>> = self.of.callers.units.iter().filter(|unit| unit.len() > 1).cloned().chain(singles).collect();
        for _ in 0..ROUNDS {
            let moved = units.iter().filter(|unit| self.improve(unit)).count();
            if moved == 0 {
                return;
            }
        }
    }

    /// Moves a unit to the member of the same provider priority that lowers the objective most. Returns whether it was moved.
    fn improve(&mut self, unit: &[usize]) -> bool {
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
        if let Some((_, to)) = ranked.into_iter().find(|(_, at)| self.add(unit, *at)) {
            let to = self.of.rooms[to].key.clone();
            self.moves.push(SearchMove { apps: self.names(unit), from: room.key.clone(), to });
            return true;
        }
        out.into_iter().for_each(|taken| self.trial.put_back(room, taken));
        self.layout.put(&containers, from);
        false
    }
}
