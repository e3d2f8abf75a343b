//! Whether microservices fit on the three clusters together, wherever each may run.
//!
//! A depth-first search that forgets no choice. A branch ends when the microservices that are left need more than is free on all clusters
//! that they may use, for any set of clusters; or when the same room was left for the same microservices before. Shares no code with the
//! product, so that it can prove the product wrong.

use std::collections::HashSet;

use crate::draw::{Allowed, CLUSTERS, NodeSize};

/// What needs room on one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// CPU in millicores.
    pub cpu: i64,
    /// Memory in MiB.
    pub memory: i64,
    pub allowed: Allowed,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packed {
    /// All items fit: the cluster of each.
    Fits(Vec<usize>),
    /// Proven: they do not fit.
    Never,
    /// The limit on steps ended the search.
    Unknown,
}

/// CPU and memory.
type Two = [i64; 2];
/// The number of sets of clusters, the empty one among them.
const SETS: usize = 1 << CLUSTERS.len();

/// Sums by set of clusters: of what may run nowhere outside the set.
pub type Confined = [Two; SETS];

/// Adds an item to the sums of every set that it cannot leave.
pub fn confine(sums: &mut Confined, item: &Item) {
    for (set, sum) in sums.iter_mut().enumerate().filter(|(set, _)| item.allowed.0 & !(*set as u8) == 0) {
        debug_assert!(set > 0);
        *sum = [sum[0] + item.cpu, sum[1] + item.memory];
    }
}

/// Whether some set of clusters, with `free` on each, is too small for what may run nowhere else.
pub fn exceeds(sums: &Confined, free: &[Two; CLUSTERS.len()]) -> bool {
    sums.iter().enumerate().skip(1).any(|(set, sum)| {
        let clusters = || Allowed(set as u8).clusters();
        (0..2).any(|resource| sum[resource] > clusters().map(|cluster| free[cluster][resource]).sum::<i64>())
    })
}

/// Looks for clusters for all items, in at most `steps` steps.
pub fn pack(size: NodeSize, items: &[Item], steps: u64) -> Packed {
    let mut order: Vec<usize> = (0..items.len()).collect();
    let share = |item: &Item| (item.cpu as f64 / size.cpu as f64).max(item.memory as f64 / size.memory as f64);
    // Items without a choice first; of the others the largest.
    order.sort_by(|a, b| {
        let (a, b) = (&items[*a], &items[*b]);
        let choices = |item: &Item| item.allowed.0.count_ones();
        (choices(a) > 1).cmp(&(choices(b) > 1)).then_with(|| share(b).total_cmp(&share(a))).then_with(|| choices(a).cmp(&choices(b)))
    });
    let mut left = vec![Confined::default(); items.len() + 1];
    for at in (0..items.len()).rev() {
        left[at] = left[at + 1];
        confine(&mut left[at], &items[order[at]]);
    }
    let mut search = Search { items, order: &order, left, failed: HashSet::new(), steps, at: vec![0; items.len()] };
    match search.descend(0, [whole(size, items); CLUSTERS.len()]) {
        Some(true) => Packed::Fits(search.at),
        Some(false) => Packed::Never,
        None => Packed::Unknown,
    }
}

/// What a node can give: rounded down to what sums of the items can reach, which makes the bounds sharper.
pub fn whole(size: NodeSize, items: &[Item]) -> Two {
    let unit = |of: fn(&Item) -> i64| items.iter().map(of).fold(0, gcd).max(1);
    let (cpu, memory) = (unit(|item| item.cpu), unit(|item| item.memory));
    [size.cpu / cpu * cpu, size.memory / memory * memory]
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

struct Search<'i> {
    items: &'i [Item],
    order: &'i [usize],
    /// By position in the order: the sums of the items from there on.
    left: Vec<Confined>,
    /// Positions and what was free on all clusters but the last (which follows from it) from where there is no way.
    failed: HashSet<(usize, [Two; CLUSTERS.len() - 1])>,
    steps: u64,
    /// The cluster of each item.
    at: Vec<usize>,
}

impl Search<'_> {
    /// Whether the items from position `depth` on fit; `None` if the steps did not suffice to find out.
    fn descend(&mut self, depth: usize, free: [Two; CLUSTERS.len()]) -> Option<bool> {
        let Some(&this) = self.order.get(depth) else { return Some(true) };
        let state = (depth, [free[0], free[1]]);
        if exceeds(&self.left[depth], &free) || self.failed.contains(&state) {
            return Some(false);
        }
        self.steps = self.steps.checked_sub(1)?;
        let item = self.items[this];
        for cluster in item.allowed.clusters() {
            let mut next = free;
            next[cluster] = [free[cluster][0] - item.cpu, free[cluster][1] - item.memory];
            if next[cluster].iter().all(|left| *left >= 0) {
                self.at[this] = cluster;
                if self.descend(depth + 1, next)? {
                    return Some(true);
                }
            }
        }
        self.failed.insert(state);
        Some(false)
    }
}
