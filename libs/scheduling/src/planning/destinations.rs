//! The members to which an app may move, and which of them are not full.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use super::candidates::{must_keep_names, nameless, network_of, no, storage_of, volumes};
use super::context::PlanningContext;
use super::copies::Copies;
use crate::expand::{ByLabel, Cloud, Group, Standing, groups_in};
use crate::explanations::why_unknown;
use crate::fit::Ask;
use crate::reachability::why_out_of_reach;
use crate::storage::{self, BoundVolume};
use crate::trial::Trial;
use crate::{Claim, Demand, Exclusion, Intent, MemberKey, MemberRoom, PlacementTerms};

/// A member as a destination. Of hundreds of members most are full; what shows that is copied here, so that they need not be read.
pub(crate) struct Destination<'a> {
    room: &'a MemberRoom,
    priority: u8,
    /// The largest free amounts of CPU and memory on any of its nodes, now and later.
    largest: (i64, i64),
}

impl<'a> Destination<'a> {
    fn new(room: &'a MemberRoom) -> Self {
        let largest = room.largest();
        Self { room, priority: room.priority(), largest: (largest.cpu, largest.memory) }
    }
}

/// The members of known capacity to which an app may move, by provider priority, then by key. Apps with the same intent share the list, so
/// that an app's own member may be in it, which is passed over.
pub(crate) struct Destinations<'a> {
    list: Rc<[Destination<'a>]>,
    own: &'a MemberRoom,
}

impl<'a> Destinations<'a> {
    pub fn iter(&self) -> impl Iterator<Item = &'a MemberRoom> + '_ {
        self.others(&self.list).map(|to| to.room)
    }

    /// The members of all these, each once.
    pub fn union<'d>(all: impl Iterator<Item = &'d Self>) -> impl Iterator<Item = &'a MemberRoom>
    where
        'a: 'd,
    {
        let mut different: Vec<&Self> = Vec::new();
        for one in all {
            if !different.iter().any(|other| Rc::ptr_eq(&one.list, &other.list) && std::ptr::eq(one.own, other.own)) {
                different.push(one);
            }
        }
        let mut seen = HashSet::new();
        different.into_iter().flat_map(Self::iter).filter(move |room| seen.insert(std::ptr::from_ref::<MemberRoom>(room)))
    }

    /// Runs of equal provider priority, the best first.
    pub fn equals(&self) -> impl Iterator<Item = &[Destination<'a>]> {
        self.list.chunk_by(|a, b| a.priority == b.priority)
    }

    /// Whether one of them has room for a claim of `demand`.
    pub fn have_room(&self, demand: &Demand) -> bool {
        let nothing = Trial::default();
        // The least preferred ones are the most likely to have room.
        self.not_full(&self.list, demand, &nothing).rev().any(|to| nothing.fit(to, Ask::held(demand)).is_some())
    }

    /// Those of `list` that are not obviously full for a claim of `demand` in the state of `trial`.
    pub fn not_full<'d>(
        &'d self,
        list: &'d [Destination<'a>],
        demand: &'d Demand,
        trial: &'d Trial<'a>,
    ) -> impl DoubleEndedIterator<Item = &'a MemberRoom> + 'd {
        let ask = Ask::held(demand);
        let pods = demand.groups.iter().filter(|group| !group.per_node && ask.count(group) > 0).map(|group| &group.requests);
        let (cpu, memory) = pods.fold((0, 0), |(cpu, memory), pod| (pod.cpu.max(cpu), pod.memory.max(memory)));
        let full = move |to: &Destination<'_>| to.largest.0 < cpu || to.largest.1 < memory;
        let open = self.others(list).filter(move |to| !full(to) || trial.touches(to.room)).map(|to| to.room);
        open.filter(move |room| trial.may_fit(room, ask))
    }

    /// Without the app's own member.
    fn others<'d>(&'d self, list: &'d [Destination<'a>]) -> impl DoubleEndedIterator<Item = &'d Destination<'a>> {
        list.iter().filter(|to| !std::ptr::eq(to.room, self.own))
    }
}

