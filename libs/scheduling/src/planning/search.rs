//! Finds victims and destinations so that the newcomer fits on the members of an assignment.
//!
//! First greedily: takes candidates in order until the newcomer fits, then drops those that are not needed. If that fails, tries sets of
//! candidates and destinations, fewest victims first. Up to [`SMALL_CANDIDATES`] candidates, [`SMALL_MEMBERS`] members and
//! [`SMALL_NODES`] nodes each to the end; beyond that within [`CASE_BOUND`] and [`TOTAL_BOUND`].

use std::collections::BTreeMap;

use super::movable::Movable;
use crate::fit::Ask;
use crate::slot::Slot;
use crate::trial::{Tenant, Trial};
use crate::{MemberKey, MemberRoom};

const SMALL_CANDIDATES: usize = 8;
const SMALL_MEMBERS: usize = 3;
const SMALL_NODES: usize = 4;
/// Sets and destinations examined for one choice of members, where the case is not small.
const CASE_BOUND: u64 = 2_000;
/// The same in a whole plan.
const TOTAL_BOUND: u64 = 10_000;

/// The amount of work done.
#[derive(Default)]
pub(crate) struct Effort {
    pub examined: u64,
    pub cut_short: bool,
    /// Spent on cases that are not small.
    bounded: u64,
    /// What the case at hand may still spend.
    left: u64,
}

impl Effort {
    fn start(&mut self, small: bool) {
        self.left = if small { u64::MAX } else { CASE_BOUND.min(TOTAL_BOUND.saturating_sub(self.bounded)) };
    }
    /// Whether one more may be examined.
    fn step(&mut self) -> bool {
        if self.left == 0 {
            self.cut_short = true;
            return false;
        }
        self.examined += 1;
        if self.left != u64::MAX {
            self.left -= 1;
            self.bounded += 1;
        }
        true
    }
    fn is_spent(&self) -> bool {
        self.left == 0
    }
}

/// Victims, as indices into the candidates, with their destinations.
pub(crate) type Moves<'a> = Vec<(usize, &'a MemberRoom)>;

/// The search for victims of one assignment.
pub(crate) struct VictimSearch<'w, 'a> {
    pub slots: &'w [Slot<'a>],
    /// The member of each slot; `None`: satisfied by another slot of its app.
    pub homes: &'w [Option<&'a MemberRoom>],
    /// The candidates, in the order in which they are taken.
    pub movable: &'w [Movable<'a>],
}

/// Why no set was found.
pub(crate) enum NoMoves {
    /// The newcomer does not fit even if all candidates leave. By member, the app that does not fit, as text.
    NeverFits(BTreeMap<MemberKey, String>),
    /// No examined set of candidates frees enough room and has destinations.
    NoSet,
}

