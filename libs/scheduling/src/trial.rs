//! "What if": the ledger with some claims leaving and some apps added, without changing it.
//!
//! Decisions and plans are tried here. Only touched members are copied. Where apps added one after the other do not fit,
//! all that were added to the member are packed anew together: the order of adding decides nothing that small cases can avoid.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::fit::{Ask, Free, pack};
use crate::matching::admits;
use crate::misfit::{Misfit, explain};
use crate::usage::{Remaining, find};
use crate::{Amounts, Claim, ClaimState, Demand, MemberKey, MemberRoom, PodsOnNode};

/// Names one added app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tenant {
    /// Of those that come: whatever the caller counts them by.
    New(usize),
    /// Of those that run: the claim that goes elsewhere.
    Moved(Uuid),
}

#[derive(Clone, Default)]
pub(crate) struct Trial<'a> {
    /// By [`place`]; never iterated.
    touched: BTreeMap<usize, Touched<'a>>,
    /// Claims that leave, and where they go (none: not known yet).
    moving: BTreeMap<Uuid, Option<&'a MemberRoom>>,
}

/// Where a room lies in memory, which is quicker to find than its name. Rooms do not move while they are borrowed.
fn place(room: &MemberRoom) -> usize {
    std::ptr::from_ref(room).addr()
}

/// A tenant taken out, to be put back as it was.
pub(crate) struct TakenOut<'a> {
    tenant: Tenant,
    ask: Ask<'a>,
    pods: Vec<PodsOnNode>,
}

#[derive(Clone)]
struct Touched<'a> {
    room: &'a MemberRoom,
    /// Without the tenants.
    base: Remaining,
    /// With them.
    current: Remaining,
    tenants: Vec<(Tenant, Ask<'a>, Vec<PodsOnNode>)>,
    /// What was added (and left, negative), in all.
    added: Amounts,
}

/// Takes `pods` (`sign` 1) or gives them back (-1); their requests in all.
fn take(left: &mut Remaining, room: &MemberRoom, ask: &Ask<'_>, pods: &[PodsOnNode], sign: i64) -> Amounts {
    let state = if ask.now { ClaimState::Held } else { ClaimState::Promised };
    let mut sum = Amounts::default();
    for p in pods {
        let (Some(n), Some(group)) = (find(room.nodes(), &p.node), ask.demand.groups.get(p.group)) else { continue };
        let times = i64::from(p.count);
        left.add(state, n, &group.requests, -sign * times);
        sum.add(&group.requests, times);
    }
    sum
}

impl<'a> Touched<'a> {
    fn new(room: &'a MemberRoom) -> Self {
        let base = Remaining::of(room.free());
        Self { room, current: base.clone(), base, tenants: Vec::new(), added: Amounts::default() }
    }
    fn free(&self) -> Free<'_> {
        self.current.free(self.room.nodes())
    }
    fn base(&self) -> Free<'_> {
        self.base.free(self.room.nodes())
    }
}