/// A placement intent with the members that it names.
struct Expansion<'a> {
    terms: &'a PlacementTerms,
    groups: Vec<Group<'a>>,
    /// With one group: the destinations of every app with this intent that nothing else binds.
    free_choice: Option<Rc<[Destination<'a>]>>,
    /// Members whose capacity is expected soon.
    awaited: Vec<&'a MemberKey>,
}

impl<'a> Expansion<'a> {
    fn of(terms: &'a PlacementTerms, groups: Vec<Group<'a>>) -> Self {
        let free_choice = match groups.as_slice() {
            [only] => Some(only.allowed().filter(|room| room.is_known()).map(Destination::new).collect()),
            _ => None,
        };
        let awaited = groups.iter().flat_map(Group::allowed).filter(|room| room.is_awaited()).map(|room| &room.key).collect();
        Self { terms, groups, free_choice, awaited }
    }

    /// Whether these terms, of the same intent, lead to the same members.
    fn is_of(&self, terms: &PlacementTerms) -> bool {
        let kept = self.terms;
        (&kept.advice, &kept.reached_by) == (&terms.advice, &terms.reached_by) && same_cloud(&kept.logical_cloud, &terms.logical_cloud)
    }
}

fn same_cloud(a: &Arc<[MemberKey]>, b: &Arc<[MemberKey]>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

/// A cache of expanded intents, since many apps have the same one.
#[derive(Default)]
pub(crate) struct Expanded<'a> {
    /// Those with the same intent differ in other terms.
    by_intent: BTreeMap<&'a Intent, Vec<Expansion<'a>>>,
    /// The number of expansions.
    kept: usize,
    /// The logical clouds of the expansions.
    clouds: Vec<(&'a Arc<[MemberKey]>, Cloud<'a>)>,
    index: OnceCell<ByLabel<'a>>,
}

impl<'a> Expanded<'a> {
    /// Limits the memory; all are dropped when it is reached.
    const KEPT: usize = 256;

    fn intent(&mut self, context: &PlanningContext<'a>, terms: &'a PlacementTerms) -> &Expansion<'a> {
        let known = self.by_intent.get(&terms.intent).and_then(|same| same.iter().position(|kept| kept.is_of(terms)));
        let at = known.unwrap_or_else(|| self.expand(context, terms));
        &self.by_intent[&terms.intent][at]
    }

    /// Expands the intent of these terms. Returns its position among those with the same intent.
    fn expand(&mut self, context: &PlanningContext<'a>, terms: &'a PlacementTerms) -> usize {
        if self.kept == Self::KEPT {
            (self.kept, self.by_intent, self.clouds) = Default::default();
        }
        let known = self.clouds.iter().position(|(members, _)| same_cloud(members, &terms.logical_cloud));
        let cloud = known.unwrap_or_else(|| {
            self.clouds.push((&terms.logical_cloud, Cloud::of(terms)));
            self.clouds.len() - 1
        });
        let groups = groups_in(context.ledger, Some(&self.index), terms, &self.clouds[cloud].1);
        self.kept += 1;
        let same = self.by_intent.entry(&terms.intent).or_default();
        same.push(Expansion::of(terms, groups));
        same.len() - 1
    }
}

/// The destinations of `claim`, which is on `room`: members of known capacity with which every group of its intent stays satisfied. Those
/// whose capacity is expected soon are added to `awaited`.
pub(crate) fn destinations<'a>(
    context: &PlanningContext<'a>,
    claim: &'a Claim,
    room: &'a MemberRoom,
    expanded: &mut Expanded<'a>,
    awaited: &mut BTreeSet<&'a MemberKey>,
) -> Result<(Destinations<'a>, Copies<'a>), Exclusion> {
    let intent = expanded.intent(context, &claim.request.terms);
    let copies = Copies::of(claim, &context.siblings(claim), &intent.groups);
    let volumes = volumes(context, claim).unwrap_or_default();
    let bound = must_keep_names(claim) || !volumes.is_empty() || context.refused(claim).next().is_some() || !copies.members().is_empty();
    if let Some(all) = intent.free_choice.as_ref().filter(|_| !bound) {
        let all = Destinations { list: Rc::clone(all), own: room };
        if all.iter().next().is_some() {
            awaited.extend(intent.awaited.iter().filter(|key| **key != &claim.member));
            return Ok((all, copies));
        }
    }
    let list = examine(context, claim, &intent.groups, &copies, &volumes, awaited)?;
    Ok((Destinations { list: list.into_iter().map(Destination::new).collect(), own: room }, copies))
}

