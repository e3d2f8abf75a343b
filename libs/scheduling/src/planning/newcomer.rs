//! A plan for a newcomer: which members room is made on, in order of preference; the first with a feasible plan wins.
//!
//! `whenFull: overflow`: wherever there is room without a move comes first. `preferred`: the best provider comes first, even
//! with moves; where it cannot be freed and others have room, there is no plan and the caller overflows.

use std::collections::BTreeMap;

use super::World;
use super::candidate::{Looked, look};
use super::parameters::move_cost;
use super::report::{self, Found};
use super::search::{Case, Effort, Moves, Stuck};
use crate::considered::why_unknown;
use crate::fit::Ask;
use crate::place::{Slot, equals};
use crate::trial::Trial;
use crate::{AppRequest, DigRef, Infeasible, MemberKey, MemberRoom, PlanResult, WhyNot};

/// Choices of members for all apps that are looked at.
const CHOICES: usize = 512;

/// How good a member is for an app; less is better, equal ones are compared by what it takes to free them.
type Tier = (u8, u32);
/// There is room (of preferred members where the app insists).
const ROOM: u8 = 0;
/// Room has to be made.
const FULL: u8 = 1;
/// The app insists on better ones, but here is room.
const LESS_ROOM: u8 = 2;
/// The app insists on better ones, and here is none.
const LESS_FULL: u8 = 3;

struct Option_<'a> {
    room: &'a MemberRoom,
    tier: Tier,
}

/// One way to spread the newcomer over members.
struct Choice<'a> {
    tiers: Vec<Tier>,
    homes: Vec<Option<&'a MemberRoom>>,
}

impl Choice<'_> {
    fn names(&self) -> Vec<Option<&MemberKey>> {
        self.homes.iter().map(|home| home.map(|room| &room.key)).collect()
    }
}

