//! Destinations for victims that are chosen already.

use super::best::Best;
use super::movable::Movable;
use super::problem::{Moves, RoomProblem};
use crate::trial::Trial;
use crate::work::Effort;

/// These candidates, those with the fewest destinations with room first; among equals in the given order.
pub(crate) fn fewest_destinations_first(movable: &[Movable<'_>], candidates: &[usize]) -> Vec<usize> {
    let nothing = Trial::default();
    let with_room = |m: &Movable<'_>| m.destinations.iter().filter(|to| nothing.fit(to, m.ask()).is_some()).count();
    let mut order = candidates.to_vec();
    order.sort_by_cached_key(|j| with_room(&movable[*j]));
    order
}

/// Tries destinations, the best first, for the victims from position `moves.len()` of `victims` on, until the schedulers place all pods in
/// any order. The victims have left in `trial`. Returns whether the search is over.
pub(crate) fn try_destinations<'a>(
    problem: &RoomProblem<'_, 'a>,
    victims: &[usize],
    moves: &mut Moves<'a>,
    trial: &mut Trial<'a>,
    effort: &mut Effort<'_>,
    best: &mut Best<'a>,
) -> bool {
    let Some(j) = victims.get(moves.len()) else {
        if !problem.keeps_intents(moves, trial) || !problem.add_newcomer(trial, None) {
            return false;
        }
        problem.remove_newcomer(trial, None);
        let mut moves = moves.clone();
        moves.sort_by_key(|(j, _)| *j);
        return best.offer(problem, moves);
    };
    let m = &problem.movable[*j];
    for to in m.ranked(trial) {
        // Each attempt is a step: without room for the last victims, every choice for the first ones is tried.
        if !effort.step() {
            return true;
        }
        if !trial.add(to, m.tenant(), m.ask()) {
            continue;
        }
        moves.push((*j, to));
        let over = try_destinations(problem, victims, moves, trial, effort, best);
        moves.pop();
        trial.remove(to, m.tenant());
        if over {
            return true;
        }
    }
    false
}
