//! Whether pods fit on the nodes of one member. The result is a packing, which proves it.
//!
//! First-fit decreasing; if that fails on few nodes, an exact search with a fixed number of steps, so that small cases are decided
//! exactly. Beyond this limit the result may be "does not fit" although a packing exists, never the reverse.
//! The choice of a member is made in `place.rs`, the reason why something does not fit is found in `misfit.rs`.

use crate::matching::admits;
use crate::{Amounts, Demand, Node, PodGroup, PodsOnNode};

/// Steps of the exact search on up to [`EXACT_NODES`] nodes.
const EXACT_STEPS: u32 = 100_000;
/// Largest number of nodes with the full number of steps.
const EXACT_NODES: usize = 4;
/// Steps of the exact search on more nodes than that, up to [`SHORT_NODES`].
const SHORT_STEPS: u32 = 2_000;
const SHORT_NODES: usize = 16;
/// Largest number of pods for the exact search.
const EXACT_PODS: usize = 32;

/// The room of a member: its nodes and the free amounts on each, now and after leaving claims are gone.
#[derive(Clone, Copy)]
pub struct Free<'a> {
    /// The nodes, sorted by name.
    pub nodes: &'a [Node],
    /// Free amounts now.
    pub now: &'a [Amounts],
    /// Free amounts after leaving claims are gone and promised claims have started.
    pub later: &'a [Amounts],
}

/// The request of one app for room.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    pub demand: &'a Demand,
    /// Count the additional pods of an update too.
    pub surge: bool,
    /// The room must be free now as well as later; else only later.
    pub now: bool,
}

impl<'a> Ask<'a> {
    /// A request for room now (a held claim).
    pub fn held(demand: &'a Demand) -> Self {
        Self { demand, surge: false, now: true }
    }
    /// A request for room later (a promised claim).
    pub fn promised(demand: &'a Demand) -> Self {
        Self { demand, surge: false, now: false }
    }
    /// The number of pods of a group that is not `per_node`.
    pub(crate) fn count(&self, group: &PodGroup) -> u32 {
        group.replicas + if self.surge { group.surge } else { 0 }
    }
}

/// Finds nodes for all requests together. Returns the pods of each request as a witness, or `None` if they do not fit.
pub fn pack(free: Free<'_>, asks: &[Ask<'_>]) -> Option<Vec<Vec<PodsOnNode>>> {
    if let [ask] = asks
        && let [group] = ask.demand.groups.as_slice()
        && !group.per_node
    {
        return spread_equal(free, group, ask.count(group), ask.now).map(|pods| vec![pods]);
    }
    Packer::new(free, asks)?.solve()
}

/// Packs equal pods: filling one node after the other is exact and needs no copy of the free amounts.
fn spread_equal(free: Free<'_>, group: &PodGroup, count: u32, now: bool) -> Option<Vec<PodsOnNode>> {
    let mut left = i64::from(count);
    let mut pods = Vec::new();
    for (n, node) in free.nodes.iter().enumerate() {
        if left == 0 {
            break;
        }
        let mut here = room_for(&free.later[n], &group.requests).min(left);
        if now {
            here = here.min(room_for(&free.now[n], &group.requests));
        }
        if here > 0 && admits(node, group).is_ok() {
            left -= here;
            pods.push(PodsOnNode { node: node.name.clone(), group: 0, count: u32::try_from(here).unwrap_or(u32::MAX) });
        }
    }
    (left == 0).then_some(pods)
}

/// The number of pods with these requests that fit into `free`.
fn room_for(free: &Amounts, requests: &Amounts) -> i64 {
    let times = |free: i64, need: i64| if need > 0 { free.max(0) / need } else { i64::MAX };
    let extra = requests.extra.iter().map(|(name, need)| times(free.extra.get(name).copied().unwrap_or(0), *need));
    let plain = times(free.cpu, requests.cpu).min(times(free.memory, requests.memory)).min(times(free.pods, requests.pods));
    extra.fold(plain, i64::min)
}

/// Equal pods to be placed, and the nodes that admit them.
struct Item<'a> {
    ask: usize,
    group: usize,
    requests: &'a Amounts,
    count: u32,
    now: bool,
    nodes: Vec<usize>,
}

struct Packer<'a> {
    names: &'a [Node],
    now: Vec<Amounts>,
    later: Vec<Amounts>,
    items: Vec<Item<'a>>,
    /// The pods of `per_node` groups, by request.
    fixed: Vec<Vec<PodsOnNode>>,
}

