//! The Kubernetes scheduler. It places one pod after the other and knows nothing of the packing that a plan has found, so pods that fit
//! in some packing may not all fit as the scheduler places them.
//!
//! [`Holds::Any`] is proved for every order of pods and every choice of nodes, so it does not depend on how the scheduler scores nodes.
//! [`Holds::Likely`] is a simulation of the default scheduler: pods in the order of application, each on the node with room and the
//! highest `LeastAllocated` score; of nodes with equal scores it may choose any. Other plugins of the scheduler are not simulated.

use std::collections::HashSet;

use crate::matching::admits;
use crate::{Amounts, Demand, Holds, Node};

/// Limit on states for the proof that any order holds. Beyond it the answer is that it does not.
const STATES: usize = 5_000;
/// Limit on the choices between nodes of equal score. Beyond it the simulation takes the first one.
const TIES: u32 = 2_000;
/// Largest number of apps of which all orders are tried.
const PERMUTED: usize = 6;

/// For which orders all pods of `apps`, of which some packing exists, get nodes of a member with these free amounts; and an order of the
/// apps in which the default scheduler is expected to find them, if the given one does not do.
pub fn outlook(nodes: &[Node], free: Vec<Amounts>, apps: &[&Demand]) -> (Holds, Option<Vec<usize>>) {
    Arrivals::new(nodes, free, apps).outlook()
}

/// Equal pods: the same requests and the same nodes.
struct PodType<'a> {
    requests: &'a Amounts,
    nodes: Vec<usize>,
}

/// Apps that are applied to a member, one after the other.
pub(crate) struct Arrivals<'a> {
    nodes: &'a [Node],
    free: Vec<Amounts>,
    types: Vec<PodType<'a>>,
    /// The pods of each app in the order of creation, as (type, number).
    apps: Vec<Vec<(usize, u32)>>,
}