impl<'a> Trial<'a> {
    fn touch(&mut self, room: &'a MemberRoom) -> &mut Touched<'a> {
        self.touched.entry(place(room)).or_insert_with(|| Touched::new(room))
    }

    /// Where `ask` would go at `room`.
    pub fn fit(&self, room: &'a MemberRoom, ask: Ask<'a>) -> Option<Vec<PodsOnNode>> {
        match self.touched.get(&place(room)) {
            None if !self.may_fit(room, ask) => None,
            None => pack(room.free(), &[ask])?.pop(),
            Some(touched) => pack(touched.free(), &[ask])?.pop(),
        }
    }

    /// Whether it is worth looking: false where no node of `room` has room for a single one of the pods.
    pub fn may_fit(&self, room: &MemberRoom, ask: Ask<'_>) -> bool {
        // Only rooms nobody touched have a bound that holds, and only for what must fit now and later.
        let bounded = ask.now && !self.touched.contains_key(&place(room));
        !bounded || ask.demand.groups.iter().all(|g| g.per_node || ask.count(g) == 0 || room.may_fit(&g.requests))
    }

    /// Adds `ask` to `room` as `tenant`, if there is room beside all tenants there.
    pub fn add(&mut self, room: &'a MemberRoom, tenant: Tenant, ask: Ask<'a>) -> bool {
        let added = match self.fit(room, ask) {
            Some(pods) => {
                let touched = self.touch(room);
                let sum = take(&mut touched.current, room, &ask, &pods, 1);
                touched.added.add(&sum, 1);
                touched.tenants.push((tenant, ask, pods));
                true
            }
            None => self.touched.get_mut(&place(room)).is_some_and(|touched| repack(touched, tenant, ask)),
        };
        if added {
            self.goes(tenant, Some(room));
        }
        added
    }

    /// Takes `tenant` away from `room` again.
    pub fn remove(&mut self, room: &'a MemberRoom, tenant: Tenant) -> Option<TakenOut<'a>> {
        let touched = self.touched.get_mut(&place(room))?;
        let at = touched.tenants.iter().position(|(t, ..)| *t == tenant)?;
        let (_, ask, pods) = touched.tenants.swap_remove(at);
        let sum = take(&mut touched.current, room, &ask, &pods, -1);
        touched.added.add(&sum, -1);
        self.goes(tenant, None);
        Some(TakenOut { tenant, ask, pods })
    }

    /// Puts a tenant back where it was. Nothing has taken its room meanwhile.
    pub fn put_back(&mut self, room: &'a MemberRoom, out: TakenOut<'a>) {
        let touched = self.touch(room);
        let sum = take(&mut touched.current, room, &out.ask, &out.pods, 1);
        touched.added.add(&sum, 1);
        touched.tenants.push((out.tenant, out.ask, out.pods));
        self.goes(out.tenant, Some(room));
    }

    fn goes(&mut self, tenant: Tenant, to: Option<&'a MemberRoom>) {
        if let Tenant::Moved(claim) = tenant {
            self.moving.insert(claim, to);
        }
    }

    /// Where a claim is when all is done: none while it leaves and nobody has said where to.
    pub fn home_of<'m>(&'m self, claim: &'m Claim) -> Option<&'m MemberKey> {
        match self.moving.get(&claim.id) {
            Some(to) => to.map(|room| &room.key),
            None => Some(&claim.member),
        }
    }

    /// A tenant's witness as it is now.
    pub fn pods(&self, room: &MemberRoom, tenant: Tenant) -> Vec<PodsOnNode> {
        let tenants = self.touched.get(&place(room)).map_or(&[][..], |t| &t.tenants);
        tenants.iter().find(|(t, ..)| *t == tenant).map_or_else(Vec::new, |(_, _, pods)| pods.clone())
    }

    /// `claim`, held on `room`, will leave: its room is free later.
    pub fn leave(&mut self, room: &'a MemberRoom, claim: &Claim) {
        self.goes(Tenant::Moved(claim.id), None);
        self.shift(room, claim, 1);
    }

    /// It stays after all. The caller has taken away what used its room.
    pub fn stay(&mut self, room: &'a MemberRoom, claim: &Claim) {
        self.moving.remove(&claim.id);
        self.shift(room, claim, -1);
    }

    fn shift(&mut self, room: &'a MemberRoom, claim: &Claim, sign: i64) {
        if claim.state == ClaimState::Leaving {
            return;
        }
        let touched = self.touch(room);
        room.usage(claim, |n, amounts, times| {
            touched.base.later[n].add(amounts, sign * times);
            touched.current.later[n].add(amounts, sign * times);
            touched.added.add(amounts, -sign * times);
        });
    }

    /// Dominant share of requests at `room` after `more` is placed there too.
    pub fn share(&self, room: &MemberRoom, more: &Amounts) -> f64 {
        match self.touched.get(&place(room)) {
            None => room.share_with(more),
            Some(touched) => {
                let mut more = more.clone();
                more.add(&touched.added, 1);
                room.share_with(&more)
            }
        }
    }

    /// Why `ask` does not fit at `room`.
    pub fn why_not(&self, room: &MemberRoom, ask: Ask<'_>) -> Misfit {
        explain(self.touched.get(&place(room)).map_or_else(|| room.free(), Touched::free), ask)
    }
}

/// Packs all tenants of a member and the new one afresh.
fn repack<'a>(touched: &mut Touched<'a>, tenant: Tenant, ask: Ask<'a>) -> bool {
    if touched.tenants.is_empty() {
        return false;
    }
    let mut asks: Vec<Ask<'a>> = touched.tenants.iter().map(|(_, ask, _)| *ask).collect();
    asks.push(ask);
    let Some(packing) = pack(touched.base(), &asks) else { return false };
    touched.tenants.push((tenant, ask, Vec::new()));
    touched.current = touched.base.clone();
    let room = touched.room;
    for ((_, ask, pods), new) in touched.tenants.iter_mut().zip(packing) {
        *pods = new;
        take(&mut touched.current, room, ask, pods, 1);
    }
    // The sum of the others is what it was; only the new one is added.
    if let Some((_, ask, pods)) = touched.tenants.last() {
        for p in pods {
            if let Some(group) = ask.demand.groups.get(p.group) {
                touched.added.add(&group.requests, i64::from(p.count));
            }
        }
    }
    true
}

/// What a demand takes in all on `room`, pods per node counted on matching nodes.
pub(crate) fn total_on(demand: &Demand, room: &MemberRoom) -> Amounts {
    let mut total = Amounts::default();
    for group in &demand.groups {
        let pods = match group.per_node {
            true => room.nodes().iter().filter(|n| admits(n, group).is_ok()).count() as i64,
            false => i64::from(group.replicas),
        };
        total.add(&group.requests, pods);
    }
    total
}
