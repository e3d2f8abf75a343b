//! Finds victims and destinations so that the newcomer fits on the members of an assignment.
//!
//! First greedily: takes candidates in order until the newcomer fits, then drops those that are not needed. If that fails, tries sets of
//! candidates and destinations systematically, fewest victims first, and skips sets that cannot do: those that free too little or need too
//! much (`bounds.rs`), and those whose victims do not even fit elsewhere if all candidates leave. The meter of the caller limits the work.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use super::best::{Best, FoundMoves};
use super::bounds::Bounds;
use super::destinations::Destinations;
use super::homes::{fewest_destinations_first, try_destinations};
use super::movable::Movable;
use super::parameters::requested;
use super::problem::{Moves, RoomProblem};
use crate::trial::Trial;
use crate::work::Effort;
use crate::{MemberKey, MemberRoom};

/// Up to this many candidates that fit elsewhere, every set can be tried, and the second greedy attempt is not needed. The numbers of
/// members and of nodes in a member have such limits, too.
const SMALL_CANDIDATES: usize = 8;
const SMALL_MEMBERS: usize = 3;
const SMALL_NODES: usize = 4;

/// The search for victims of one assignment.
pub(crate) struct VictimSearch<'w, 'a> {
    pub problem: RoomProblem<'w, 'a>,
    /// Whether to spend work on a plan with fewer victims than the first one that is found.
    pub fewest: bool,
}

/// What the systematic search of sets of one size needs.
struct Sets<'s, 'a> {
    /// Candidates that fit elsewhere, as indices into all candidates.
    can_go: &'s [usize],
    size: usize,
    bounds: &'s Bounds,
    /// `can_go`, those with the fewest destinations first: the order in which victims choose. Computed when it is needed.
    order: &'s OnceCell<Vec<usize>>,
    /// The trial in which all candidates have left.
    everybody: &'s Trial<'a>,
}

impl Sets<'_, '_> {
    /// The candidates at these positions.
    fn victims(&self, chosen: &[usize]) -> Vec<usize> {
        chosen.iter().map(|at| self.can_go[*at]).collect()
    }
}

/// Why no set was found.
pub(crate) enum NoMoves {
    /// The newcomer does not fit even if all candidates leave. By member, the app that does not fit, as text.
    NeverFits(BTreeMap<MemberKey, String>),
    /// No examined set of candidates frees enough room and has destinations.
    NoSet {
        /// The meter cut the search, so that a set may exist.
        cut: bool,
    },
}