impl<'w, 'a> VictimSearch<'w, 'a> {
    /// The members of the assignment, sorted by key.
    pub fn members(&self) -> Vec<&'a MemberRoom> {
        let by_key: BTreeMap<_, _> = self.homes.iter().flatten().map(|room| (&room.key, *room)).collect();
        by_key.into_values().collect()
    }

    /// Adds the newcomer's apps (only those on `only`, if given), all or none. They need room later, since they wait for leaving apps.
    fn add_newcomer(&self, trial: &mut Trial<'a>, only: Option<&'a MemberRoom>) -> bool {
        for (i, home) in self.homes.iter().enumerate() {
            let Some(home) = home.filter(|home| only.is_none_or(|o| o.key == home.key)) else { continue };
            if !trial.add(home, Tenant::New(i), Ask::promised(&self.slots[i].request.demand)) {
                self.remove_newcomer(trial, only);
                return false;
            }
        }
        true
    }

    fn remove_newcomer(&self, trial: &mut Trial<'a>, only: Option<&'a MemberRoom>) {
        for (i, home) in self.homes.iter().enumerate() {
            if let Some(home) = home.filter(|home| only.is_none_or(|o| o.key == home.key)) {
                trial.remove(home, Tenant::New(i));
            }
        }
    }

    /// The members where the newcomer does not fit without moves.
    pub fn open(&self) -> Vec<&'a MemberRoom> {
        self.place_what_fits(&mut Trial::default())
    }

    fn place_what_fits(&self, trial: &mut Trial<'a>) -> Vec<&'a MemberRoom> {
        self.members().into_iter().filter(|home| !self.add_newcomer(trial, Some(home))).collect()
    }

    /// A trial with these moves and the newcomer, or `None` if they do not all fit at once.
    pub fn build(&self, moves: &[(usize, &'a MemberRoom)]) -> Option<Trial<'a>> {
        let mut trial = Trial::default();
        for (j, _) in moves {
            trial.leave(self.movable[*j].room, self.movable[*j].claim);
        }
        for (j, to) in moves {
            if !trial.add(to, self.movable[*j].tenant(), self.movable[*j].ask()) {
                return None;
            }
        }
        (self.keeps_intents(moves, &trial) && self.add_newcomer(&mut trial, None)).then_some(trial)
    }

    /// Whether the intents of moved apps with several copies still hold. All moves are made in `trial`.
    fn keeps_intents(&self, moves: &[(usize, &'a MemberRoom)], trial: &Trial<'a>) -> bool {
        moves.iter().all(|(j, to)| self.movable[*j].copies.allow(&to.key, trial))
    }

    /// The witness of a victim at its destination.
    pub fn pods(&self, trial: &Trial<'a>, candidate: usize, to: &MemberRoom) -> Vec<crate::PodsOnNode> {
        trial.pods(to, self.movable[candidate].tenant())
    }

    /// Finds the victims and their destinations.
    pub fn solve(&self, effort: &mut Effort) -> Result<Moves<'a>, NoMoves> {
        let mut everybody = Trial::default();
        for m in self.movable {
            everybody.leave(m.room, m.claim);
        }
        if !self.add_newcomer(&mut everybody, None) {
            return Err(NoMoves::NeverFits(self.why_not(&mut everybody)));
        }
        let in_order: Vec<usize> = (0..self.movable.len()).collect();
        if let Some(moves) = self.greedy(&in_order, effort) {
            return Ok(moves);
        }
        self.remove_newcomer(&mut everybody, None);
        let can_go: Vec<usize> = in_order.into_iter().filter(|j| self.movable[*j].best_in(&everybody).is_some()).collect();
        let small = self.is_small(&can_go);
        // Too many candidates for every set: a greedy attempt in which candidates with few destinations come first.
        if !small && let Some(moves) = self.greedy(&self.fewest_destinations_first(&can_go), effort) {
            return Ok(moves);
        }
        effort.start(small);
        let mut trial = Trial::default();
        for k in 1..=can_go.len() {
            let mut chosen = Vec::with_capacity(k);
            if let Some(moves) = self.sets_of(k, &can_go, &mut chosen, &mut trial, effort) {
                return Ok(moves);
            }
            if effort.is_spent() {
                effort.cut_short = true;
                break;
            }
        }
        Err(NoMoves::NoSet)
    }

    fn why_not(&self, trial: &mut Trial<'a>) -> BTreeMap<MemberKey, String> {
        let mut why = BTreeMap::new();
        for member in self.members() {
            let here = (0..self.homes.len()).filter(|i| self.homes[*i].is_some_and(|home| home.key == member.key));
            let mut added = Vec::new();
            for i in here {
                let ask = Ask::promised(&self.slots[i].request.demand);
                if !trial.add(member, Tenant::New(i), ask) {
                    why.insert(member.key.clone(), format!("{}: {}", self.slots[i].request.app, trial.why_not(member, ask).reason()));
                    break;
                }
                added.push(i);
            }
            for i in added {
                trial.remove(member, Tenant::New(i));
            }
        }
        why
    }

    fn is_small(&self, can_go: &[usize]) -> bool {
        let mut members: BTreeMap<_, &MemberRoom> = self.homes.iter().flatten().map(|room| (&room.key, *room)).collect();
        members.extend(can_go.iter().flat_map(|j| &self.movable[*j].destinations).map(|room| (&room.key, *room)));
        can_go.len() <= SMALL_CANDIDATES && members.len() <= SMALL_MEMBERS && members.values().all(|room| room.nodes().len() <= SMALL_NODES)
    }

    fn fewest_destinations_first(&self, can_go: &[usize]) -> Vec<usize> {
        let nothing = Trial::default();
        let with_room = |j: &usize| {
            let m = &self.movable[*j];
            m.destinations.iter().filter(|to| nothing.fit(to, m.ask()).is_some()).count()
        };
        let mut order: Vec<(usize, usize)> = can_go.iter().map(|j| (with_room(j), *j)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, j)| j).collect()
    }

    /// Takes candidates in this order until the newcomer fits, then drops those that are not needed.
    fn greedy(&self, order: &[usize], effort: &mut Effort) -> Option<Moves<'a>> {
        let mut trial = Trial::default();
        let mut open = self.place_what_fits(&mut trial);
        let targets = open.clone();
        let mut moves: Moves<'a> = Vec::new();
        for &j in order {
            if open.is_empty() {
                break;
            }
            let m = &self.movable[j];
            let Some(at) = open.iter().position(|room| room.key == m.room.key) else { continue };
            effort.examined += 1;
            trial.leave(m.room, m.claim);
            let Some(to) = m.settle(&mut trial, &targets) else {
                trial.stay(m.room, m.claim);
                continue;
            };
            moves.push((j, to));
            if self.add_newcomer(&mut trial, Some(m.room)) {
                open.remove(at);
            }
        }
        if !open.is_empty() {
            return None;
        }
        let pruned = self.prune(moves.clone(), trial, effort);
        let pruned = if self.build(&pruned).is_some() { pruned } else { moves };
        let mut settled = self.settle(&pruned).unwrap_or(pruned);
        settled.sort_by_key(|(j, _)| *j);
        self.build(&settled).is_some().then_some(settled)
    }

    /// Drops every victim without which the newcomer still fits, the last taken first. All moves are made in `trial`.
    fn prune(&self, mut moves: Moves<'a>, mut trial: Trial<'a>, effort: &mut Effort) -> Moves<'a> {
        loop {
            let before = moves.len();
            for at in (0..moves.len()).rev() {
                let (j, to) = moves[at];
                let m = &self.movable[j];
                effort.examined += 1;
                self.remove_newcomer(&mut trial, None);
                let Some(out) = trial.remove(to, m.tenant()) else { continue };
                trial.stay(m.room, m.claim);
                let others: Moves<'a> = moves.iter().copied().filter(|(moved, _)| *moved != j).collect();
                if self.keeps_intents(&others, &trial) && self.add_newcomer(&mut trial, None) {
                    moves.remove(at);
                    continue;
                }
                trial.leave(m.room, m.claim);
                trial.put_back(to, out);
                self.add_newcomer(&mut trial, None);
            }
            if moves.len() == before {
                return moves;
            }
        }
    }

    /// Chooses destinations for the same victims again, each the best one left: a dropped victim may have had a better one.
    fn settle(&self, moves: &[(usize, &'a MemberRoom)]) -> Option<Moves<'a>> {
        let mut trial = Trial::default();
        for (j, _) in moves {
            trial.leave(self.movable[*j].room, self.movable[*j].claim);
        }
        let targets = self.open();
        let mut settled = Vec::with_capacity(moves.len());
        for (j, _) in moves {
            settled.push((*j, self.movable[*j].settle(&mut trial, &targets)?));
        }
        self.build(&settled).is_some().then_some(settled)
    }

    /// Tries the sets of `k` victims in order. The victims chosen so far have left in `trial`.
    fn sets_of(
        &self,
        k: usize,
        can_go: &[usize],
        chosen: &mut Vec<usize>,
        trial: &mut Trial<'a>,
        effort: &mut Effort,
    ) -> Option<Moves<'a>> {
        if chosen.len() == k {
            if !effort.step() || !self.add_newcomer(trial, None) {
                return None;
            }
            self.remove_newcomer(trial, None);
            return self.homes_for(chosen, &mut Vec::with_capacity(k), trial, effort);
        }
        for (at, j) in can_go.iter().enumerate() {
            if can_go.len() - at < k - chosen.len() || effort.is_spent() {
                break;
            }
            let m = &self.movable[*j];
            trial.leave(m.room, m.claim);
            chosen.push(*j);
            let found = self.sets_of(k, &can_go[at + 1..], chosen, trial, effort);
            chosen.pop();
            trial.stay(m.room, m.claim);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Tries destinations for a set, the best first, until all victims and the newcomer fit.
    fn homes_for(&self, chosen: &[usize], moves: &mut Moves<'a>, trial: &mut Trial<'a>, effort: &mut Effort) -> Option<Moves<'a>> {
        let Some(j) = chosen.get(moves.len()) else {
            if effort.step() && self.keeps_intents(moves, trial) && self.add_newcomer(trial, None) {
                self.remove_newcomer(trial, None);
                return Some(moves.clone());
            }
            return None;
        };
        let m = &self.movable[*j];
        for to in m.ranked(trial) {
            if effort.is_spent() {
                break;
            }
            if !trial.add(to, m.tenant(), m.ask()) {
                continue;
            }
            moves.push((*j, to));
            let found = self.homes_for(chosen, moves, trial, effort);
            moves.pop();
            trial.remove(to, m.tenant());
            if found.is_some() {
                return found;
            }
        }
        None
    }
}