/// The destinations of an app, one condition after the other, so that the one that leaves none can be told.
fn examine<'a>(
    context: &PlanningContext<'a>,
    claim: &'a Claim,
    groups: &[Group<'a>],
    copies: &Copies<'a>,
    volumes: &[&BoundVolume],
    awaited: &mut BTreeSet<&'a MemberKey>,
) -> Result<Vec<&'a MemberRoom>, Exclusion> {
    let others = copies.members();
    let mut open = groups.iter().filter(|g| others.is_empty() || !g.options.iter().any(|c| others.contains(&c.room.key)));
    let mut allowed: Vec<&MemberRoom> = match open.next() {
        Some(first) => first.allowed().collect(),
        None => groups.iter().flat_map(Group::allowed).collect(),
    };
    for group in open {
        allowed.retain(|room| group.options.iter().any(|c| c.room.key == room.key && c.standing == Standing::Allowed));
    }
    allowed.retain(|room| room.key != claim.member && !others.contains(&room.key));
    if groups.len() > 1 {
        allowed.sort_by(|a, b| a.priority().cmp(&b.priority()).then_with(|| a.key.cmp(&b.key)));
        allowed.dedup_by(|a, b| a.key == b.key);
    }
    if allowed.is_empty() {
        let mut options = groups.iter().flat_map(|group| &group.options);
        if let Some(unreached) = options.find(|c| c.standing == Standing::OutOfReach && c.room.key != claim.member) {
            let why = why_out_of_reach(&claim.request.terms, unreached.room);
            return Err(no("out_of_reach", format!("its routes would lead nowhere on {}: {why}", unreached.room.key)));
        }
        let cordoned = groups.iter().flat_map(|group| &group.options).filter(|c| c.standing == Standing::Cordoned);
        let cordoned: BTreeSet<&str> = cordoned.map(|c| c.room.key.0.as_str()).filter(|key| *key != claim.member.0).collect();
        let except = match cordoned.is_empty() {
            true => String::new(),
            false => format!(" except {} (cordoned)", cordoned.into_iter().collect::<Vec<_>>().join(", ")),
        };
        return Err(no("no_other_member", format!("its placement intent and logical cloud allow no other cluster{except}")));
    }
    if must_keep_names(claim) {
        let network = context.ledger.room(&claim.member).and_then(network_of);
        allowed.retain(|room| network_of(room) == network);
        if allowed.is_empty() {
            return Err(no("dependants", nameless(claim)));
        }
    }
    let (reached, out_of_reach): (Vec<_>, Vec<_>) =
        allowed.into_iter().partition(|room| storage::out_of_reach(volumes, storage_of(room)).is_none());
    if reached.is_empty() {
        let why = |room: &&MemberRoom| Some(format!("{}: {}", room.key, storage::out_of_reach(volumes, storage_of(room))?));
        let why: Vec<String> = out_of_reach.iter().filter_map(why).collect();
        return Err(no("volume", format!("its volumes are not reached from where it could move: {}", why.join("; "))));
    }
    allowed = reached;
    let refused: Vec<_> = context.refused(claim).filter(|refused| allowed.iter().any(|room| room.key == refused.member)).collect();
    allowed.retain(|room| refused.iter().all(|refused| refused.member != room.key));
    if allowed.is_empty() {
        let refused: Vec<String> = refused.iter().map(|refused| format!("{}: {}", refused.member, refused.reason)).collect();
        return Err(no("refused", format!("it recently did not become Ready where it could move: {}", refused.join("; "))));
    }
    awaited.extend(allowed.iter().filter(|room| room.is_awaited()).map(|room| &room.key));
    if allowed.iter().any(|room| room.is_known()) {
        allowed.retain(|room| room.is_known());
        return Ok(allowed);
    }
    let unknown: Vec<String> = allowed.iter().take(3).map(|r| format!("{}: {}", r.key, why_unknown(r))).collect();
    Err(no("no_destination", format!("the capacity of its possible destinations is unknown: {}", unknown.join("; "))))
}
