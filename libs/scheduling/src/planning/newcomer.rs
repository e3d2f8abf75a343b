//! A plan for a newcomer: tries assignments in order of preference; the first tier with a feasible plan wins.
//!
//! `whenFull: overflow`: members with room and without moves come first. `preferred`: the best provider comes first, even with moves; if
//! no room can be made there and other members have room, there is no plan, and the caller overflows.

use std::collections::{BTreeMap, BTreeSet};

use super::assignments::{Assignment, Assignments};
use super::best::FoundMoves;
use super::candidates::{Candidates, find};
use super::context::PlanningContext;
use super::destinations::Expanded;
use super::least::{LeastMoves, Promising};
use super::movable::Movable;
use super::parameters::move_cost;
use super::problem::RoomProblem;
use super::report::{self, CUT, Found};
use super::search::{NoMoves, VictimSearch};
use crate::calling_apps::CallingApps;
use crate::expand::Standing;
use crate::explanations::{why_cordoned, why_unknown};
use crate::reachability::why_out_of_reach;
use crate::slot::Slot;
use crate::work::Effort;
use crate::{AppRequest, DigRef, Holds, Infeasible, MemberKey, MemberRoom, PlanResult, WhyNot};

pub(crate) fn plan(context: &PlanningContext<'_>, dig: &DigRef, apps: &[AppRequest], effort: &mut Effort<'_>) -> PlanResult {
    // Sorted, so that the order of the apps in the request has no influence.
    let mut apps = apps.to_vec();
    apps.sort_by(|a, b| a.app.cmp(&b.app));
    let apps = &apps[..];
    let slots = Slot::of(context.ledger, dig.id, apps, false, context.refused);
    let mut tried = Tried::default();
    let nowhere: Vec<&str> = apps.iter().map(|a| a.app.as_str()).filter(|app| slots.iter().all(|s| s.request.app != *app)).collect();
    for app in nowhere {
        tried.member(&MemberKey::default(), format!("{app}: its placement intent names no cluster"));
    }
    for slot in &slots {
        impossible(slot, &mut tried);
    }
    if !tried.members.is_empty() {
        return PlanResult::Infeasible(tried.give_up(effort));
    }
    for slot in &slots {
        for room in slot.group.allowed().filter(|room| !room.is_known()) {
            tried.member(&room.key, format!("its capacity is unknown: {}", why_unknown(room)));
            if room.is_awaited() {
                tried.awaited.insert(room.key.clone());
            }
        }
        for option in slot.group.options.iter().filter(|option| option.standing == Standing::Cordoned) {
            tried.member(&option.room.key, format!("it {}", why_cordoned(option.room)));
        }
    }
    let requested: Vec<&str> = apps.iter().map(|app| app.app.as_str()).collect();
    let callers = CallingApps::of(context.ledger, dig, &requested, &slots, |slot| slots[slot].group.allowed().next());
    let assignments = Assignments { context, newcomer: dig.id, slots: &slots, callers: callers.as_ref() }.all(effort);
    // Room for all apps without a move: no candidates are needed.
    for assignment in assignments.iter().filter(|assignment| assignment.is_free()) {
        let case = RoomProblem { context, slots: &slots, homes: &assignment.homes, movable: &[] };
        effort.examined += 1;
        if case.build(&[]).is_some() {
            let candidates = Candidates::default();
            return PlanResult::Feasible(report::feasible(context, &case, Found::new(&candidates, Vec::new()), tried.members, effort));
        }
    }
    let mut known = Known::default();
    let last = assignments.last().map(std::ptr::from_ref);
    for equal in assignments.chunk_by(Assignment::is_as_good) {
        let is_last_tier = equal.last().map(std::ptr::from_ref) == last;
        let mut best: Option<Choice<'_, '_>> = None;
        let mut in_vain = BTreeMap::new();
        let mut promising = Promising::of(context, dig, &slots, equal);
        while let Some(at) = promising
            .next(&mut known.expanded, |at, least| best.as_ref().is_some_and(|best| best.is_at_least_as_good_as_any(at, &equal[at], least)))
        {
            let assignment = &equal[at];
            let more = !is_last_tier || !promising.is_empty();
            let (from, result) = solve(context, dig, &slots, assignment, &mut known, more, effort);
            match result {
                Ok(found) => {
                    let movable = known.movable(&from);
                    let cost = found.moves.iter().map(|(j, to)| move_cost(context, &movable[*j], to)).sum::<f64>();
                    let choice = Choice { cost, assignment, at, from, found };
                    if best.as_ref().is_none_or(|best| choice.is_better_than(best)) {
                        best = Some(choice);
                    }
                }
                Err(stuck) => {
                    in_vain.insert(at, (from, stuck));
                }
            }
        }
        for (at, (from, stuck)) in in_vain {
            tried.stuck(&RoomProblem { context, slots: &slots, homes: &equal[at].homes, movable: known.movable(&from) }, stuck);
        }
        if let Some(Choice { assignment, from, found: FoundMoves { moves, .. }, .. }) = best {
            if moves.is_empty() && assignment.is_for_overflow() {
                for home in assignment.homes.iter().flatten() {
                    tried.member(&home.key, "has room, but is less preferred; it is used for overflow and not by a plan".into());
                }
                break;
            }
            let nobody = Candidates::default();
            let from = known.by_members.get(&from).unwrap_or(&nobody);
            let case = RoomProblem { context, slots: &slots, homes: &assignment.homes, movable: &from.movable };
            return PlanResult::Feasible(report::feasible(context, &case, Found::new(from, moves), tried.members, effort));
        }
    }
    tried.awaited.extend(known.by_members.values().flat_map(|candidates| candidates.awaited.iter().copied().cloned()));
    tried.candidates = known.by_members.into_values().flat_map(report::refused).collect();
    PlanResult::Infeasible(tried.give_up(effort))
}

