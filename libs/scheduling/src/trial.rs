//! A trial: the ledger with some claims leaving and some apps added, without changing it. Decisions and plans are built on trials.
//!
//! Only members that are touched are copied. If an app does not fit beside those added before it, all apps added to the member are
//! packed again together, so that in small cases the order of additions has no influence.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::fit::{Ask, Free, pack};
use crate::matching::admits;
use crate::misfit::{Misfit, explain};
use crate::scheduler::Arrivals;
use crate::usage::{Remaining, find};
use crate::{Amounts, Claim, ClaimState, Demand, MemberKey, MemberRoom, PodsOnNode};

/// Identifies an added app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tenant {
    /// A new app, by a number that the caller chooses.
    New(usize),
    /// A moved app, by the claim that leaves its member.
    Moved(Uuid),
}

#[derive(Clone, Default)]
pub(crate) struct Trial<'a> {
    /// Touched members by [`address`]. It must not be iterated, because the order is arbitrary.
    touched: BTreeMap<usize, Touched<'a>>,
    /// Claims that leave, and their destinations (`None`: not decided yet).
    moving: BTreeMap<Uuid, Option<&'a MemberRoom>>,
}

/// The address of a room in memory, a key that is faster than its name. Rooms do not move while they are borrowed.
fn address(room: &MemberRoom) -> usize {
    std::ptr::from_ref(room).addr()
}

/// A removed tenant, which [`Trial::put_back`] restores.
pub(crate) struct TakenOut<'a> {
    tenant: Tenant,
    ask: Ask<'a>,
    pods: Vec<PodsOnNode>,
}

#[derive(Clone)]
struct Touched<'a> {
    room: &'a MemberRoom,
    /// Free amounts without the tenants.
    base: Remaining,
    /// Free amounts with the tenants.
    current: Remaining,
    tenants: Vec<(Tenant, Ask<'a>, Vec<PodsOnNode>)>,
    /// Sum of the added requests minus those of leaving claims.
    added: Amounts,
}

