//! Ways to spread a newcomer over members, in order of preference: how good each member is for each app, then fewest calls
//! between clusters, then room, then names. Apps that call each other are also tried group by group, each on one member.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use uuid::Uuid;

use super::candidate::may_move;
use super::context::World;
use super::search::Effort;
use crate::callers::Callers;
use crate::fit::Ask;
use crate::slot::{Slot, equals};
use crate::trial::{Tenant, Trial};
use crate::{MemberKey, MemberRoom};

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

/// A member for one slot.
#[derive(Clone, Copy)]
struct Home<'a> {
    room: &'a MemberRoom,
    tier: Tier,
    /// Its place in the order without calls.
    rank: u32,
}

/// A member for each slot of a unit.
type Homes<'a> = Vec<Home<'a>>;

/// One way to spread the newcomer over members.
pub(crate) struct Choice<'a> {
    /// A group is to stay together, and is not.
    apart: bool,
    tiers: Vec<Tier>,
    /// Calls between clusters, each times its latency.
    pub waiting: f64,
    ranks: u32,
    /// By slot; none: satisfied by another one of its app.
    pub homes: Vec<Option<&'a MemberRoom>>,
}

impl<'a> Choice<'a> {
    fn start(slots: usize) -> Self {
        Self { apart: false, tiers: vec![(ROOM, 0); slots], waiting: 0.0, ranks: 0, homes: vec![None; slots] }
    }

    fn with(&self, unit: &[usize], homes: &Homes<'a>) -> Self {
        let mut longer = Self { tiers: self.tiers.clone(), homes: self.homes.clone(), ..*self };
        for (slot, home) in unit.iter().zip(homes) {
            longer.tiers[*slot] = home.tier;
            longer.homes[*slot] = Some(home.room);
            longer.ranks += home.rank;
        }
        longer
    }

    /// There is room for each of its apps, if not for all.
    pub fn is_free(&self) -> bool {
        self.tiers.iter().all(|tier| tier.0 == ROOM)
    }

    /// Somebody would have room at a member that it does not insist on.
    pub fn is_for_overflow(&self) -> bool {
        self.tiers.iter().any(|tier| tier.0 == LESS_ROOM)
    }

    /// Equal ones are compared by what it takes to free their members.
    pub fn is_as_good(&self, other: &Self) -> bool {
        (self.apart, &self.tiers) == (other.apart, &other.tiers)
    }

    fn names(&self) -> Vec<Option<&MemberKey>> {
        self.homes.iter().map(|home| home.map(|room| &room.key)).collect()
    }

    fn order(&self, other: &Self) -> Ordering {
        let tiers = (self.apart, &self.tiers).cmp(&(other.apart, &other.tiers));
        let room = self.waiting.total_cmp(&other.waiting).then(self.ranks.cmp(&other.ranks));
        tiers.then(room).then_with(|| self.names().cmp(&other.names()))
    }
}

/// What choices are made of.
pub(crate) struct Choices<'w, 'a> {
    pub world: &'w World<'a>,
    /// Whose apps are no victims.
    pub newcomer: Uuid,
    pub slots: &'w [Slot<'a>],
    /// Who calls whom, where that is known.
    pub callers: Option<&'w Callers<'a>>,
}

