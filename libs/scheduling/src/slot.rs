//! A slot: one placement that an app needs, with the members that may be chosen for it and their order.

use crate::expand::{Group, groups};
use crate::trial::{Trial, total_on};
use crate::{AppRequest, Demand, Ledger, MemberRoom, Packing};

/// One group of alternatives of one app.
pub(crate) struct Slot<'a> {
    pub app: usize,
    pub request: &'a AppRequest,
    pub group: Group<'a>,
    pub overflow: bool,
}

impl<'a> Slot<'a> {
    /// The slots of all apps, in their order.
    pub fn of(ledger: &'a Ledger, apps: &'a [AppRequest], overflow: bool) -> Vec<Slot<'a>> {
        let slots = |(app, request): (usize, &'a AppRequest)| {
            groups(ledger, &request.terms).into_iter().map(move |group| Slot { app, request, group, overflow })
        };
        apps.iter().enumerate().flat_map(slots).collect()
    }

    /// Members that count for it: allowed, and of the best provider where it insists.
    pub fn counted(&self) -> impl Iterator<Item = &'a MemberRoom> + '_ {
        let best = self.group.insists_on(&self.request.terms, self.overflow);
        self.group.allowed().filter(move |room| best.is_none_or(|best| room.priority() == best))
    }

    /// Known members that count, by provider priority.
    pub fn known(&self) -> Vec<&'a MemberRoom> {
        self.counted().filter(|room| room.is_known()).collect()
    }

    /// One provider priority of them, best first, with the share of requests each would have.
    pub fn rank(&self, equals: &[&'a MemberRoom], trial: &Trial<'a>) -> Vec<(&'a MemberRoom, f64)> {
        rank_equals(equals, &self.request.demand, self.request.terms.packing, trial)
    }

    /// Whether a cluster already chosen for the same app satisfies it.
    pub fn satisfied(&self, slots: &[Slot<'a>], chosen: &[Option<&'a MemberRoom>]) -> bool {
        let mine = slots.iter().zip(chosen).filter(|(slot, _)| slot.app == self.app).filter_map(|(_, room)| *room);
        let mut mine = mine.filter(|room| self.group.allowed().any(|allowed| allowed.key == room.key));
        mine.next().is_some()
    }
}

/// Runs of members of equal provider priority, out of members sorted by it: only those that are looked at get ranked.
pub(crate) fn equals<'r, 'a>(rooms: &'r [&'a MemberRoom]) -> impl Iterator<Item = &'r [&'a MemberRoom]> {
    rooms.chunk_by(|a, b| a.priority() == b.priority())
}

/// Members of equal provider priority by the share of requests after placing, then by name.
pub(crate) fn rank_equals<'a>(
    equals: &[&'a MemberRoom],
    demand: &Demand,
    packing: Packing,
    trial: &Trial<'a>,
) -> Vec<(&'a MemberRoom, f64)> {
    let mut ranked: Vec<(&MemberRoom, f64)> = equals.iter().map(|room| (*room, trial.share(room, &total_on(demand, room)))).collect();
    ranked.sort_by(|(a, x), (b, y)| {
        let share = match packing {
            Packing::Spread => x.total_cmp(y),
            Packing::Tight => y.total_cmp(x),
        };
        share.then_with(|| a.key.cmp(&b.key))
    });
    ranked
}