impl<'a> Packer<'a> {
    /// Places the pods of `per_node` groups and lists the others, the largest first.
    fn new(free: Free<'a>, asks: &[Ask<'a>]) -> Option<Self> {
        let mut packer = Self {
            names: free.nodes,
            now: free.now.to_vec(),
            later: free.later.to_vec(),
            items: Vec::new(),
            fixed: vec![Vec::new(); asks.len()],
        };
        for (a, ask) in asks.iter().enumerate() {
            for (g, group) in ask.demand.groups.iter().enumerate() {
                let count = if group.per_node { 1 } else { ask.count(group) };
                if count == 0 {
                    continue;
                }
                let nodes: Vec<usize> = (0..free.nodes.len()).filter(|n| admits(&free.nodes[*n], group).is_ok()).collect();
                if nodes.is_empty() {
                    return None;
                }
                if group.per_node {
                    for n in nodes {
                        if !packer.has_room(n, &group.requests, ask.now) {
                            return None;
                        }
                        packer.take(n, &group.requests, ask.now, 1);
                        packer.fixed[a].push(PodsOnNode { node: free.nodes[n].name.clone(), group: g, count: 1 });
                    }
                } else {
                    packer.items.push(Item { ask: a, group: g, requests: &group.requests, count, now: ask.now, nodes });
                }
            }
        }
        // Nodes without room for a single pod would only widen the search. Pods of `per_node` groups are placed by now.
        let mut items = std::mem::take(&mut packer.items);
        for item in &mut items {
            item.nodes.retain(|n| packer.has_room(*n, item.requests, item.now));
            if item.nodes.is_empty() {
                return None;
            }
        }
        let total = packer.names.iter().fold(Amounts::default(), |mut sum, node| {
            sum.add(&node.allocatable, 1);
            sum
        });
        let size =
            |item: &Item<'_>| item.requests.asked().map(|r| item.requests.get(r) as f64 / total.get(r).max(1) as f64).fold(0.0, f64::max);
        items.sort_by(|a, b| size(b).total_cmp(&size(a)).then_with(|| (a.ask, a.group).cmp(&(b.ask, b.group))));
        packer.items = items;
        Some(packer)
    }

    fn has_room(&self, n: usize, requests: &Amounts, now: bool) -> bool {
        self.later[n].fits(requests) && (!now || self.now[n].fits(requests))
    }

    fn take(&mut self, n: usize, requests: &Amounts, now: bool, pods: i64) {
        self.later[n].add(requests, -pods);
        if now {
            self.now[n].add(requests, -pods);
        }
    }

    fn solve(mut self) -> Option<Vec<Vec<PodsOnNode>>> {
        let start = (self.now.clone(), self.later.clone());
        if let Some(placed) = self.first_fit() {
            return Some(self.witness(&placed));
        }
        (self.now, self.later) = start;
        let pods: usize = self.items.iter().map(|item| item.count as usize).sum();
        let mut nodes: Vec<usize> = self.items.iter().flat_map(|item| item.nodes.iter().copied()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        if !(2..=EXACT_PODS).contains(&pods) || nodes.len() > SHORT_NODES || self.sums_exceed(&nodes) {
            return None;
        }
        let mut steps = if nodes.len() <= EXACT_NODES { EXACT_STEPS } else { SHORT_STEPS };
        let list: Vec<usize> = self.items.iter().enumerate().flat_map(|(i, item)| std::iter::repeat_n(i, item.count as usize)).collect();
        let mut placed = Vec::with_capacity(list.len());
        self.search(&list, &mut placed, &mut steps).then(|| self.witness(&placed))
    }

    /// Puts one pod after the other on the first node with room. Pods of an item are equal, so a full node stays full for all of them.
    fn first_fit(&mut self) -> Option<Vec<(usize, usize)>> {
        let mut placed = Vec::new();
        for i in 0..self.items.len() {
            let (requests, now) = (self.items[i].requests, self.items[i].now);
            let mut left = self.items[i].count;
            for k in 0..self.items[i].nodes.len() {
                let n = self.items[i].nodes[k];
                while left > 0 && self.has_room(n, requests, now) {
                    self.take(n, requests, now, 1);
                    placed.push((i, n));
                    left -= 1;
                }
            }
            if left > 0 {
                return None;
            }
        }
        Some(placed)
    }

    /// Whether the sums of requests exceed the sums of free amounts, so that no packing exists.
    fn sums_exceed(&self, nodes: &[usize]) -> bool {
        let mut need = Amounts::default();
        let mut room = Amounts::default();
        for item in &self.items {
            need.add(item.requests, i64::from(item.count));
        }
        // A node that is over-committed in one resource contributes 0 of it, not a negative amount.
        for n in nodes {
            room.add(&self.later[*n].max(&Amounts::default()), 1);
        }
        !room.fits(&need)
    }

    /// Searches depth first over `list`; equal pods go to nodes in ascending order.
    fn search(&mut self, list: &[usize], placed: &mut Vec<(usize, usize)>, steps: &mut u32) -> bool {
        let Some(&i) = list.get(placed.len()) else { return true };
        let (requests, now) = (self.items[i].requests, self.items[i].now);
        let from = match placed.last() {
            Some((last, node)) if *last == i => *node,
            _ => 0,
        };
        for k in 0..self.items[i].nodes.len() {
            let n = self.items[i].nodes[k];
            if n < from || !self.has_room(n, requests, now) {
                continue;
            }
            if *steps == 0 {
                return false;
            }
            *steps -= 1;
            self.take(n, requests, now, 1);
            placed.push((i, n));
            if self.search(list, placed, steps) {
                return true;
            }
            placed.pop();
            self.take(n, requests, now, -1);
        }
        false
    }

    fn witness(&self, placed: &[(usize, usize)]) -> Vec<Vec<PodsOnNode>> {
        let mut all = self.fixed.clone();
        for (i, n) in placed {
            let item = &self.items[*i];
            let name = &self.names[*n].name;
            let pods = &mut all[item.ask];
            match pods.iter_mut().find(|p| p.group == item.group && p.node == *name) {
                Some(there) => there.count += 1,
                None => pods.push(PodsOnNode { node: name.clone(), group: item.group, count: 1 }),
            }
        }
        for pods in &mut all {
            pods.sort_by(|a, b| (a.group, &a.node).cmp(&(b.group, &b.node)));
        }
        all
    }
}