/// The candidates that a plan has found so far.
#[derive(Default)]
struct Known<'a> {
    by_members: BTreeMap<Vec<&'a MemberKey>, Candidates<'a>>,
    expanded: Expanded<'a>,
}

impl<'a> Known<'a> {
    /// The apps on these members that may move, if they have been looked for.
    fn movable(&self, members: &[&'a MemberKey]) -> &[Movable<'a>] {
        self.by_members.get(members).map_or(&[], |candidates| &candidates.movable)
    }
}

/// An assignment with the moves that make room for it.
struct Choice<'s, 'a> {
    cost: f64,
    assignment: &'s Assignment<'a>,
    /// Its position among equally good assignments.
    at: usize,
    /// The members whose apps are candidates.
    from: Vec<&'a MemberKey>,
    found: FoundMoves<'a>,
}

impl<'a> Choice<'_, 'a> {
    /// Compares how certain the packing is, then the number of victims, the calls between clusters, the cost, and the positions.
    fn is_better_than(&self, other: &Self) -> bool {
        let certain = other.found.holds.cmp(&self.found.holds).then(self.found.moves.len().cmp(&other.found.moves.len()));
        let cost = self.assignment.waiting.total_cmp(&other.assignment.waiting).then(self.cost.total_cmp(&other.cost));
        certain.then(cost).then(self.at.cmp(&other.at)).is_lt()
    }

    /// Whether no moves for another, equally good assignment can be better. Where hundreds of members are alike, the candidates of most
    /// need not be examined.
    fn is_at_least_as_good_as_any(&self, at: usize, other: &Assignment<'_>, least: &LeastMoves<'_>) -> bool {
        let moves = self.found.moves.len().cmp(&least.count);
        let cost = self.assignment.waiting.total_cmp(&other.waiting).then(self.cost.total_cmp(&least.cost));
        self.found.holds == Holds::Any && moves.then(cost).then(self.at.cmp(&at)).is_le()
    }
}