pub(crate) fn plan(world: &World<'_>, dig: &DigRef, apps: &[AppRequest]) -> PlanResult {
    let mut slots = Slot::of(world.ledger, apps, false);
    slots.sort_by(|a, b| a.request.app.cmp(&b.request.app));
    let mut tried = Tried::default();
    let mut nowhere: Vec<&str> = apps.iter().map(|a| a.app.as_str()).filter(|app| slots.iter().all(|s| s.request.app != *app)).collect();
    nowhere.sort_unstable();
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
    let options: Vec<Vec<Option_<'_>>> = slots.iter().map(|slot| options(slot, &mut tried)).collect();
    let choices = choices(&slots, &options, &mut effort);
    // Room for all without a single move: nobody is looked at.
    let free = |choice: &&Choice<'_>| choice.tiers.iter().all(|t| t.0 == ROOM);
    for choice in choices.iter().filter(free) {
        let case = Case { slots: &slots, homes: &choice.homes, movable: &[] };
        effort.examined += 1;
        if case.build(&[]).is_some() {
            let looked = Looked { movable: Vec::new(), excluded: Vec::new() };
            return PlanResult::Feasible(report::feasible(world, &case, Found::new(&looked, Vec::new()), tried.members, &effort));
        }
    }
    let mut looked: BTreeMap<Vec<&MemberKey>, Looked<'_>> = BTreeMap::new();
    for equal in choices.chunk_by(|a, b| a.tiers == b.tiers) {
        let mut best: Option<(usize, f64, &Choice<'_>, Vec<&MemberKey>, Moves<'_>)> = None;
        for choice in equal {
            let (from, result) = solve(world, dig, &slots, choice, &mut looked, &mut effort);
            let movable = looked.get(&from).map_or(&[][..], |l| &l.movable);
            match result {
                Ok(moves) => {
                    let cost = moves.iter().map(|(j, to)| move_cost(world, &movable[*j], to)).sum::<f64>();
                    let better = best.as_ref().is_none_or(|(n, c, ..)| moves.len().cmp(n).then(cost.total_cmp(c)).is_lt());
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
            if moves.is_empty() && choice.tiers.iter().any(|t| t.0 == LESS_ROOM) {
                for home in choice.homes.iter().flatten() {
                    tried.member(&home.key, "has room, but is less preferred: for overflow, not for a plan".into());
                }
                break;
            }
            let nobody = Looked { movable: Vec::new(), excluded: Vec::new() };
            let from = looked.get(&from).unwrap_or(&nobody);
            let case = Case { slots: &slots, homes: &choice.homes, movable: &from.movable };
            return PlanResult::Feasible(report::feasible(world, &case, Found::new(from, moves), tried.members, &effort));
        }
    }
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

/// Known members for one slot, best first.
fn options<'a>(slot: &Slot<'a>, tried: &mut Tried) -> Vec<Option_<'a>> {
    for room in slot.group.allowed().filter(|room| !room.is_known()) {
        tried.member(&room.key, format!("nothing is known of it: {}", why_unknown(room)));
    }
    let insists = slot.group.insists_on(&slot.request.terms, slot.overflow);
    let nothing = Trial::default();
    let known: Vec<&MemberRoom> = slot.group.allowed().filter(|room| room.is_known()).collect();
    let mut options: Vec<Option_<'_>> = equals(&known)
        .flat_map(|equals| slot.rank(equals, &nothing))
        .enumerate()
        .map(|(rank, (room, _))| {
            let less = insists.is_some_and(|best| room.priority() > best);
            let fits = nothing.fit(room, Ask::promised(&slot.request.demand)).is_some();
            let tier = match (fits, less) {
                (true, false) => (ROOM, rank as u32),
                (false, false) => (FULL, u32::from(room.priority())),
                (true, true) => (LESS_ROOM, rank as u32),
                (false, true) => (LESS_FULL, u32::from(room.priority())),
            };
            Option_ { room, tier }
        })
        .collect();
    options.sort_by(|a, b| a.tier.cmp(&b.tier).then_with(|| a.room.key.cmp(&b.room.key)));
    options
}

/// Ways to spread all slots over their options, best first, about [`CHOICES`] (the best options of each).
fn choices<'a>(slots: &[Slot<'a>], options: &[Vec<Option_<'a>>], effort: &mut Effort) -> Vec<Choice<'a>> {
    let open = options.iter().filter(|o| o.len() > 1).count() as u32;
    let widest = options.iter().map(Vec::len).max().unwrap_or(0);
    let mut each = widest.max(1);
    while each > 1 && each.checked_pow(open).is_none_or(|all| all > CHOICES) {
        each -= 1;
    }
    effort.cut_short |= each < widest;
    let mut choices = vec![Choice { tiers: Vec::new(), homes: Vec::new() }];
    for (i, slot) in slots.iter().enumerate() {
        let mut longer = Vec::new();
        for choice in &choices {
            if slot.satisfied(&slots[..i], &choice.homes) {
                let tiers = [choice.tiers.as_slice(), &[(ROOM, 0)]].concat();
                longer.push(Choice { tiers, homes: [choice.homes.as_slice(), &[None]].concat() });
                continue;
            }
            for option in options[i].iter().take(each) {
                let tiers = [choice.tiers.as_slice(), &[option.tier]].concat();
                longer.push(Choice { tiers, homes: [choice.homes.as_slice(), &[Some(option.room)]].concat() });
            }
        }
        choices = longer;
    }
    choices.sort_by(|a, b| a.tiers.cmp(&b.tiers).then_with(|| a.names().cmp(&b.names())));
    if each < widest {
        choices.extend(one_by_one(slots, options));
    }
    choices
}

/// Where there are more ways than are looked at, one that gives each app the best option with room beside those before it; to
/// look at each app's best options alone would put too many of them on the same member.
fn one_by_one<'a>(slots: &[Slot<'a>], options: &[Vec<Option_<'a>>]) -> Option<Choice<'a>> {
    let mut trial = Trial::default();
    let mut choice = Choice { tiers: Vec::new(), homes: Vec::new() };
    for (i, slot) in slots.iter().enumerate() {
        if slot.satisfied(&slots[..i], &choice.homes) {
            choice.tiers.push((ROOM, 0));
            choice.homes.push(None);
            continue;
        }
        let ask = Ask::promised(&slot.request.demand);
        let roomy = options[i].iter().find(|option| option.tier.0 == ROOM && trial.add(option.room, i, ask));
        let option = roomy.or_else(|| options[i].iter().find(|option| option.tier.0 == FULL)).or(options[i].first())?;
        choice.tiers.push(option.tier);
        choice.homes.push(Some(option.room));
    }
    Some(choice)
}

/// Members tried without success.
#[derive(Default)]
struct Tried {
    members: Vec<WhyNot>,
    candidates: Vec<crate::Candidate>,
}

impl Tried {
    /// The first reason found for a member counts.
    fn member(&mut self, key: &MemberKey, reason: String) {
        if self.members.iter().all(|m| m.member != *key || key.0.is_empty()) {
            self.members.push(WhyNot { member: key.clone(), reason });
        }
    }

    fn stuck(&mut self, case: &Case<'_, '_>, stuck: Stuck) {
        let movable = case.movable.len();
        for home in case.open() {
            let reason = match &stuck {
                Stuck::NeverFits(why) if movable == 0 => format!("{why}; no app there may move"),
                Stuck::NeverFits(why) => format!("{why}, even if all {movable} apps that may move left"),
                Stuck::NoSet => format!("{movable} apps may move, but no set of them makes the room and has homes elsewhere"),
            };
            self.member(&home.key, reason);
        }
    }

    fn give_up(self, effort: &Effort) -> Infeasible {
        Infeasible { members: self.members, candidates: self.candidates, cut_short: effort.cut_short, examined: effort.examined }
    }
}
