//! Bounds that rule out sets of victims without trying them: by the amounts that they free, and by those that they need elsewhere.

use std::collections::BTreeMap;

use super::movable::Movable;
use crate::fit::Ask;
use crate::trial::total_on;
use crate::{Amounts, MemberRoom};

/// From this position on all positions share one bound, which limits the memory.
const EXACT: usize = 64;

/// Amounts of one resource by candidate, with the extreme sums of candidates.
struct Sums {
    /// The amount of each candidate, by its position.
    amounts: Vec<i64>,
    /// `extreme[at][n]`: the extreme sum of `n` of the candidates from position `at` on. The last entry is for all positions from there on.
    extreme: Vec<Vec<i64>>,
}

impl Sums {
    /// With the largest sums, or (`largest` false) with the smallest.
    fn new(amounts: Vec<i64>, largest: bool) -> Self {
        let extreme = |at: usize| {
            let mut rest = amounts[at..].to_vec();
            rest.sort_unstable_by(|a, b| if largest { b.cmp(a) } else { a.cmp(b) });
            let sums = rest.iter().scan(0, |sum, amount| {
                *sum += amount;
                Some(*sum)
            });
            std::iter::once(0).chain(sums).collect::<Vec<i64>>()
        };
        let extreme = (0..=amounts.len().min(EXACT)).map(extreme).collect();
        Self { amounts, extreme }
    }

    /// The extreme sum of the candidates `chosen` and `more` of those from position `from` on.
    fn of(&self, chosen: &[usize], from: usize, more: usize) -> i64 {
        let extreme = self.extreme.get(from.min(self.extreme.len().saturating_sub(1)));
        let rest = extreme.map_or(0, |sums| sums[more.min(sums.len() - 1)]);
        chosen.iter().map(|at| self.amounts[*at]).sum::<i64>() + rest
    }
}

/// What a set of victims must free, and what it may need.
pub(crate) struct Bounds {
    /// By member and resource: the amount that victims must free at least, and the amounts that candidates free.
    frees: Vec<(i64, Sums)>,
    /// By resource: the amount that is free on all destinations, and the amounts that candidates need.
    needs: Vec<(i64, Sums)>,
}

impl Bounds {
    /// The bounds for the requests `asks` of the newcomer on `rooms`, as (member, request), with these candidates.
    pub fn of<'a>(rooms: &[&'a MemberRoom], asks: &[(&'a MemberRoom, Ask<'a>)], candidates: &[&Movable<'a>]) -> Self {
        let mut frees = Vec::new();
        for room in rooms {
            let mut missing = Amounts::default();
            asks.iter().filter(|(home, _)| home.key == room.key).for_each(|(_, ask)| missing.add(&total_on(ask.demand, room), 1));
            missing.add(&free(room.free().later), -1);
            let freed: Vec<Amounts> =
                candidates.iter().map(|m| if m.room.key == room.key { freed(m) } else { Amounts::default() }).collect();
            let short = missing.asked().map(|r| (missing.get(r), Sums::new(freed.iter().map(|f| f.get(r).max(0)).collect(), true)));
            frees.extend(short.collect::<Vec<_>>());
        }
        let destinations: BTreeMap<_, &MemberRoom> = candidates.iter().flat_map(|m| &m.destinations).map(|to| (&to.key, *to)).collect();
        let mut room = Amounts::default();
        destinations.values().for_each(|to| room.add(&free(to.free().now), 1));
        let needed: Vec<Amounts> = candidates.iter().map(|m| needed(m)).collect();
        let all = needed.iter().fold(Amounts::default(), |sum, one| sum.max(one));
        let needs = all.asked().map(|r| (room.get(r), Sums::new(needed.iter().map(|n| n.get(r)).collect(), false)));
        Self { frees, needs: needs.collect() }
    }

    /// Whether no set can do that has the victims `chosen` and `more` of the candidates from position `from` on.
    pub fn rule_out(&self, chosen: &[usize], from: usize, more: usize) -> bool {
        self.frees.iter().any(|(missing, frees)| frees.of(chosen, from, more) < *missing)
            || self.needs.iter().any(|(room, needs)| needs.of(chosen, from, more) > *room)
    }
}

/// The sum of what is free on nodes. A node that is over-committed has nothing free, but takes nothing from the others either.
fn free(nodes: &[Amounts]) -> Amounts {
    let mut sum = Amounts::default();
    nodes.iter().for_each(|free| sum.add(&free.max(&Amounts::default()), 1));
    sum
}

fn freed(m: &Movable<'_>) -> Amounts {
    let mut sum = Amounts::default();
    m.room.usage(m.claim, |_, _, amounts, times| sum.add(amounts, times));
    sum
}

/// What an app needs at any destination. Apps that may move have no pods per node.
fn needed(m: &Movable<'_>) -> Amounts {
    let mut sum = Amounts::default();
    m.claim.request.demand.groups.iter().for_each(|group| sum.add(&group.requests, i64::from(group.replicas)));
    sum
}
