//! Lower bounds on the moves that make room for an assignment, found without a search. Where hundreds of members are alike, they tell
//! which of them are worth one.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use super::assignments::Assignment;
use super::bounds::{Shortage, freed};
use super::candidates::may_move;
use super::context::PlanningContext;
use super::destinations::{Expanded, destinations};
use super::parameters::least_move_cost;
use super::problem::RoomProblem;
use crate::slot::Slot;
use crate::{Amounts, Claim, DigRef, MemberKey, MemberRoom};

/// The apps on a member that may move, with what they free.
type Apps<'a> = Rc<[(&'a Claim, Amounts)]>;

/// What the moves for an assignment are at least. Without a way to make room: as many as can be.
pub(crate) struct LeastMoves<'a> {
    pub count: usize,
    /// In seconds.
    pub cost: f64,
    /// What a sharper bound needs.
    only: Option<OnlyMember<'a>>,
}

/// The one member of an assignment. Whatever leaves it, its apps find no more room elsewhere than there is now.
struct OnlyMember<'a> {
    room: &'a MemberRoom,
    shortage: Shortage,
    apps: Apps<'a>,
}

/// The number of moves and their cost that make room on a member which has none, at least.
fn least_on(room: &MemberRoom, shortage: &Shortage, apps: &[(&Claim, Amounts)]) -> (usize, f64) {
    let cost = |(claim, _): &(&Claim, Amounts)| least_move_cost(room, claim);
    match shortage.fewest(apps.iter().map(|(_, freed)| freed)).filter(|_| !apps.is_empty()) {
        None => (usize::MAX, f64::INFINITY),
        // There may be enough in all, but not on one node.
        Some(0 | 1) => (1, least(apps.iter().filter(|(_, freed)| shortage.is_met_by(freed)).map(cost))),
        Some(count) => (count, count as f64 * least(apps.iter().map(cost))),
    }
}

fn least(costs: impl Iterator<Item = f64>) -> f64 {
    costs.fold(f64::INFINITY, f64::min)
}

impl<'a> LeastMoves<'a> {
    fn of(problem: &RoomProblem<'_, 'a>, assignment: &Assignment<'a>, mut apps_on: impl FnMut(&'a MemberRoom) -> Apps<'a>) -> Self {
        let mut least = Self { count: 0, cost: 0.0, only: None };
        let rooms = problem.members();
        let only_one = rooms.len() == 1;
        for room in rooms {
            let shortage = Shortage::of(problem, room);
            if shortage.is_none() && !problem.slots_on(room).any(|slot| assignment.is_full(slot)) {
                continue;
            }
            let apps = apps_on(room);
            let (count, cost) = least_on(room, &shortage, &apps);
            least.count = least.count.saturating_add(count);
            least.cost += cost;
            least.only = only_one.then_some(OnlyMember { room, shortage, apps });
        }
        least
    }

    /// Leaves out the apps that have no destination. Returns whether that raised the bounds.
    fn raise(&mut self, context: &PlanningContext<'a>, expanded: &mut Expanded<'a>) -> bool {
        let Some(OnlyMember { room, shortage, apps }) = self.only.take().filter(|_| self.count < usize::MAX) else { return false };
        let can_go: Vec<(&Claim, Amounts)> =
            apps.iter().filter(|(claim, _)| has_destination(context, claim, room, expanded)).cloned().collect();
        let before = (self.count, self.cost);
        (self.count, self.cost) = least_on(room, &shortage, &can_go);
        before != (self.count, self.cost)
    }
}

/// Whether an app on `room` could move to another member, as far as its intent and the free room tell.
fn has_destination<'a>(context: &PlanningContext<'a>, claim: &'a Claim, room: &'a MemberRoom, expanded: &mut Expanded<'a>) -> bool {
    let found = destinations(context, claim, room, expanded, &mut BTreeSet::new());
    found.is_ok_and(|(destinations, _)| destinations.have_room(&claim.request.demand))
}

/// Equally good assignments that are not yet examined, those with the lowest bounds first.
pub(crate) struct Promising<'w, 'a> {
    context: &'w PlanningContext<'a>,
    least: Vec<LeastMoves<'a>>,
    /// As (moves at least, position).
    queue: BTreeSet<(usize, usize)>,
}

impl<'w, 'a> Promising<'w, 'a> {
    /// All of `equal`, for the apps of `dig` in `slots`.
    pub fn of(context: &'w PlanningContext<'a>, dig: &DigRef, slots: &'w [Slot<'a>], equal: &'w [Assignment<'a>]) -> Self {
        let mut known: BTreeMap<&MemberKey, Apps<'_>> = BTreeMap::new();
        let mut apps_on = |room: &'a MemberRoom| {
            let claims = context.ledger.claims_of(&room.key).map(Arc::as_ref).filter(|claim| may_move(context, claim, dig.id));
            Rc::clone(known.entry(&room.key).or_insert_with(|| claims.map(|claim| (claim, freed(room, claim))).collect()))
        };
        let problem = |one: &'w Assignment<'a>| RoomProblem { context, slots, homes: &one.homes, movable: &[] };
        let least: Vec<LeastMoves<'_>> = equal.iter().map(|one| LeastMoves::of(&problem(one), one, &mut apps_on)).collect();
        let queue = least.iter().enumerate().map(|(at, least)| (least.count, at)).collect();
        Self { context, least, queue }
    }

    /// Whether all were examined or passed over.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The position of the next one that is worth a search: not those of which `in_vain`, given the position and the bounds, holds.
    pub fn next(&mut self, expanded: &mut Expanded<'a>, in_vain: impl Fn(usize, &LeastMoves<'a>) -> bool) -> Option<usize> {
        while let Some((_, at)) = self.queue.pop_first() {
            let least = &mut self.least[at];
            if in_vain(at, least) {
                continue;
            }
            if !least.raise(self.context, expanded) {
                return Some(at);
            }
            self.queue.insert((least.count, at));
        }
        None
    }
}
