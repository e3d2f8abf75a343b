//! A plan that empties a member. It exists only if every app on the member has a destination.

use std::collections::BTreeSet;

use super::candidates::{Candidates, find};
use super::context::PlanningContext;
use super::problem::{Moves, RoomProblem};
use super::report::{self, CUT, Found};
use crate::trial::Trial;
use crate::work::Effort;
use crate::{Infeasible, MemberKey, MemberRoom, PlanResult, WhyNot};

pub(crate) fn plan(context: &PlanningContext<'_>, member: &MemberKey, effort: &mut Effort<'_>) -> PlanResult {
    let infeasible = |reason: String, candidates: Candidates<'_>, effort: &Effort<'_>| {
        let members = vec![WhyNot { member: member.clone(), reason }];
        let awaited = candidates.awaited.iter().copied().cloned().collect();
        let destinations = candidates.movable.iter().flat_map(|m| &m.destinations).filter(|room| room.has_leftovers());
        let leftovers: BTreeSet<MemberKey> = destinations.map(|room| room.key.clone()).collect();
        let leftovers = leftovers.into_iter().collect();
        let candidates = report::refused(candidates);
        PlanResult::Infeasible(Infeasible {
            members,
            candidates,
            awaited,
            leftovers,
            cut_short: effort.cut_short,
            examined: effort.examined,
        })
    };
    let Some(room) = context.ledger.room(member) else {
        return infeasible(format!("there is no cluster {member}"), Candidates::default(), effort);
    };
    let mut candidates = find(context, &[room], None);
    // Claims that are leaving already need no move.
    candidates.excluded.retain(|c| context.ledger.claim(&c.claim).is_none_or(|claim| claim.state != crate::ClaimState::Leaving));
    if !candidates.excluded.is_empty() {
        let reason =
            format!("{} of its {} apps may not move", candidates.excluded.len(), candidates.excluded.len() + candidates.movable.len());
        return infeasible(reason, candidates, effort);
    }
    let case = RoomProblem { slots: &[], homes: &[], movable: &candidates.movable };
    match homes_for_all(&candidates, effort) {
        Some(moves) => {
            let mut plan = report::feasible(context, &case, Found::new(&candidates, moves), Vec::new(), effort);
            plan.targets = vec![member.clone()];
            PlanResult::Feasible(plan)
        }
        None => {
            let homeless = candidates.movable.iter().filter(|m| m.best.is_none()).count();
            let reason = match homeless {
                0 if effort.cut_short => format!("no room for all its apps elsewhere at once was found {CUT}"),
                0 => "its apps do not all have room elsewhere at once".to_owned(),
                n => format!("{n} of its {} apps have no room on any other cluster", candidates.movable.len()),
            };
            infeasible(reason, candidates, effort)
        }
    }
}

/// Finds a destination for each app. First greedily in the order of the policy; then by backtracking, the apps with the fewest
/// destinations first.
fn homes_for_all<'a>(candidates: &Candidates<'a>, effort: &mut Effort<'_>) -> Option<Moves<'a>> {
    if candidates.movable.iter().any(|m| m.best.is_none()) {
        return None;
    }
    let mut trial = Trial::default();
    for m in &candidates.movable {
        trial.leave(m.room, m.claim);
    }
    let in_order: Vec<usize> = (0..candidates.movable.len()).collect();
    let greedy: Option<Moves<'a>> = in_order
        .iter()
        .map(|j| {
            let m = &candidates.movable[*j];
            effort.examined += 1;
            m.settle(&mut trial, &[]).map(|to| (*j, to))
        })
        .collect();
    if greedy.is_some() {
        return greedy;
    }
    for m in &candidates.movable {
        for to in &m.destinations {
            trial.remove(to, m.tenant());
        }
    }
    let nothing = Trial::default();
    let choices =
        |j: &usize| candidates.movable[*j].destinations.iter().filter(|to| nothing.fit(to, candidates.movable[*j].ask()).is_some()).count();
    let mut order: Vec<(usize, usize)> = in_order.iter().map(|j| (choices(j), *j)).collect();
    order.sort_unstable();
    let order: Vec<usize> = order.into_iter().map(|(_, j)| j).collect();
    effort.begin(false);
    let mut moves = Vec::new();
    let found = descend(candidates, &order, &mut trial, &mut moves, effort);
    moves.sort_by_key(|(j, _)| *j);
    found.then_some(moves)
}

fn descend<'a>(
    candidates: &Candidates<'a>,
    order: &[usize],
    trial: &mut Trial<'a>,
    moves: &mut Vec<(usize, &'a MemberRoom)>,
    effort: &mut Effort<'_>,
) -> bool {
    let Some(j) = order.get(moves.len()) else { return true };
    let m = &candidates.movable[*j];
    for to in m.ranked(trial) {
        if !effort.step() {
            return false;
        }
        if !trial.add(to, m.tenant(), m.ask()) {
            continue;
        }
        moves.push((*j, to));
        if descend(candidates, order, trial, moves, effort) {
            return true;
        }
        moves.pop();
        trial.remove(to, m.tenant());
    }
    false
}
