//! Bounds that rule out sets of victims without trying them: by the amounts that they free, and by those that they need elsewhere.

use super::destinations::Destinations;
use super::movable::Movable;
use super::problem::RoomProblem;
use crate::trial::total_on;
use crate::{Amounts, Claim, MemberRoom};

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
        let extreme = (0..=amounts.len().min(EXACT)).map(|at| extreme_sums(amounts[at..].to_vec(), largest)).collect();
        Self { amounts, extreme }
    }

    /// The extreme sum of the candidates `chosen` and `more` of those from position `from` on.
    fn of(&self, chosen: &[usize], from: usize, more: usize) -> i64 {
        let extreme = self.extreme.get(from.min(self.extreme.len().saturating_sub(1)));
        let rest = extreme.map_or(0, |sums| sums[more.min(sums.len() - 1)]);
        chosen.iter().map(|at| self.amounts[*at]).sum::<i64>() + rest
    }
}

/// By number of these amounts, from none to all: their largest sum, or (`largest` false) the smallest.
fn extreme_sums(mut amounts: Vec<i64>, largest: bool) -> Vec<i64> {
    amounts.sort_unstable_by(|a, b| if largest { b.cmp(a) } else { a.cmp(b) });
    let sums = amounts.iter().scan(0, |sum, amount| {
        *sum += amount;
        Some(*sum)
    });
    std::iter::once(0).chain(sums).collect()
}

/// What a set of victims must free, and what it may need.
pub(crate) struct Bounds {
    /// By member and resource: the amount that victims must free at least, and the amounts that candidates free.
    frees: Vec<(i64, Sums)>,
    /// By resource: the amount that is free on all destinations, and the amounts that candidates need.
    needs: Vec<(i64, Sums)>,
}

impl Bounds {
    /// The bounds for the newcomer of this problem, with these candidates.
    pub fn of(problem: &RoomProblem<'_, '_>, candidates: &[&Movable<'_>]) -> Self {
        let mut frees = Vec::new();
        for room in problem.members() {
            let Shortage(missing) = Shortage::of(problem, room);
            let freed: Vec<Amounts> =
                candidates.iter().map(|m| if m.room.key == room.key { freed(room, m.claim) } else { Amounts::default() }).collect();
            let short = missing.asked().map(|r| (missing.get(r), Sums::new(freed.iter().map(|f| f.get(r).max(0)).collect(), true)));
            frees.extend(short.collect::<Vec<_>>());
        }
        let mut room = Amounts::default();
        Destinations::union(candidates.iter().map(|m| &m.destinations)).for_each(|to| room.add(&free(to.free().now), 1));
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

/// What an app frees on its member when it leaves.
pub(crate) fn freed(room: &MemberRoom, claim: &Claim) -> Amounts {
    let mut sum = Amounts::default();
    room.usage(claim, |_, _, amounts, times| sum.add(amounts, times));
    sum
}

/// What new apps need on a member beyond what is free there.
pub(crate) struct Shortage(Amounts);

impl Shortage {
    /// That of the problem's newcomer on `room`.
    pub fn of(problem: &RoomProblem<'_, '_>, room: &MemberRoom) -> Self {
        let mut missing = Amounts::default();
        problem.slots_on(room).for_each(|slot| missing.add(&total_on(&problem.slots[slot].request.demand, room), 1));
        missing.add(&free(room.free().later), -1);
        Self(missing)
    }

    /// Whether there is enough, perhaps not on one node.
    pub fn is_none(&self) -> bool {
        self.0.asked().next().is_none()
    }

    /// Whether these amounts are enough.
    pub fn is_met_by(&self, freed: &Amounts) -> bool {
        self.0.asked().all(|resource| freed.get(resource) >= self.0.get(resource))
    }

    /// A lower bound on the number of apps that must leave, of those that free these amounts; `None` if all of them are not enough.
    pub fn fewest<'f>(&self, freed: impl Iterator<Item = &'f Amounts> + Clone) -> Option<usize> {
        let fewest = |resource: &str| {
            let sums = extreme_sums(freed.clone().map(|one| one.get(resource)).collect(), true);
            sums.iter().position(|sum| *sum >= self.0.get(resource))
        };
        match self.0.asked().try_fold(0, |most, resource| Some(most.max(fewest(resource)?)))? {
            // One that frees enough CPU and another that frees enough memory are two.
            1 if !freed.clone().any(|one| self.is_met_by(one)) => Some(2),
            fewest => Some(fewest),
        }
    }
}

/// What an app needs at any destination. Apps that may move have no pods per node.
fn needed(m: &Movable<'_>) -> Amounts {
    let mut sum = Amounts::default();
    m.claim.request.demand.groups.iter().for_each(|group| sum.add(&group.requests, i64::from(group.replicas)));
    sum
}
