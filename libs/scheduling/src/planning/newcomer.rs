//! A plan for a newcomer: which members room is made on, in order of preference; the first with a feasible plan wins.
//!
//! `whenFull: overflow`: wherever there is room without a move comes first. `preferred`: the best provider comes first, even
//! with moves; where it cannot be freed and others have room, there is no plan and the caller overflows.

use std::collections::{BTreeMap, BTreeSet};

use super::candidate::{Looked, look};
use super::choices::{Choice, Choices};
use super::context::World;
use super::parameters::move_cost;
use super::report::{self, Found};
use super::search::{Case, Effort, Moves, Stuck};
use crate::callers::Callers;
use crate::considered::why_unknown;
use crate::slot::Slot;
use crate::{AppRequest, DigRef, Infeasible, MemberKey, MemberRoom, PlanResult, WhyNot};

pub(crate) fn plan(world: &World<'_>, dig: &DigRef, apps: &[AppRequest]) -> PlanResult {
    // In an order of our own: the same apps get the same plan however they come.
    let mut apps = apps.to_vec();
    apps.sort_by(|a, b| a.app.cmp(&b.app));
    let apps = &apps[..];
    let slots = Slot::of(world.ledger, apps, false);
    let mut tried = Tried::default();
    let nowhere: Vec<&str> = apps.iter().map(|a| a.app.as_str()).filter(|app| slots.iter().all(|s| s.request.app != *app)).collect();
    for app in nowhere {
        tried.member(&MemberKey::default(), format!("{app}: its placement intent names no cluster"));
    }
    for slot in &slots {
        impossible(slot, &mut tried);
    }
    if !tried.members.is_empty() {
        return PlanResult::Infeasible(tried.give_up(&Effort::default()));
    }
    let mut effort = Effort::default();
    for slot in &slots {
        for room in slot.group.allowed().filter(|room| !room.is_known()) {
            tried.member(&room.key, format!("nothing is known of it: {}", why_unknown(room)));
            if room.is_awaited() {
                tried.awaited.insert(room.key.clone());
            }
        }
    }
    let requested: Vec<&str> = apps.iter().map(|app| app.app.as_str()).collect();
    let callers = Callers::of(world.ledger, dig, &requested, &slots, |slot| slots[slot].group.allowed().next());
    let choices = Choices { world, newcomer: dig.id, slots: &slots, callers: callers.as_ref() }.all(&mut effort);
    // Room for all without a single move: nobody is looked at.
    for choice in choices.iter().filter(|choice| choice.is_free()) {
        let case = Case { slots: &slots, homes: &choice.homes, movable: &[] };
        effort.examined += 1;
        if case.build(&[]).is_some() {
            let looked = Looked::default();
            return PlanResult::Feasible(report::feasible(world, &case, Found::new(&looked, Vec::new()), tried.members, &effort));
        }
    }
    let mut looked: BTreeMap<Vec<&MemberKey>, Looked<'_>> = BTreeMap::new();
    for equal in choices.chunk_by(Choice::is_as_good) {
        let mut best: Option<(usize, f64, &Choice<'_>, Vec<&MemberKey>, Moves<'_>)> = None;
        for choice in equal {
            let (from, result) = solve(world, dig, &slots, choice, &mut looked, &mut effort);
            let movable = looked.get(&from).map_or(&[][..], |l| &l.movable);
            match result {
                Ok(moves) => {
                    let cost = moves.iter().map(|(j, to)| move_cost(world, &movable[*j], to)).sum::<f64>();
                    // Of as many victims the fewest calls between clusters; among equals the first, which is the order by name.
                    let less = |(n, c, than, ..): &(usize, f64, &Choice<'_>, _, _)| {
                        moves.len().cmp(n).then(choice.waiting.total_cmp(&than.waiting)).then(cost.total_cmp(c)).is_lt()
                    };
                    let better = best.as_ref().is_none_or(less);
                    if better {
                        best = Some((moves.len(), cost, choice, from, moves));
                    }
                }
                Err(stuck) => {
                    let case = Case { slots: &slots, homes: &choice.homes, movable };
                    tried.stuck(&case, stuck);
                }
            }
        }
        if let Some((_, _, choice, from, moves)) = best {
            if moves.is_empty() && choice.is_for_overflow() {
                for home in choice.homes.iter().flatten() {
                    tried.member(&home.key, "has room, but is less preferred: for overflow, not for a plan".into());
                }
                break;
            }
            let nobody = Looked::default();
            let from = looked.get(&from).unwrap_or(&nobody);
            let case = Case { slots: &slots, homes: &choice.homes, movable: &from.movable };
            return PlanResult::Feasible(report::feasible(world, &case, Found::new(from, moves), tried.members, &effort));
        }
    }
    tried.awaited.extend(looked.values().flat_map(|looked| looked.awaited.iter().copied().cloned()));
    tried.candidates = looked.into_values().flat_map(report::refused).collect();
    PlanResult::Infeasible(tried.give_up(&effort))
}

