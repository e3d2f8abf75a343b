//! A plan that empties a member of apps. It exists only if every app on the member has a destination. Drover's agents stay, and so do copies of
//! apps that are to run on every cluster: they have nowhere else to go, and would keep every cluster from being emptied.

use std::collections::BTreeSet;

use super::best::Best;
use super::candidates::{Candidates, find, no};
use super::context::PlanningContext;
use super::destinations::Expanded;
use super::homes::{fewest_destinations_first, try_destinations};
use super::problem::{Moves, RoomProblem};
use super::report::{self, CUT, Found};
use crate::expand::means_every_cluster;
use crate::trial::Trial;
use crate::work::Effort;
use crate::{Candidate, Claim, Infeasible, MemberKey, MemberRoom, PlanResult, WhyNot};

pub(crate) fn plan(context: &PlanningContext<'_>, member: &MemberKey, effort: &mut Effort<'_>) -> PlanResult {
    let infeasible = |reason: String, candidates: Candidates<'_>, effort: &Effort<'_>| {
        let members = vec![WhyNot { member: member.clone(), reason }];
        let awaited = candidates.awaited.iter().copied().cloned().collect();
        let destinations = candidates.movable.iter().flat_map(|m| m.destinations.iter()).filter(|room| room.has_leftovers());
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
    let mut candidates = find(context, &[room], None, &mut Expanded::default());
    // Claims that are leaving already need no move, and Drover's own agents stay as long as the member does.
    candidates
        .excluded
        .retain(|c| !c.dig.is_agent() && context.ledger.claim(&c.claim).is_none_or(|claim| claim.state != crate::ClaimState::Leaving));
    let stay = staying(context, room, &mut candidates);
    if !candidates.excluded.is_empty() {
        let reason =
            format!("{} of its {} apps may not move", candidates.excluded.len(), candidates.excluded.len() + candidates.movable.len());
        return infeasible(reason, candidates, effort);
    }
    let case = RoomProblem { context, slots: &[], homes: &[], movable: &candidates.movable };
    match homes_for_all(&case, effort) {
        Some(moves) => {
            candidates.excluded = stay;
            let mut plan = report::feasible(context, &case, Found::new(&candidates, moves), Vec::new(), effort);
            plan.targets = vec![member.clone()];
            PlanResult::Feasible(plan)
        }
        None => {
            let homeless = candidates.movable.iter().filter(|m| !m.has_room()).count();
            let reason = match homeless {
                0 if effort.cut_short => format!("no room for all its apps elsewhere at once was found {CUT}"),
                0 => "its apps do not all have room elsewhere at once".to_owned(),
                n => format!("{n} of its {} apps have no room on any other cluster", candidates.movable.len()),
            };
            infeasible(reason, candidates, effort)
        }
    }
}

/// Takes out the copies that stay as long as the member does, because their apps are to run on every cluster of a selection.
fn staying(context: &PlanningContext<'_>, room: &MemberRoom, candidates: &mut Candidates<'_>) -> Vec<Candidate> {
    let stays = |claim: &Claim| claim.request.terms.intent.all_of.iter().any(|element| means_every_cluster(element, room));
    let why_not = || Some(no("every_cluster", "it is to run on every cluster of its placement, and stays"));
    let (staying, movable): (Vec<_>, Vec<_>) = std::mem::take(&mut candidates.movable).into_iter().partition(|m| stays(m.claim));
    let is_here = |c: &Candidate| context.ledger.claim(&c.claim).is_some_and(|claim| stays(claim));
    let (excluded_staying, excluded): (Vec<_>, Vec<_>) = std::mem::take(&mut candidates.excluded).into_iter().partition(is_here);
    (candidates.movable, candidates.excluded) = (movable, excluded);
    let mut stay: Vec<Candidate> = staying.iter().map(|m| report::candidate(m, false, why_not())).collect();
    stay.extend(excluded_staying.into_iter().map(|c| Candidate { why_not: why_not(), ..c }));
    stay
}

/// Finds a destination for each app. First greedily in the order of the policy; then by backtracking, the apps with the fewest
/// destinations first, until the schedulers place all pods in any order.
fn homes_for_all<'a>(case: &RoomProblem<'_, 'a>, effort: &mut Effort<'_>) -> Option<Moves<'a>> {
    let candidates = case.movable;
    if candidates.iter().any(|m| !m.has_room()) {
        return None;
    }
    let mut trial = Trial::default();
    for m in candidates {
        trial.leave(m.room, m.claim);
    }
    let in_order: Vec<usize> = (0..candidates.len()).collect();
    let greedy: Option<Moves<'a>> = in_order
        .iter()
        .map(|j| {
            let m = &candidates[*j];
            effort.examined += 1;
            m.settle(&mut trial, &[]).map(|to| (*j, to))
        })
        .collect();
    let mut best = Best::default();
    if greedy.is_some_and(|moves| best.offer(case, moves)) {
        return best.found.map(|found| found.moves);
    }
    for m in candidates {
        for to in m.destinations.iter() {
            trial.remove(to, m.tenant());
        }
    }
    let order = fewest_destinations_first(candidates, &in_order);
    effort.begin(false);
    try_destinations(case, &order, &mut Vec::new(), &mut trial, effort, &mut best);
    best.found.map(|found| found.moves)
}