/// Finds the victims for an assignment: on its members without room, and if that fails, on all its members.
fn solve<'a>(
    context: &PlanningContext<'a>,
    dig: &DigRef,
    slots: &[Slot<'a>],
    assignment: &Assignment<'a>,
    known: &mut Known<'a>,
    more: bool,
    effort: &mut Effort<'_>,
) -> (Vec<&'a MemberKey>, Result<FoundMoves<'a>, NoMoves>) {
    let bare = RoomProblem { context, slots, homes: &assignment.homes, movable: &[] };
    let (open, members) = (bare.open(), bare.members());
    let mut attempt = |rooms: &[&'a MemberRoom], more: bool| {
        let keys: Vec<&MemberKey> = rooms.iter().map(|room| &room.key).collect();
        let Known { by_members, expanded } = &mut *known;
        let from = by_members.entry(keys.clone()).or_insert_with(|| find(context, rooms, Some(dig.id), expanded));
        (
            keys,
            VictimSearch {
                problem: RoomProblem { context, slots, homes: &assignment.homes, movable: &from.movable },
                fewest: context.fewest_moves,
            }
            .solve(effort, more),
        )
    };
    let twice = !open.is_empty() && members.len() > open.len();
    let first = attempt(&open, more || twice);
    // A victim on a member with room may make place for another victim without other destinations.
    if first.1.is_err() && twice {
        let second = attempt(&members, more);
        if second.1.is_ok() {
            return second;
        }
    }
    first
}

fn impossible(slot: &Slot<'_>, tried: &mut Tried) {
    if slot.group.allowed().next().is_some() {
        return;
    }
    let app = &slot.request.app;
    for key in &slot.group.missing {
        tried.member(key, format!("{app}: there is no cluster {key}"));
    }
    for option in &slot.group.options {
        let reason = match option.standing {
            Standing::Refused(refused) => refused.reason.clone(),
            Standing::Cordoned => format!("it {}", why_cordoned(option.room)),
            Standing::Excluded => {
                let (who, why) = slot.request.terms.excluded(&option.room.key).unwrap_or_default();
                format!("it is excluded by the controller {who}: {why}")
            }
            Standing::OutOfReach => why_out_of_reach(&slot.request.terms, option.room).to_owned(),
            _ => "it is outside the logical cloud or being removed".to_owned(),
        };
        tried.member(&option.room.key, format!("{app}: {reason}"));
    }
    if slot.group.missing.is_empty() && slot.group.options.is_empty() {
        tried.member(&MemberKey::default(), format!("{app}: no cluster matches {}", slot.group.label()));
    }
}

/// The members tried without success.
#[derive(Default)]
struct Tried {
    members: Vec<WhyNot>,
    candidates: Vec<crate::Candidate>,
    awaited: BTreeSet<MemberKey>,
    leftovers: BTreeSet<MemberKey>,
}

impl Tried {
    /// Records the reason for a member, unless there is one already.
    fn member(&mut self, key: &MemberKey, reason: String) {
        if self.members.iter().all(|m| m.member != *key || key.0.is_empty()) {
            self.members.push(WhyNot { member: key.clone(), reason });
        }
    }

    fn stuck(&mut self, case: &RoomProblem<'_, '_>, stuck: NoMoves) {
        let destinations = case.movable.iter().flat_map(|m| m.destinations.iter());
        let left = case.open().into_iter().chain(destinations).filter(|room| room.has_leftovers());
        self.leftovers.extend(left.map(|room| room.key.clone()));
        for home in case.open() {
            let movable = case.movable.iter().filter(|m| m.room.key == home.key).count();
            let reason = match &stuck {
                NoMoves::NeverFits(why) => match why.get(&home.key) {
                    Some(why) if movable == 0 => format!("{why}; no app on it may move"),
                    Some(why) => format!("{why}, even if all {movable} apps that may move left"),
                    None => "room can be made here, but not for the newcomer's other apps elsewhere".to_owned(),
                },
                NoMoves::NoSet { cut: false } => {
                    format!("{movable} apps may move, but no set of them frees enough room and has room elsewhere")
                }
                NoMoves::NoSet { cut: true } => {
                    format!("{movable} apps may move, but no set of them that frees enough room and has room elsewhere was found {CUT}")
                }
            };
            self.member(&home.key, reason);
        }
    }

    fn give_up(self, effort: &Effort<'_>) -> Infeasible {
        let Self { members, candidates, awaited, leftovers } = self;
        let (awaited, leftovers) = (awaited.into_iter().collect(), leftovers.into_iter().collect());
        Infeasible { members, candidates, awaited, leftovers, cut_short: effort.cut_short, examined: effort.examined }
    }
}
