//! Assignments of a newcomer's slots to members, in order of preference: by the tier of each app's member, then by calls between
//! clusters, then by room, then by name. Groups of apps that call each other are also tried as a whole on one member.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use uuid::Uuid;

use super::candidates::may_move;
use super::context::PlanningContext;
use crate::calling_apps::CallingApps;
use crate::fit::Ask;
use crate::slot::{Slot, equals};
use crate::trial::{Tenant, Trial};
use crate::work::Effort;
use crate::{MemberKey, MemberRoom};

/// Limit on the number of combinations of members that are examined for several units.
const ASSIGNMENTS: usize = 512;

/// The preference of a member for an app; lower is better. Members of equal tier are compared by the moves that make room on them.
type Tier = (u8, u32);
/// There is room. If the app insists on the best provider: on a member of that provider.
const ROOM: u8 = 0;
/// Room must be made.
const FULL: u8 = 1;
/// There is room, but the app insists on a better provider.
const LESS_ROOM: u8 = 2;
/// Room must be made, and the app insists on a better provider.
const LESS_FULL: u8 = 3;

/// A member for one slot.
#[derive(Clone, Copy)]
struct Home<'a> {
    room: &'a MemberRoom,
    tier: Tier,
    /// Its rank in the order without calls.
    rank: u32,
}

/// The members for the slots of a unit.
type Homes<'a> = Vec<Home<'a>>;

/// An assignment of the newcomer's slots to members.
pub(crate) struct Assignment<'a> {
    /// A group that must stay together is split.
    apart: bool,
    tiers: Vec<Tier>,
    /// Calls between clusters, each multiplied by its latency.
    pub waiting: f64,
    ranks: u32,
    /// By slot; `None`: satisfied by another slot of its app.
    pub homes: Vec<Option<&'a MemberRoom>>,
}

impl<'a> Assignment<'a> {
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

    /// Whether each of its apps alone has room.
    pub fn is_free(&self) -> bool {
        self.tiers.iter().all(|tier| tier.0 == ROOM)
    }

    /// Whether the app of this slot has no room on its member, so that others have to move.
    pub fn is_full(&self, slot: usize) -> bool {
        matches!(self.tiers[slot].0, FULL | LESS_FULL)
    }

    /// Whether some app would use room at a provider that it does not insist on.
    pub fn is_for_overflow(&self) -> bool {
        self.tiers.iter().any(|tier| tier.0 == LESS_ROOM)
    }

    /// Whether both have the same tiers. Such assignments are compared by their moves.
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

/// Makes the assignments of a newcomer.
pub(crate) struct Assignments<'w, 'a> {
    pub context: &'w PlanningContext<'a>,
    /// The newcomer's group, whose apps are never victims.
    pub newcomer: Uuid,
    pub slots: &'w [Slot<'a>],
    /// The call graph, if calls are known.
    pub callers: Option<&'w CallingApps<'a>>,
}