/// Takes (`sign` 1) or frees (-1) the room of `pods`. Returns the sum of their requests.
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
        self.touched.entry(address(room)).or_insert_with(|| Touched::new(room))
    }

    /// The nodes for `ask` on `room`, or `None` if it does not fit.
    pub fn fit(&self, room: &'a MemberRoom, ask: Ask<'a>) -> Option<Vec<PodsOnNode>> {
        match self.touched.get(&address(room)) {
            None if !self.may_fit(room, ask) => None,
            None => pack(room.free(), &[ask])?.pop(),
            Some(touched) => pack(touched.free(), &[ask])?.pop(),
        }
    }

    /// Whether the pods of `ask` and of all tenants find nodes on `room`, in whatever order the scheduler of the member sees them. They
    /// are known to fit.
    pub fn holds_in_any_order(&self, room: &MemberRoom, ask: Ask<'a>) -> bool {
        let touched = self.touched.get(&address(room));
        let tenants = touched.map_or(&[][..], |touched| &touched.tenants);
        let demands: Vec<&Demand> = tenants.iter().map(|(_, ask, _)| ask.demand).chain([ask.demand]).collect();
        if demands.iter().map(|demand| demand.groups.len()).sum::<usize>() < 2 {
            return true;
        }
        let free = touched.map_or_else(|| room.free(), Touched::base);
        Arrivals::new(room.nodes(), free.now.to_vec(), &demands, &[]).any_order_holds()
    }

    /// Whether a claim has left `room` or an app was added to it, even if that was undone.
    pub fn touches(&self, room: &MemberRoom) -> bool {
        self.touched.contains_key(&address(room))
    }

    /// Whether `ask` might fit on `room`; `false` if no node has room for one of the pods. A cheap check before [`Trial::fit`].
    pub fn may_fit(&self, room: &MemberRoom, ask: Ask<'_>) -> bool {
        // The bound is valid only for untouched rooms and for requests that must fit now and later.
        let bounded = ask.now && !self.touches(room);
        !bounded || ask.demand.groups.iter().all(|g| g.per_node || ask.count(g) == 0 || room.may_fit(&g.requests))
    }

    /// Adds `ask` to `room` as `tenant` if it fits beside all tenants. Returns whether it was added.
    pub fn add(&mut self, room: &'a MemberRoom, tenant: Tenant, ask: Ask<'a>) -> bool {
        let added = match self.fit(room, ask) {
            Some(pods) => {
                let touched = self.touch(room);
                let sum = take(&mut touched.current, room, &ask, &pods, 1);
                touched.added.add(&sum, 1);
                touched.tenants.push((tenant, ask, pods));
                true
            }
            None => self.touched.get_mut(&address(room)).is_some_and(|touched| repack(touched, tenant, ask)),
        };
        if added {
            self.goes(tenant, Some(room));
        }
        added
    }

    /// Removes `tenant` from `room`.
    pub fn remove(&mut self, room: &'a MemberRoom, tenant: Tenant) -> Option<TakenOut<'a>> {
        let touched = self.touched.get_mut(&address(room))?;
        let at = touched.tenants.iter().position(|(t, ..)| *t == tenant)?;
        let (_, ask, pods) = touched.tenants.swap_remove(at);
        let sum = take(&mut touched.current, room, &ask, &pods, -1);
        touched.added.add(&sum, -1);
        self.goes(tenant, None);
        Some(TakenOut { tenant, ask, pods })
    }

    /// Restores a removed tenant. The caller guarantees that its room is still free.
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

    /// The member of a claim after all changes; `None` if it leaves and its destination is not decided.
    pub fn home_of<'m>(&'m self, claim: &'m Claim) -> Option<&'m MemberKey> {
        match self.moving.get(&claim.id) {
            Some(to) => to.map(|room| &room.key),
            None => Some(&claim.member),
        }
    }

    /// The current witness of a tenant.
    pub fn pods(&self, room: &MemberRoom, tenant: Tenant) -> Vec<PodsOnNode> {
        let tenants = self.touched.get(&address(room)).map_or(&[][..], |t| &t.tenants);
        tenants.iter().find(|(t, ..)| *t == tenant).map_or_else(Vec::new, |(_, _, pods)| pods.clone())
    }

    /// Lets `claim`, held on `room`, leave: its room is free later.
    pub fn leave(&mut self, room: &'a MemberRoom, claim: &Claim) {
        self.goes(Tenant::Moved(claim.id), None);
        self.shift(room, claim, 1);
    }

    /// Reverts [`Trial::leave`]. The caller has removed the tenants that used the room.
    pub fn stay(&mut self, room: &'a MemberRoom, claim: &Claim) {
        self.moving.remove(&claim.id);
        self.shift(room, claim, -1);
    }

    fn shift(&mut self, room: &'a MemberRoom, claim: &Claim, sign: i64) {
        if claim.state == ClaimState::Leaving {
            return;
        }
        let touched = self.touch(room);
        room.usage(claim, |_, n, amounts, times| {
            touched.base.later[n].add(amounts, sign * times);
            touched.current.later[n].add(amounts, sign * times);
            touched.added.add(amounts, -sign * times);
        });
    }

    /// The dominant share of requests on `room` after `more` is placed there.
    pub fn share(&self, room: &MemberRoom, more: &Amounts) -> f64 {
        match self.touched.get(&address(room)) {
            None => room.share_with(more),
            Some(touched) => {
                let mut more = more.clone();
                more.add(&touched.added, 1);
                room.share_with(&more)
            }
        }
    }

    /// The free amounts on the nodes of `room` after leaving claims are gone, without the tenants.
    pub fn later(&self, room: &MemberRoom) -> Vec<Amounts> {
        self.touched.get(&address(room)).map_or_else(|| room.free().later.to_vec(), |touched| touched.base.later.clone())
    }

    /// Why `ask` does not fit on `room`.
    pub fn why_not(&self, room: &MemberRoom, ask: Ask<'_>) -> Misfit {
        explain(self.touched.get(&address(room)).map_or_else(|| room.free(), Touched::free), ask)
    }
}

/// Packs all tenants of a member and the new one again from scratch. Returns whether they fit.
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
    // The sum of the other tenants is unchanged; only the new one is added.
    if let Some((_, ask, pods)) = touched.tenants.last() {
        for p in pods {
            if let Some(group) = ask.demand.groups.get(p.group) {
                touched.added.add(&group.requests, i64::from(p.count));
            }
        }
    }
    true
}

/// The total request of a demand on `room`, with the pods of `per_node` groups on all matching nodes.
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
