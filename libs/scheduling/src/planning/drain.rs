//! A plan that empties a member: every app on it has a home elsewhere, or there is no plan.

use super::candidate::{Looked, look};
use super::context::World;
use super::report::{self, Found};
use super::search::{Case, Effort, Moves};
use crate::trial::Trial;
use crate::{Infeasible, MemberKey, MemberRoom, PlanResult, WhyNot};

/// Destinations tried in all.
const BOUND: u64 = 20_000;

pub(crate) fn plan(world: &World<'_>, member: &MemberKey) -> PlanResult {
    let infeasible = |reason: String, looked: Looked<'_>, effort: Effort| {
        let members = vec![WhyNot { member: member.clone(), reason }];
        let awaited = looked.awaited.iter().copied().cloned().collect();
        let candidates = report::refused(looked);
        PlanResult::Infeasible(Infeasible { members, candidates, awaited, cut_short: effort.cut_short, examined: effort.examined })
    };
    let Some(room) = world.ledger.room(member) else {
        return infeasible(format!("no cluster {member} is registered"), Looked::default(), Effort::default());
    };
    let mut looked = look(world, &[room], None);
    // Who is leaving already needs nothing from this plan.
    looked.excluded.retain(|c| world.ledger.claim(&c.claim).is_none_or(|claim| claim.state != crate::ClaimState::Leaving));
    if !looked.excluded.is_empty() {
        let reason = format!("{} of its {} apps may not move", looked.excluded.len(), looked.excluded.len() + looked.movable.len());
        return infeasible(reason, looked, Effort::default());
    }
    let mut effort = Effort::default();
    let case = Case { slots: &[], homes: &[], movable: &looked.movable };
    match homes_for_all(&looked, &mut effort) {
        Some(moves) => {
            let mut plan = report::feasible(world, &case, Found::new(&looked, moves), Vec::new(), &effort);
            plan.targets = vec![member.clone()];
            PlanResult::Feasible(plan)
        }
        None => {
            let homeless = looked.movable.iter().filter(|m| m.best.is_none()).count();
            let reason = match homeless {
                0 => "its apps have no room elsewhere all at once".to_owned(),
                n => format!("{n} of its {} apps have no room anywhere else", looked.movable.len()),
            };
            infeasible(reason, looked, effort)
        }
    }
}

/// A home for each: the best one first, those with the fewest choices first, going back where that leads nowhere.
fn homes_for_all<'a>(looked: &Looked<'a>, effort: &mut Effort) -> Option<Moves<'a>> {
    if looked.movable.iter().any(|m| m.best.is_none()) {
        return None;
    }
    let mut trial = Trial::default();
    for m in &looked.movable {
        trial.leave(m.room, m.claim);
    }
    let in_order: Vec<usize> = (0..looked.movable.len()).collect();
    let greedy: Option<Moves<'a>> = in_order
        .iter()
        .map(|j| {
            let m = &looked.movable[*j];
            effort.examined += 1;
            m.settle(&mut trial, &[]).map(|to| (*j, to))
        })
        .collect();
    if greedy.is_some() {
        return greedy;
    }
    for m in &looked.movable {
        for to in &m.destinations {
            trial.remove(to, m.tenant());
        }
    }
    let nothing = Trial::default();
    let choices =
        |j: &usize| looked.movable[*j].destinations.iter().filter(|to| nothing.fit(to, looked.movable[*j].ask()).is_some()).count();
    let mut order: Vec<(usize, usize)> = in_order.iter().map(|j| (choices(j), *j)).collect();
    order.sort_unstable();
    let order: Vec<usize> = order.into_iter().map(|(_, j)| j).collect();
    let mut left = BOUND;
    let mut moves = Vec::new();
    let found = descend(looked, &order, &mut trial, &mut moves, &mut left);
    effort.examined += BOUND - left;
    effort.cut_short |= !found && left == 0;
    moves.sort_by_key(|(j, _)| *j);
    found.then_some(moves)
}

fn descend<'a>(
    looked: &Looked<'a>,
    order: &[usize],
    trial: &mut Trial<'a>,
    moves: &mut Vec<(usize, &'a MemberRoom)>,
    left: &mut u64,
) -> bool {
    let Some(j) = order.get(moves.len()) else { return true };
    let m = &looked.movable[*j];
    for to in m.ranked(trial) {
        if *left == 0 {
            return false;
        }
        *left -= 1;
        if !trial.add(to, m.tenant(), m.ask()) {
            continue;
        }
        moves.push((*j, to));
        if descend(looked, order, trial, moves, left) {
            return true;
        }
        moves.pop();
        trial.remove(to, m.tenant());
    }
    false
}