impl<'a> Choices<'_, 'a> {
    /// All that are looked at, best first.
    pub fn all(&self, effort: &mut Effort) -> Vec<Choice<'a>> {
        let options: Vec<Vec<Home<'a>>> = self.slots.iter().map(|slot| self.options(slot)).collect();
        let alone: Vec<Vec<usize>> = (0..self.slots.len()).map(|slot| vec![slot]).collect();
        let mut choices = self.spread(&alone, &options, effort);
        if let Some(callers) = self.callers {
            choices.iter_mut().for_each(|choice| choice.apart = callers.terms.keep_together);
            choices.extend(self.spread(&callers.units, &options, effort));
            for choice in &mut choices {
                choice.waiting = callers.waiting(self.slots, &choice.homes);
            }
        }
        choices.sort_by(Choice::order);
        choices.dedup_by(|later, first| later.is_as_good(first) && later.names() == first.names());
        choices
    }

    /// Known members for one slot, best first. Of equally preferred ones with room that with most room comes first, where no
    /// calls decide.
    fn options(&self, slot: &Slot<'a>) -> Vec<Home<'a>> {
        let insists = slot.group.insists_on(&slot.request.terms, slot.overflow);
        let nothing = Trial::default();
        let known: Vec<&MemberRoom> = slot.group.allowed().filter(|room| room.is_known()).collect();
        let ranked = equals(&known).flat_map(|equals| slot.rank(equals, &nothing)).enumerate();
        let home = |(rank, (room, _)): (usize, (&'a MemberRoom, f64))| {
            let (rank, priority) = (rank as u32, u32::from(room.priority()));
            let by_room = if self.callers.is_some() { priority } else { rank };
            let less = insists.is_some_and(|best| room.priority() > best);
            let tier = match (nothing.fit(room, Ask::promised(&slot.request.demand)).is_some(), less) {
                (true, false) => (ROOM, by_room),
                (false, false) => (FULL, priority),
                (true, true) => (LESS_ROOM, by_room),
                (false, true) => (LESS_FULL, priority),
            };
            Home { room, tier, rank: if self.callers.is_some() { rank } else { 0 } }
        };
        let mut options: Vec<Home<'_>> = ranked.map(home).collect();
        options.sort_by(|a, b| (a.tier, a.rank).cmp(&(b.tier, b.rank)).then_with(|| a.room.key.cmp(&b.room.key)));
        options
    }

    /// Members for a unit: where each of its slots may be, best first.
    fn together(unit: &[usize], options: &[Vec<Home<'a>>]) -> Vec<Homes<'a>> {
        let Some((first, others)) = unit.split_first() else { return Vec::new() };
        let all = |home: &Home<'a>| {
            let same = |slot: &usize| options[*slot].iter().find(|other| other.room.key == home.room.key).copied();
            std::iter::once(Some(*home)).chain(others.iter().map(same)).collect::<Option<Homes<'_>>>()
        };
        let mut common: Vec<Homes<'_>> = options[*first].iter().filter_map(all).collect();
        // Stable: the first slot's order decides among equals.
        common.sort_by_key(|homes| homes.iter().map(|home| home.tier).collect::<Vec<_>>());
        common
    }

    /// Ways to spread all units over their members, about [`CHOICES`] (the best members of each).
    fn spread(&self, units: &[Vec<usize>], slots: &[Vec<Home<'a>>], effort: &mut Effort) -> Vec<Choice<'a>> {
        let options: Vec<Vec<Homes<'_>>> = units.iter().map(|unit| Self::together(unit, slots)).collect();
        let open = options.iter().filter(|o| o.len() > 1).count() as u32;
        let widest = options.iter().map(Vec::len).max().unwrap_or(0);
        let mut each = widest.max(1);
        while each > 1 && each.checked_pow(open).is_none_or(|all| all > CHOICES) {
            each -= 1;
        }
        effort.cut_short |= each < widest;
        let mut choices = vec![Choice::start(self.slots.len())];
        for (unit, options) in units.iter().zip(&options) {
            let mut longer = Vec::new();
            for choice in choices {
                if self.satisfied(unit, &choice) {
                    longer.push(choice);
                } else {
                    longer.extend(options.iter().take(each).map(|homes| choice.with(unit, homes)));
                }
            }
            choices = longer;
        }
        if each < widest || self.callers.is_some() {
            choices.extend(self.one_by_one(units, slots));
        }
        choices
    }

    fn satisfied(&self, unit: &[usize], choice: &Choice<'a>) -> bool {
        matches!(unit, [only] if self.slots[*only].satisfied(self.slots, &choice.homes))
    }

    /// Where there are more ways than are looked at, one that gives each unit the best members with room beside those before it, or
    /// where room can be made beside them; to look at each unit's best members alone would put too many of them on the same one.
    /// Those whom it calls draw it. What has no room together is taken apart.
    fn one_by_one(&self, units: &[Vec<usize>], options: &[Vec<Home<'a>>]) -> Option<Choice<'a>> {
        let mut draft = Draft { choice: Choice::start(self.slots.len()), room: Trial::default(), made: self.emptied(options) };
        for unit in units.iter().filter(|unit| !unit.is_empty()) {
            let whole = self.satisfied(unit, &draft.choice) || self.settle(&mut draft, unit, options, false);
            for slot in unit.iter().filter(|_| !whole) {
                self.settle(&mut draft, &[*slot], options, true).then_some(())?;
            }
        }
        Some(draft.choice)
    }

    /// Members from which everybody has gone who may.
    fn emptied(&self, options: &[Vec<Home<'a>>]) -> Trial<'a> {
        let rooms: BTreeMap<&MemberKey, &MemberRoom> = options.iter().flatten().map(|home| (&home.room.key, home.room)).collect();
        let mut trial = Trial::default();
        for room in rooms.into_values() {
            for claim in self.world.ledger.claims_of(&room.key).filter(|claim| may_move(self.world, claim, self.newcomer)) {
                trial.leave(room, claim);
            }
        }
        trial
    }

    /// Puts a unit where there is room, or can be made; where neither shows, `anyhow` on the first full member.
    fn settle(&self, draft: &mut Draft<'a>, unit: &[usize], options: &[Vec<Home<'a>>], anyhow: bool) -> bool {
        let mut ways: Vec<(Choice<'a>, Homes<'a>)> =
            Self::together(unit, options).into_iter().map(|homes| (draft.choice.with(unit, &homes), homes)).collect();
        for (way, _) in &mut ways {
            way.waiting = self.callers.map_or(0.0, |callers| callers.waiting(self.slots, &way.homes));
        }
        ways.sort_by(|(a, _), (b, _)| a.order(b));
        let all = |homes: &Homes<'_>, of: u8| homes.iter().all(|home| home.tier.0 == of);
        let (room, made) = (&mut draft.room, &mut draft.made);
        let roomy = ways.iter().position(|(_, homes)| all(homes, ROOM) && self.add(room, unit, homes));
        let found = match roomy {
            // Room that is there is there when others have gone, too.
            Some(at) => {
                self.add(made, unit, &ways[at].1);
                Some(at)
            }
            None => ways.iter().position(|(_, homes)| self.add(made, unit, homes)),
        };
        let first = || ways.iter().position(|(_, homes)| all(homes, FULL)).or((!ways.is_empty()).then_some(0));
        let Some(at) = found.or_else(|| first().filter(|_| anyhow)) else { return false };
        draft.choice = ways.swap_remove(at).0;
        true
    }

    /// Adds all of a unit, or nothing.
    fn add(&self, trial: &mut Trial<'a>, unit: &[usize], homes: &Homes<'a>) -> bool {
        for (n, (slot, home)) in unit.iter().zip(homes).enumerate() {
            if !trial.add(home.room, Tenant::New(*slot), Ask::promised(&self.slots[*slot].request.demand)) {
                for (slot, home) in unit.iter().zip(homes).take(n) {
                    trial.remove(home.room, Tenant::New(*slot));
                }
                return false;
            }
        }
        true
    }
}

/// A choice in the making.
struct Draft<'a> {
    choice: Choice<'a>,
    /// What has room as things stand.
    room: Trial<'a>,
    /// What has room when everybody has gone who may.
    made: Trial<'a>,
}
