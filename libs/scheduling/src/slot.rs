//! A slot: one placement that an app needs, with its allowed members and their order.

use std::cmp::Ordering;

use crate::expand::{Group, groups};
use crate::trial::{Trial, total_on};
use crate::{AppRequest, Ledger, MemberKey, MemberRoom, Packing, RefusedDestination};
use uuid::Uuid;

/// One group of alternatives of one app.
///
/// Exactly one member is chosen for it, unless another slot of the app satisfies it.
pub(crate) struct Slot<'a> {
    pub app: usize,
    pub request: &'a AppRequest,
    pub group: Group<'a>,
    pub overflow: bool,
}

impl<'a> Slot<'a> {
    /// The slots of all apps of a deployment intent group, in the order of the apps.
    pub fn of(ledger: &'a Ledger, dig: Uuid, apps: &'a [AppRequest], overflow: bool, refused: &'a [RefusedDestination]) -> Vec<Slot<'a>> {
        let slots = |(app, request): (usize, &'a AppRequest)| {
            let own = |one: &&RefusedDestination| one.dig == dig && one.app == request.app;
            let why = |member: &MemberKey| refused.iter().filter(own).find(|one| one.member == *member);
            let mut groups = groups(ledger, &request.terms);
            groups.iter_mut().for_each(|group| group.refuse(why));
            groups.into_iter().map(move |group| Slot { app, request, group, overflow })
        };
        apps.iter().enumerate().flat_map(slots).collect()
    }

    /// The allowed members; only those of the best provider if the app insists on it.
    pub fn counted(&self) -> impl Iterator<Item = &'a MemberRoom> + '_ {
        let best = self.group.insists_on(&self.request.terms, self.overflow);
        self.group.allowed().filter(move |room| best.is_none_or(|best| room.priority() == best))
    }

    /// The allowed members of known capacity, by provider priority.
    pub fn known(&self) -> Vec<&'a MemberRoom> {
        self.counted().filter(|room| room.is_known()).collect()
    }

    /// Members of equal provider priority, the best first, with the dominant share that each would have.
    pub fn rank(&self, equals: &[&'a MemberRoom], trial: &Trial<'a>) -> impl Iterator<Item = (&'a MemberRoom, f64)> + use<'a> {
        rank_equals(equals, self.request, trial)
    }

    /// Whether a member already chosen for the same app satisfies it.
    pub fn satisfied(&self, slots: &[Slot<'a>], chosen: &[Option<&'a MemberRoom>]) -> bool {
        let mine = slots.iter().zip(chosen).filter(|(slot, _)| slot.app == self.app).filter_map(|(_, room)| *room);
        let mut mine = mine.filter(|room| self.group.allowed().any(|allowed| allowed.key == room.key));
        mine.next().is_some()
    }
}

/// Splits members, sorted by provider priority, into runs of equal priority. Callers rank a run only when they reach it.
pub(crate) fn equals<'r, 'a>(rooms: &'r [&'a MemberRoom]) -> impl Iterator<Item = &'r [&'a MemberRoom]> {
    rooms.chunk_by(|a, b| a.priority() == b.priority())
}

/// Members of equal provider priority by the scores of controllers, then by their dominant share after placing, then by name.
pub(crate) fn rank_equals<'a>(
    equals: &[&'a MemberRoom],
    request: &AppRequest,
    trial: &Trial<'a>,
) -> impl Iterator<Item = (&'a MemberRoom, f64)> + use<'a> {
    let (demand, terms, packing) = (&request.demand, &request.terms, request.terms.packing);
    let ranked = equals.iter().map(|room| (*room, trial.share(room, &total_on(demand, room)), terms.score(&room.key)));
    let order = move |(a, share_a, score_a): &(&MemberRoom, f64, i64), (b, share_b, score_b): &(&MemberRoom, f64, i64)| {
        let share = match packing {
            Packing::Spread => share_a.total_cmp(share_b),
            Packing::Tight => share_b.total_cmp(share_a),
        };
        score_b.cmp(score_a).then(share).then_with(|| a.key.cmp(&b.key))
    };
    sorted(ranked.collect(), order).map(|(room, share, _)| (room, share))
}

/// How many are sorted at first: as many as decisions look at (`LISTED` and `MEMBERS_PER_PRIORITY`).
const FIRST: usize = 32;

/// The items in this order, in which no two may be equal. Most callers need only the best few of hundreds, so the others are sorted when they
/// are asked for.
fn sorted<T>(mut items: Vec<T>, order: impl Fn(&T, &T) -> Ordering) -> impl Iterator<Item = T> {
    if items.len() > FIRST {
        items.select_nth_unstable_by(FIRST, &order);
    }
    let mut others = items.split_off(items.len().min(FIRST));
    items.sort_unstable_by(&order);
    let others = std::iter::once_with(move || {
        others.sort_unstable_by(order);
        others
    });
    items.into_iter().chain(others.flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_in_their_order_however_many_are_asked_for() {
        let mut random = fastrand::Rng::with_seed(7);
        for count in [0, 1, FIRST - 1, FIRST, FIRST + 1, 3 * FIRST] {
            let mut items: Vec<usize> = (0..count).collect();
            random.shuffle(&mut items);
            for taken in 0..=count {
                assert!(sorted(items.clone(), usize::cmp).take(taken).eq(0..taken), "{taken} of {count}");
            }
        }
    }
}