impl<'a> Arrivals<'a> {
    /// The pods of `apps` on a member with these free amounts.
    pub fn new(nodes: &'a [Node], free: Vec<Amounts>, apps: &[&'a Demand]) -> Self {
        let mut arrivals = Self { nodes, free, types: Vec::new(), apps: Vec::new() };
        for demand in apps {
            let mut pods = Vec::new();
            for group in &demand.groups {
                let admitted: Vec<usize> = (0..nodes.len()).filter(|n| admits(&nodes[*n], group).is_ok()).collect();
                if group.per_node {
                    pods.extend(admitted.into_iter().map(|n| (arrivals.type_of(&group.requests, vec![n]), 1)));
                } else if group.replicas > 0 {
                    pods.push((arrivals.type_of(&group.requests, admitted), group.replicas));
                }
            }
            arrivals.apps.push(pods);
        }
        arrivals
    }

    fn type_of(&mut self, requests: &'a Amounts, nodes: Vec<usize>) -> usize {
        let known = self.types.iter().position(|t| t.requests == requests && t.nodes == nodes);
        known.unwrap_or_else(|| {
            self.types.push(PodType { requests, nodes });
            self.types.len() - 1
        })
    }

    /// Whether all pods get nodes. The caller knows that some packing exists.
    pub fn holds(&self) -> Holds {
        let in_order: Vec<usize> = (0..self.apps.len()).collect();
        if self.any_order_holds() {
            Holds::Any
        } else if self.simulate(&in_order) {
            Holds::Likely
        } else {
            Holds::One
        }
    }

    /// [`Self::holds`], and if only some order does, one in which the simulated scheduler places all pods.
    pub fn outlook(&self) -> (Holds, Option<Vec<usize>>) {
        match self.holds() {
            Holds::One => (Holds::One, self.order()),
            holds => (holds, None),
        }
    }

    fn order(&self) -> Option<Vec<usize>> {
        let mut order: Vec<usize> = (0..self.apps.len()).collect();
        order.sort_by_key(|app| std::cmp::Reverse(self.largest(*app)));
        if self.simulate(&order) {
            return Some(order);
        }
        order.sort_unstable();
        (order.len() <= PERMUTED && self.permute(&mut order, 0)).then_some(order)
    }

    fn permute(&self, order: &mut [usize], from: usize) -> bool {
        if from == order.len() {
            return self.simulate(order);
        }
        (from..order.len()).any(|at| {
            order.swap(from, at);
            let found = self.permute(order, from + 1);
            if !found {
                order.swap(from, at);
            }
            found
        })
    }

    /// The largest pod of an app, in thousandths of the largest node.
    fn largest(&self, app: usize) -> i64 {
        let largest = self.nodes.iter().fold(Amounts::default(), |largest, node| largest.max(&node.allocatable));
        let share = |requests: &Amounts| requests.asked().map(|r| requests.get(r).saturating_mul(1_000) / largest.get(r).max(1)).max();
        self.apps[app].iter().filter_map(|(t, _)| share(self.types[*t].requests)).max().unwrap_or(0)
    }

    /// Whether all pods get nodes in whatever order they come; `false` if the search for another order is cut short.
    pub fn any_order_holds(&self) -> bool {
        let mut counts = vec![0_u32; self.types.len()];
        self.apps.iter().flatten().for_each(|(t, n)| counts[*t] += n);
        // Equal pods fill node after node, in whatever order.
        if self.types.len() < 2 || (0..self.types.len()).all(|t| self.is_never_blocked(t, &counts)) {
            return true;
        }
        let mut seen = HashSet::new();
        let mut placed = vec![0_u16; self.types.len() * self.nodes.len()];
        self.none_is_stuck(&mut counts, &mut self.free.clone(), &mut placed, &mut seen)
    }

    /// A sufficient condition: whatever nodes the other pods use, some node has room for a pod of this type. To block a node, others must
    /// use all but less than one pod's request of some resource on it.
    fn is_never_blocked(&self, of: usize, counts: &[u32]) -> bool {
        let pod = self.types[of].requests;
        let mut others = Amounts::default();
        for (t, count) in counts.iter().enumerate() {
            others.add(self.types[t].requests, i64::from(*count) - i64::from(t == of));
        }
        let blocking = |n: usize, r: &&str| {
            let used = self.free[n].get(r) - pod.get(r) + 1;
            (used <= others.get(r)).then_some(used.max(0))
        };
        let resources: Vec<&str> = pod.asked().collect();
        let mut shares = vec![0_i64; resources.len()];
        for n in &self.types[of].nodes {
            let open: Vec<(usize, i64)> = resources.iter().enumerate().filter_map(|(at, r)| Some((at, blocking(*n, r)?))).collect();
            match open.as_slice() {
                [] => return true,
                [(at, used)] => shares[*at] += used,
                // It may be blocked by more than one resource: not counted, which is on the safe side.
                _ => {}
            }
        }
        resources.iter().zip(shares).any(|(r, used)| used > others.get(r))
    }

    /// Tries every order of pods and every choice of nodes, each state once. False if some pod has no node in one of them.
    fn none_is_stuck(&self, counts: &mut [u32], free: &mut [Amounts], placed: &mut [u16], seen: &mut HashSet<Vec<u16>>) -> bool {
        for t in 0..counts.len() {
            if counts[t] == 0 {
                continue;
            }
            let requests = self.types[t].requests;
            let mut fits = false;
            for n in self.types[t].nodes.iter().copied() {
                if !free[n].fits(requests) {
                    continue;
                }
                fits = true;
                let at = t * self.nodes.len() + n;
                placed[at] += 1;
                let new = seen.insert(placed.to_vec());
                let holds = !new
                    || seen.len() <= STATES && {
                        counts[t] -= 1;
                        free[n].add(requests, -1);
                        let holds = self.none_is_stuck(counts, free, placed, seen);
                        free[n].add(requests, 1);
                        counts[t] += 1;
                        holds
                    };
                placed[at] -= 1;
                if !holds {
                    return false;
                }
            }
            if !fits {
                return false;
            }
        }
        true
    }

    /// Whether the default scheduler places all pods if the apps are applied in this order.
    fn simulate(&self, order: &[usize]) -> bool {
        let pods = order.iter().flat_map(|app| &self.apps[*app]).flat_map(|(t, n)| std::iter::repeat_n(*t, *n as usize));
        self.place(&pods.collect::<Vec<_>>(), &mut self.free.clone(), &mut { TIES })
    }

    fn place(&self, pods: &[usize], free: &mut [Amounts], ties: &mut u32) -> bool {
        let Some((t, later)) = pods.split_first() else { return true };
        let requests = self.types[*t].requests;
        let fitting = self.types[*t].nodes.iter().copied().filter(|n| free[*n].fits(requests));
        let scored: Vec<(i64, usize)> = fitting.map(|n| (self.score(n, &free[n], requests), n)).collect();
        let Some(best) = scored.iter().map(|(score, _)| *score).max() else { return false };
        let mut tried: Vec<usize> = Vec::new();
        for (_, n) in scored.into_iter().filter(|(score, _)| *score == best) {
            // Nodes that are equal to the pods that come lead to the same result.
            if tried.iter().any(|other| self.are_equal(*other, n, free)) {
                continue;
            }
            if !tried.is_empty() {
                if *ties == 0 {
                    break;
                }
                *ties -= 1;
            }
            tried.push(n);
            free[n].add(requests, -1);
            let holds = self.place(later, free, ties);
            free[n].add(requests, 1);
            if !holds {
                return false;
            }
        }
        true
    }

    fn are_equal(&self, a: usize, b: usize, free: &[Amounts]) -> bool {
        let admitted = |t: &PodType<'_>| t.nodes.contains(&a) == t.nodes.contains(&b);
        free[a] == free[b] && self.nodes[a].allocatable == self.nodes[b].allocatable && self.types.iter().all(admitted)
    }

    /// `LeastAllocated`: the mean of the free shares of CPU and memory after placing, in whole hundredths as in Kubernetes.
    fn score(&self, n: usize, free: &Amounts, requests: &Amounts) -> i64 {
        let allocatable = &self.nodes[n].allocatable;
        let part = |all: i64, left: i64| if all <= 0 { 0 } else { (i128::from(left.max(0)) * 100 / i128::from(all)) as i64 };
        (part(allocatable.cpu, free.cpu - requests.cpu) + part(allocatable.memory, free.memory - requests.memory)) / 2
    }
}
