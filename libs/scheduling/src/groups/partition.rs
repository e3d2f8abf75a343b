//! The optimal partition of a small number of services, by dynamic programming over sets of services.
//!
//! Only connected groups are tried: splitting a group that is not connected costs nothing, and its parts satisfy the same constraints
//! (size, room, anti-affinity).

use super::graph::CallGraph;

struct ExactPartition<'g> {
    /// Neighbours of each service, as a bit set.
    near: Vec<u32>,
    edges: &'g [(usize, usize, f64)],
    rho: usize,
    /// By set of services: the best weight within groups (NaN if not computed yet). `first` is the group of the set's lowest service.
    value: Vec<f64>,
    first: Vec<u32>,
}

/// The partition into groups of at most `rho` services with the least weight between groups.
pub(super) fn best(graph: &CallGraph, rho: usize, may: impl Fn(&[usize]) -> bool) -> Vec<Vec<usize>> {
    let k = graph.services().len();
    let edges = graph.weights();
    let mut near = vec![0_u32; k];
    for (i, j, _) in &edges {
        near[*i] |= 1 << j;
        near[*j] |= 1 << i;
    }
    let mut search = ExactPartition { near, edges: &edges, rho, value: vec![f64::NAN; 1 << k], first: vec![0; 1 << k] };
    let all = ((1_u64 << k) - 1) as u32;
    search.solve(all, &|set| may(&members(set)));
    let (mut groups, mut left) = (Vec::new(), all);
    while left != 0 {
        groups.push(members(search.first[left as usize]));
        left &= !search.first[left as usize];
    }
    groups
}

fn members(set: u32) -> Vec<usize> {
    (0..32).filter(|i| set >> i & 1 == 1).collect()
}

impl ExactPartition<'_> {
    fn solve(&mut self, left: u32, may: &dyn Fn(u32) -> bool) -> f64 {
        if left == 0 {
            return 0.0;
        }
        if !self.value[left as usize].is_nan() {
            return self.value[left as usize];
        }
        let lowest = left & left.wrapping_neg();
        let mut groups = Vec::new();
        self.connected(lowest, left, left & !lowest, &mut groups);
        let (mut best, mut first) = (f64::NEG_INFINITY, lowest);
        for group in groups {
            if group != lowest && !may(group) {
                continue;
            }
            let value = self.inner(group) + self.solve(left & !group, may);
            if value > best + 1e-12 {
                (best, first) = (value, group);
            }
        }
        self.value[left as usize] = best;
        self.first[left as usize] = first;
        best
    }

    /// Lists every connected set that contains `set` within `set | open`, each once: a neighbour is either added or excluded for good.
    fn connected(&self, set: u32, left: u32, mut open: u32, found: &mut Vec<u32>) {
        found.push(set);
        if set.count_ones() as usize >= self.rho {
            return;
        }
        let mut next = members(set).iter().fold(0, |n, s| n | self.near[*s]) & open & left;
        while next != 0 {
            let one = next & next.wrapping_neg();
            next &= !one;
            open &= !one;
            self.connected(set | one, left, open, found);
        }
    }

    fn inner(&self, set: u32) -> f64 {
        self.edges.iter().filter(|(i, j, _)| set >> i & set >> j & 1 == 1).map(|e| e.2).sum()
    }
}