/// Who leaves for this choice: from members where it does not fit; in small cases then from all its members.
fn solve<'a>(
    world: &World<'a>,
    dig: &DigRef,
    slots: &[Slot<'a>],
    choice: &Choice<'a>,
    looked: &mut BTreeMap<Vec<&'a MemberKey>, Looked<'a>>,
    effort: &mut Effort,
) -> (Vec<&'a MemberKey>, Result<Moves<'a>, Stuck>) {
    let bare = Case { slots, homes: &choice.homes, movable: &[] };
    let (open, members) = (bare.open(), bare.members());
    let mut attempt = |rooms: &[&'a MemberRoom]| {
        let keys: Vec<&MemberKey> = rooms.iter().map(|room| &room.key).collect();
        let from = looked.entry(keys.clone()).or_insert_with(|| look(world, rooms, Some(dig.id)));
        (keys, Case { slots, homes: &choice.homes, movable: &from.movable }.solve(effort))
    };
    let first = attempt(&open);
    // Somebody who leaves a member with room may make way for a victim that has no other home.
    if first.1.is_err() && !open.is_empty() && members.len() > open.len() {
        let second = attempt(&members);
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
        tried.member(key, format!("{app}: no cluster {key} is registered"));
    }
    for choice in &slot.group.options {
        tried.member(&choice.room.key, format!("{app}: outside its logical cloud or being removed"));
    }
    if slot.group.missing.is_empty() && slot.group.options.is_empty() {
        tried.member(&MemberKey::default(), format!("{app}: no cluster matches {}", slot.group.label()));
    }
}

/// Members tried without success.
#[derive(Default)]
struct Tried {
    members: Vec<WhyNot>,
    candidates: Vec<crate::Candidate>,
    awaited: BTreeSet<MemberKey>,
}

impl Tried {
    /// The first reason found for a member counts.
    fn member(&mut self, key: &MemberKey, reason: String) {
        if self.members.iter().all(|m| m.member != *key || key.0.is_empty()) {
            self.members.push(WhyNot { member: key.clone(), reason });
        }
    }

    fn stuck(&mut self, case: &Case<'_, '_>, stuck: Stuck) {
        for home in case.open() {
            let movable = case.movable.iter().filter(|m| m.room.key == home.key).count();
            let reason = match &stuck {
                Stuck::NeverFits(why) => match why.get(&home.key) {
                    Some(why) if movable == 0 => format!("{why}; no app there may move"),
                    Some(why) => format!("{why}, even if all {movable} apps that may move left"),
                    None => "room may be made there, but not for its other apps elsewhere".to_owned(),
                },
                Stuck::NoSet => format!("{movable} apps may move, but no set of them makes the room and has homes elsewhere"),
            };
            self.member(&home.key, reason);
        }
    }

    fn give_up(self, effort: &Effort) -> Infeasible {
        let Self { members, candidates, awaited } = self;
        let awaited = awaited.into_iter().collect();
        Infeasible { members, candidates, awaited, cut_short: effort.cut_short, examined: effort.examined }
    }
}
