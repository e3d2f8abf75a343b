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

    /// Sorts members of equal provider priority, the best first, with the dominant share that each would have.
    pub fn rank(&self, equals: &[&'a MemberRoom], trial: &Trial<'a>) -> Vec<(&'a MemberRoom, f64)> {
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

/// Sorts members of equal provider priority by the scores of controllers, then by their dominant share after placing, then by name.
pub(crate) fn rank_equals<'a>(equals: &[&'a MemberRoom], request: &AppRequest, trial: &Trial<'a>) -> Vec<(&'a MemberRoom, f64)> {
    let (demand, terms) = (&request.demand, &request.terms);
    let mut ranked: Vec<(&MemberRoom, f64)> = equals.iter().map(|room| (*room, trial.share(room, &total_on(demand, room)))).collect();
    ranked.sort_by(|(a, x), (b, y)| {
        let score = match terms.advice.is_empty() {
            true => Ordering::Equal,
            false => terms.score(&b.key).cmp(&terms.score(&a.key)),
        };
        let share = match terms.packing {
            Packing::Spread => x.total_cmp(y),
            Packing::Tight => y.total_cmp(x),
        };
        score.then(share).then_with(|| a.key.cmp(&b.key))
    });
    ranked
}