impl<'a> Assignments<'_, 'a> {
    /// All assignments that are examined, the best first.
    pub fn all(&self, effort: &mut Effort<'_>) -> Vec<Assignment<'a>> {
        let options: Vec<Vec<Home<'a>>> = self.slots.iter().map(|slot| self.options(slot)).collect();
        let alone: Vec<Vec<usize>> = (0..self.slots.len()).map(|slot| vec![slot]).collect();
        let mut assignments = self.combine(&alone, &options, effort);
        if let Some(callers) = self.callers {
            assignments.iter_mut().for_each(|assignment| assignment.apart = callers.terms.keep_together);
            assignments.extend(self.combine(&callers.units, &options, effort));
            for assignment in &mut assignments {
                assignment.waiting = callers.waiting(self.slots, &assignment.homes);
            }
        }
        assignments.sort_by(Assignment::order);
        assignments.dedup_by(|later, first| later.is_as_good(first) && later.names() == first.names());
        assignments
    }

    /// The members of known capacity for one slot, the best first. Among equally preferred members with room, the one with most room
    /// comes first, unless calls decide.
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

    /// The members on which all slots of a unit may be, the best first.
    fn together(unit: &[usize], options: &[Vec<Home<'a>>]) -> Vec<Homes<'a>> {
        let Some((first, others)) = unit.split_first() else { return Vec::new() };
        let all = |home: &Home<'a>| {
            let same = |slot: &usize| options[*slot].iter().find(|other| other.room.key == home.room.key).copied();
            std::iter::once(Some(*home)).chain(others.iter().map(same)).collect::<Option<Homes<'_>>>()
        };
        let mut common: Vec<Homes<'_>> = options[*first].iter().filter_map(all).collect();
        // The sort is stable, so the order of the first slot decides among equals.
        common.sort_by_key(|homes| homes.iter().map(|home| home.tier).collect::<Vec<_>>());
        common
    }

    /// Combines the members of all units: all members of one unit, or about [`ASSIGNMENTS`] combinations of the best of several.
    fn combine(&self, units: &[Vec<usize>], slots: &[Vec<Home<'a>>], effort: &mut Effort<'_>) -> Vec<Assignment<'a>> {
        let options: Vec<Vec<Homes<'_>>> = units.iter().map(|unit| Self::together(unit, slots)).collect();
        let open = options.iter().filter(|o| o.len() > 1).count() as u32;
        let widest = options.iter().map(Vec::len).max().unwrap_or(0);
        let mut each = widest.max(1);
        while open > 1 && each > 1 && each.checked_pow(open).is_none_or(|all| all > ASSIGNMENTS) {
            each -= 1;
        }
        effort.cut_short |= each < widest;
        let mut assignments = vec![Assignment::start(self.slots.len())];
        for (unit, options) in units.iter().zip(&options) {
            let mut longer = Vec::new();
            for assignment in assignments {
                if self.satisfied(unit, &assignment) {
                    longer.push(assignment);
                } else {
                    longer.extend(options.iter().take(each).map(|homes| assignment.with(unit, homes)));
                }
            }
            assignments = longer;
        }
        if each < widest || self.callers.is_some() {
            assignments.extend(self.one_by_one(units, slots));
        }
        assignments
    }

    fn satisfied(&self, unit: &[usize], assignment: &Assignment<'a>) -> bool {
        matches!(unit, [only] if self.slots[*only].satisfied(self.slots, &assignment.homes))
    }

    /// An assignment for the case that not all combinations are examined. It gives one unit after the other the best members where it has
    /// room beside the units before it, or where room can be made; calls to assigned units count. The best members of each unit alone would
    /// put too many units on the same member. A unit without room as a whole is split.
    fn one_by_one(&self, units: &[Vec<usize>], options: &[Vec<Home<'a>>]) -> Option<Assignment<'a>> {
        let mut draft = Draft { assignment: Assignment::start(self.slots.len()), room: Trial::default(), made: self.emptied(options) };
        for unit in units.iter().filter(|unit| !unit.is_empty()) {
            let whole = self.satisfied(unit, &draft.assignment) || self.settle(&mut draft, unit, options, false);
            for slot in unit.iter().filter(|_| !whole) {
                self.settle(&mut draft, &[*slot], options, true).then_some(())?;
            }
        }
        Some(draft.assignment)
    }

    /// A trial in which every app that may move has left the members of `options`.
    fn emptied(&self, options: &[Vec<Home<'a>>]) -> Trial<'a> {
        let rooms: BTreeMap<&MemberKey, &MemberRoom> = options.iter().flatten().map(|home| (&home.room.key, home.room)).collect();
        let mut trial = Trial::default();
        for room in rooms.into_values() {
            for claim in self.context.ledger.claims_of(&room.key).filter(|claim| may_move(self.context, claim, self.newcomer)) {
                trial.leave(room, claim);
            }
        }
        trial
    }

    /// Assigns a unit to members with room, or where room can be made. If there are none, `anyhow` assigns it to the first full member.
    fn settle(&self, draft: &mut Draft<'a>, unit: &[usize], options: &[Vec<Home<'a>>], anyhow: bool) -> bool {
        let mut ways: Vec<(Assignment<'a>, Homes<'a>)> =
            Self::together(unit, options).into_iter().map(|homes| (draft.assignment.with(unit, &homes), homes)).collect();
        for (way, _) in &mut ways {
            way.waiting = self.callers.map_or(0.0, |callers| callers.waiting(self.slots, &way.homes));
        }
        ways.sort_by(|(a, _), (b, _)| a.order(b));
        let all = |homes: &Homes<'_>, of: u8| homes.iter().all(|home| home.tier.0 == of);
        let (room, made) = (&mut draft.room, &mut draft.made);
        let roomy = ways.iter().position(|(_, homes)| all(homes, ROOM) && self.add(room, unit, homes));
        let found = match roomy {
            // Room that exists now also exists after the moves.
            Some(at) => {
                self.add(made, unit, &ways[at].1);
                Some(at)
            }
            None => ways.iter().position(|(_, homes)| self.add(made, unit, homes)),
        };
        let first = || ways.iter().position(|(_, homes)| all(homes, FULL)).or((!ways.is_empty()).then_some(0));
        let Some(at) = found.or_else(|| first().filter(|_| anyhow)) else { return false };
        draft.assignment = ways.swap_remove(at).0;
        true
    }

    /// Adds all slots of a unit or none.
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

/// An assignment under construction.
struct Draft<'a> {
    assignment: Assignment<'a>,
    /// The units with room, without moves.
    room: Trial<'a>,
    /// The units with room after every app that may move has left.
    made: Trial<'a>,
}