impl<'a> VictimSearch<'_, 'a> {
    /// Finds the victims and their destinations. `more`: further searches of the same plan may follow.
    ///
    /// The first moves that are found in the order of the candidates are used if the schedulers place all pods in any order. Else the
    /// systematic search goes on for moves that do, and the most certain ones are used.
    pub fn solve(&self, effort: &mut Effort<'_>, more: bool) -> Result<FoundMoves<'a>, NoMoves> {
        let mut everybody = Trial::default();
        for m in self.problem.movable {
            everybody.leave(m.room, m.claim);
        }
        if !self.problem.add_newcomer(&mut everybody, None) {
            return Err(NoMoves::NeverFits(self.problem.why_not(&mut everybody)));
        }
        self.problem.remove_newcomer(&mut everybody, None);
        let in_order: Vec<usize> = (0..self.problem.movable.len()).collect();
        let mut best = Best::default();
        if let Some(moves) = self.greedy(&in_order, effort) {
            // No app is moved only to make the newcomer's own packing more certain.
            let done = moves.is_empty();
            if (best.offer(&self.problem, moves) && !self.fewest) || done {
                return best.found.ok_or(NoMoves::NoSet { cut: false });
            }
        }
        let can_go: Vec<usize> = in_order.into_iter().filter(|j| self.problem.movable[*j].best_in(&everybody).is_some()).collect();
        let order = OnceCell::new();
        // Too many candidates for every set: a greedy attempt in which candidates with few destinations come first.
        if best.found.is_none()
            && !self.is_small(&can_go)
            && let Some(moves) = self.greedy(order.get_or_init(|| fewest_destinations_first(self.problem.movable, &can_go)), effort)
            && best.offer(&self.problem, moves)
            && !self.fewest
        {
            return best.found.ok_or(NoMoves::NoSet { cut: false });
        }
        self.systematic(&can_go, &order, &mut best, &everybody, effort, more);
        best.found.ok_or(NoMoves::NoSet { cut: effort.is_stopped() })
    }

    /// Tries sets out of `can_go`, fewest victims first, until `best` cannot become better. `order` as in [`Sets::order`].
    fn systematic(
        &self,
        can_go: &[usize],
        order: &OnceCell<Vec<usize>>,
        best: &mut Best<'a>,
        everybody: &Trial<'a>,
        effort: &mut Effort<'_>,
        more: bool,
    ) {
        effort.begin(more);
        let candidates: Vec<&Movable<'a>> = can_go.iter().map(|j| &self.problem.movable[*j]).collect();
        let bounds = Bounds::of(&self.problem, &candidates);
        let mut trial = Trial::default();
        for size in 1..=can_go.len() {
            if !best.may_improve_with(size) || effort.is_stopped() {
                return;
            }
            if !bounds.rule_out(&[], 0, size) {
                let sets = Sets { can_go, size, bounds: &bounds, order, everybody };
                self.sets_of(&sets, &mut Vec::with_capacity(size), everybody, &mut trial, effort, best);
            }
        }
    }

    fn is_small(&self, can_go: &[usize]) -> bool {
        if can_go.len() > SMALL_CANDIDATES {
            return false;
        }
        let destinations = Destinations::union(can_go.iter().map(|j| &self.problem.movable[*j].destinations));
        let members: BTreeMap<_, &MemberRoom> = self
            .problem
            .homes
            .iter()
            .flatten()
            .copied()
            .chain(destinations.take(SMALL_MEMBERS + 1))
            .map(|room| (&room.key, room))
            .collect();
        members.len() <= SMALL_MEMBERS && members.values().all(|room| room.nodes().len() <= SMALL_NODES)
    }

    /// Takes candidates in this order until the newcomer fits, then drops those that are not needed.
    fn greedy(&self, order: &[usize], effort: &mut Effort<'_>) -> Option<Moves<'a>> {
        let mut trial = Trial::default();
        let mut open = self.problem.place_what_fits(&mut trial);
        let targets = open.clone();
        let mut moves: Moves<'a> = Vec::new();
        for &j in order {
            if open.is_empty() {
                break;
            }
            let m = &self.problem.movable[j];
            let Some(at) = open.iter().position(|room| room.key == m.room.key) else { continue };
            effort.examined += 1;
            trial.leave(m.room, m.claim);
            let Some(to) = m.settle(&mut trial, &targets) else {
                trial.stay(m.room, m.claim);
                continue;
            };
            moves.push((j, to));
            if self.problem.add_newcomer(&mut trial, Some(m.room)) {
                open.remove(at);
            }
        }
        if !open.is_empty() {
            return None;
        }
        let pruned = self.prune(moves.clone(), trial, effort);
        let pruned = if self.problem.build(&pruned).is_some() { pruned } else { moves };
        let mut settled = self.settle(&pruned).unwrap_or(pruned);
        settled.sort_by_key(|(j, _)| *j);
        self.problem.build(&settled).is_some().then_some(settled)
    }

    /// Drops every victim without which the newcomer still fits, the last taken first. All moves are made in `trial`.
    fn prune(&self, mut moves: Moves<'a>, mut trial: Trial<'a>, effort: &mut Effort<'_>) -> Moves<'a> {
        loop {
            let before = moves.len();
            for at in (0..moves.len()).rev() {
                let (j, to) = moves[at];
                let m = &self.problem.movable[j];
                effort.examined += 1;
                self.problem.remove_newcomer(&mut trial, None);
                let Some(out) = trial.remove(to, m.tenant()) else { continue };
                trial.stay(m.room, m.claim);
                let others: Moves<'a> = moves.iter().copied().filter(|(moved, _)| *moved != j).collect();
                if self.problem.keeps_intents(&others, &trial) && self.problem.add_newcomer(&mut trial, None) {
                    moves.remove(at);
                    continue;
                }
                trial.leave(m.room, m.claim);
                trial.put_back(to, out);
                self.problem.add_newcomer(&mut trial, None);
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
            trial.leave(self.problem.movable[*j].room, self.problem.movable[*j].claim);
        }
        let targets = self.problem.open();
        let mut settled = Vec::with_capacity(moves.len());
        for (j, _) in moves {
            settled.push((*j, self.problem.movable[*j].settle(&mut trial, &targets)?));
        }
        self.problem.build(&settled).is_some().then_some(settled)
    }

    /// Tries the sets of `sets.size` victims, in order, that begin with those `chosen` (positions in `can_go`). The chosen victims have
    /// left in `trial`, and have destinations in `elsewhere`, where all other candidates have left, too. Returns whether the search is
    /// over.
    fn sets_of(
        &self,
        sets: &Sets<'_, 'a>,
        chosen: &mut Vec<usize>,
        elsewhere: &Trial<'a>,
        trial: &mut Trial<'a>,
        effort: &mut Effort<'_>,
        best: &mut Best<'a>,
    ) -> bool {
        if chosen.len() == sets.size {
            if !self.problem.add_newcomer(trial, None) {
                return false;
            }
            self.problem.remove_newcomer(trial, None);
            let mut victims = sets.victims(chosen);
            if victims.len() > 1 {
                let order = sets.order.get_or_init(|| fewest_destinations_first(self.problem.movable, sets.can_go));
                victims.sort_by_key(|j| order.iter().position(|other| other == j));
            }
            return try_destinations(&self.problem, &victims, &mut Vec::new(), trial, effort, best);
        }
        let from = chosen.last().map_or(0, |last| last + 1);
        for at in from..sets.can_go.len() {
            let more = sets.size - chosen.len() - 1;
            if sets.can_go.len() - at <= more || !effort.step() {
                break;
            }
            chosen.push(at);
            let m = &self.problem.movable[sets.can_go[at]];
            if !sets.bounds.rule_out(chosen, at + 1, more)
                && let Some(elsewhere) = self.fit_elsewhere(sets, chosen, elsewhere, effort)
            {
                trial.leave(m.room, m.claim);
                let over = self.sets_of(sets, chosen, &elsewhere, trial, effort, best);
                trial.stay(m.room, m.claim);
                if over {
                    return true;
                }
            }
            chosen.pop();
        }
        false
    }

    /// `elsewhere` with the last of the chosen victims added, or another packing of all of them. `None`: they do not fit even if all
    /// candidates leave, so that no larger set does, either.
    fn fit_elsewhere(&self, sets: &Sets<'_, 'a>, chosen: &[usize], elsewhere: &Trial<'a>, effort: &mut Effort<'_>) -> Option<Trial<'a>> {
        let mut next = elsewhere.clone();
        let last = &self.problem.movable[sets.can_go[*chosen.last()?]];
        if last.settle(&mut next, &[]).is_some() {
            return Some(next);
        }
        let mut next = sets.everybody.clone();
        let mut victims = sets.victims(chosen);
        // The largest first: what fits nowhere is found early.
        victims.sort_by_cached_key(|j| std::cmp::Reverse(requested(self.problem.movable[*j].claim).cpu));
        self.pack_all(&victims, &mut next, effort).then_some(next)
    }

    /// Adds all victims to destinations, if there is a way. A search that is cut counts as success: it has proved nothing.
    fn pack_all(&self, victims: &[usize], trial: &mut Trial<'a>, effort: &mut Effort<'_>) -> bool {
        let Some((first, others)) = victims.split_first() else { return true };
        let m = &self.problem.movable[*first];
        for to in m.ranked(trial) {
            if !effort.step() {
                return true;
            }
            if trial.add(to, m.tenant(), m.ask()) {
                if self.pack_all(others, trial, effort) {
                    return true;
                }
                trial.remove(to, m.tenant());
            }
        }
        false
    }
}
