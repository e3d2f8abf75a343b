//! What the best possible strategies reach: one that knows the future, and one that may rearrange everything at each arrival.

use crate::draw::{Application, CLUSTERS, Draw, NodeSize};
use crate::packing::{Confined, Item, Packed, confine, exceeds, pack, whole};

/// The most applications of a draw that can run together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Optimum {
    /// The applications, by number of arrival.
    pub applications: Vec<usize>,
    /// The cluster of each of their microservices.
    pub places: Vec<Vec<usize>>,
    /// Proven: no strategy runs more. Equal to the number of applications unless a search was cut short.
    pub at_most: usize,
}

impl Optimum {
    /// Whether no strategy can run more applications.
    pub fn is_proven(&self) -> bool {
        self.at_most == self.applications.len()
    }
}

/// The most applications that can run together, with at most `steps` steps for each set of applications that is tried.
///
/// Nothing departs, so no sequence of moves keeps more applications placed; and a strategy that knows the future places each of them where
/// it is here, without a move. All sets are tried, the larger ones first, except those that exceed the clusters that they are confined to.
pub fn optimum(draw: &Draw, size: NodeSize, steps: u64) -> Optimum {
    let items: Vec<Vec<Item>> = draw.applications.iter().map(items).collect();
    let free = [whole(size, &items.concat()); CLUSTERS.len()];
    let mut at_most = None;
    for count in (0..=items.len()).rev() {
        for set in sets(&items, count, &free) {
            let chosen: Vec<Item> = set.iter().flat_map(|at| items[*at].iter().copied()).collect();
            match pack(size, &chosen, steps) {
                Packed::Fits(clusters) => {
                    let mut clusters = clusters.into_iter();
                    let places = set.iter().map(|at| clusters.by_ref().take(items[*at].len()).collect()).collect();
                    return Optimum { applications: set, places, at_most: at_most.unwrap_or(count) };
                }
                Packed::Unknown => at_most = at_most.or(Some(count)),
                Packed::Never => {}
            }
        }
    }
    Optimum { applications: Vec::new(), places: Vec::new(), at_most: at_most.unwrap_or_default() }
}

/// The sets of `count` applications that are not too large for the clusters that they are confined to, those with the smallest sum first.
fn sets(items: &[Vec<Item>], count: usize, free: &[[i64; 2]; CLUSTERS.len()]) -> Vec<Vec<usize>> {
    let mut sets = Vec::new();
    choose(items, count, free, 0, &mut Vec::new(), Confined::default(), &mut sets);
    sets.sort_by_key(|(weight, set)| (*weight, set.clone()));
    sets.into_iter().map(|(_, set)| set).collect()
}

fn choose(
    items: &[Vec<Item>],
    count: usize,
    free: &[[i64; 2]; CLUSTERS.len()],
    from: usize,
    set: &mut Vec<usize>,
    sums: Confined,
    sets: &mut Vec<(i64, Vec<usize>)>,
) {
    if exceeds(&sums, free) {
        return;
    }
    if set.len() == count {
        // Parts per million of all clusters, of both resources together.
        let all = sums[sums.len() - 1];
        let weight = (0..2).map(|resource| all[resource] * 1_000_000 / free[0][resource].max(1)).sum();
        sets.push((weight, set.clone()));
        return;
    }
    for at in from..items.len() {
        if items.len() - at < count - set.len() {
            return;
        }
        let mut more = sums;
        items[at].iter().for_each(|item| confine(&mut more, item));
        set.push(at);
        choose(items, count, free, at + 1, set, more, sets);
        set.pop();
    }
}

/// Whether applications can run together, wherever each of their microservices is now.
pub fn together(draw: &Draw, size: NodeSize, applications: &[usize], steps: u64) -> Packed {
    let all: Vec<Item> = applications.iter().flat_map(|at| items(&draw.applications[*at])).collect();
    pack(size, &all, steps)
}

/// The applications that run if each arrival is accepted when everything that runs can be rearranged so that it fits, even by exchanges that
/// no sequence of moves without interruption can do.
pub fn rearranged(draw: &Draw, size: NodeSize, steps: u64) -> Rearranged {
    let mut result = Rearranged::default();
    for arrival in 0..draw.applications.len() {
        result.applications.push(arrival);
        match together(draw, size, &result.applications, steps) {
            Packed::Fits(_) => continue,
            Packed::Unknown => result.unknown += 1,
            Packed::Never => {}
        }
        result.applications.pop();
    }
    result
}

/// The result of accepting whatever can be made to fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rearranged {
    /// The applications that run, by number of arrival.
    pub applications: Vec<usize>,
    /// Number of arrivals that were rejected because the limit on steps ended the search.
    pub unknown: usize,
}

fn items(application: &Application) -> Vec<Item> {
    application.microservices.iter().map(|one| Item { cpu: one.cpu, memory: one.memory, allowed: one.allowed }).collect()
}
