//! The Kubernetes scheduler. It places one pod after the other and knows nothing of the packing that a plan has found, so pods that fit
//! in some packing may not all fit as the scheduler places them.
//!
//! [`Holds::Any`] is proved for every order of pods and every choice of nodes, so it does not depend on how the scheduler scores nodes.
//! [`Holds::Likely`] and orders are found by simulating the default scheduler (`simulation.rs`).

use std::collections::HashSet;

use crate::matching::admits;
use crate::simulation::{Simulation, Workload};
use crate::{Amounts, Demand, Holds, Node, PodGroup};

/// Limit on states for the proof that any order holds. Beyond it the answer is that it does not.
const STATES: usize = 5_000;
/// Largest number of apps of which all orders are tried.
const PERMUTED: usize = 6;
/// Largest number of apps that may be applied at the same time if the simulation places them in every order.
const AT_ONCE: usize = 4;

/// For which orders all pods of `apps`, of which some packing exists, get nodes of a member with these free amounts; and the order in
/// which the apps must be applied for that, if it matters. There is none if no order is expected to do.
pub fn outlook(nodes: &[Node], free: Vec<Amounts>, apps: &[&Demand]) -> (Holds, Option<Vec<usize>>) {
    Arrivals::new(nodes, free, apps, &[]).outlook()
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
    workloads: Vec<Workload<'a>>,
    /// The type of each workload's pods.
    type_of: Vec<usize>,
    /// Pods that are there before the apps but have no nodes yet, as (workload, number).
    starting: Vec<(usize, u32)>,
    /// The pods of each app in the order of creation, as (workload, number).
    apps: Vec<Vec<(usize, u32)>>,
}

impl<'a> Arrivals<'a> {
    /// The pods of `apps` on a member with these free amounts, and pods that are `starting` there, which the free amounts do not count.
    pub fn new(nodes: &'a [Node], free: Vec<Amounts>, apps: &[&'a Demand], starting: &[(&'a PodGroup, u32)]) -> Self {
        let mut arrivals =
            Self { nodes, free, types: Vec::new(), workloads: Vec::new(), type_of: Vec::new(), starting: Vec::new(), apps: Vec::new() };
        for (group, count) in starting {
            let workload = arrivals.workload(group, arrivals.admitted(group));
            arrivals.starting.push((workload, *count));
        }
        for demand in apps {
            let mut pods = Vec::new();
            for group in &demand.groups {
                let admitted = arrivals.admitted(group);
                if group.per_node {
                    pods.extend(admitted.into_iter().map(|n| (arrivals.workload(group, vec![n]), 1)));
                } else if group.replicas > 0 {
                    pods.push((arrivals.workload(group, admitted), group.replicas));
                }
            }
            arrivals.apps.push(pods);
        }
        arrivals
    }

    fn admitted(&self, group: &PodGroup) -> Vec<usize> {
        (0..self.nodes.len()).filter(|n| admits(&self.nodes[*n], group).is_ok()).collect()
    }

    fn workload(&mut self, group: &'a PodGroup, nodes: Vec<usize>) -> usize {
        let known = self.types.iter().position(|t| *t.requests == group.requests && t.nodes == nodes);
        self.type_of.push(known.unwrap_or(self.types.len()));
        if known.is_none() {
            self.types.push(PodType { requests: &group.requests, nodes: nodes.clone() });
        }
        let kind = group.workload.split('/').next().unwrap_or_default();
        let spreads = matches!(kind, "Deployment" | "ReplicaSet" | "StatefulSet" | "ReplicationController");
        self.workloads.push(Workload { requests: &group.requests, nodes, spreads });
        self.workloads.len() - 1
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

    /// [`Self::holds`], and the order of application that it depends on: the given one, unless the simulated scheduler places the pods in
    /// every order; if it does not place them in the given one, another in which it does.
    pub fn outlook(&self) -> (Holds, Option<Vec<usize>>) {
        match self.holds() {
            Holds::Any => (Holds::Any, None),
            Holds::Likely if self.apps.len() < 2 || self.every_order_does() => (Holds::Likely, None),
            Holds::Likely => (Holds::Likely, Some((0..self.apps.len()).collect())),
            Holds::One => (Holds::One, self.order()),
        }
    }

    fn every_order_does(&self) -> bool {
        self.apps.len() <= AT_ONCE && !self.some_order(&mut (0..self.apps.len()).collect::<Vec<_>>(), 0, &|order| !self.simulate(order))
    }

    fn order(&self) -> Option<Vec<usize>> {
        if self.apps.len() < 2 {
            return None;
        }
        let mut order: Vec<usize> = (0..self.apps.len()).collect();
        order.sort_by_key(|app| std::cmp::Reverse(self.largest(*app)));
        if self.simulate(&order) {
            return Some(order);
        }
        order.sort_unstable();
        (order.len() <= PERMUTED && self.some_order(&mut order, 0, &|order| self.simulate(order))).then_some(order)
    }

    /// Whether there is an order that begins like `order` up to position `from` and is as `wanted`; `order` is that one then.
    fn some_order(&self, order: &mut [usize], from: usize, wanted: &dyn Fn(&[usize]) -> bool) -> bool {
        if from == order.len() {
            return wanted(order);
        }
        (from..order.len()).any(|at| {
            order.swap(from, at);
            let found = self.some_order(order, from + 1, wanted);
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
        self.apps[app].iter().filter_map(|(w, _)| share(self.workloads[*w].requests)).max().unwrap_or(0)
    }

    /// Whether all pods get nodes in whatever order they come; `false` if the search for another order is cut short.
    pub fn any_order_holds(&self) -> bool {
        let mut counts = vec![0_u32; self.types.len()];
        self.starting.iter().chain(self.apps.iter().flatten()).for_each(|(w, n)| counts[self.type_of[*w]] += n);
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
        let pods = self.starting.iter().chain(order.iter().flat_map(|app| &self.apps[*app]));
        let pods: Vec<usize> = pods.flat_map(|(w, n)| std::iter::repeat_n(*w, *n as usize)).collect();
        Simulation::new(self.nodes, self.free.clone(), &self.workloads).place(&pods)
    }
}
