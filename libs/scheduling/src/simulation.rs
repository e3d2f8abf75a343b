//! The default scheduler of Kubernetes, simulated: pods one after another, each on the node with the highest score; of nodes with equal
//! scores it may choose any, so all are tried.
//!
//! Scores and weights are those of the default profile of Kubernetes 1.36: `NodeResourcesFit` (least allocated),
//! `NodeResourcesBalancedAllocation`, and `PodTopologySpread` with its built-in constraints, which keep the pods of one workload apart.
//! Other plugins (images, preferred affinity, preferred taints) and settings that differ from the default are not simulated.

use crate::{Amounts, Node};

/// Limit on the choices between nodes of equal score. Beyond it the simulation takes the first one.
const TIES: u32 = 2_000;
const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// What the scheduler knows of the pods of one workload.
pub(crate) struct Workload<'a> {
    pub requests: &'a Amounts,
    /// The nodes that admit its pods.
    pub nodes: Vec<usize>,
    /// A controller owns its pods, so that the scheduler keeps them apart.
    pub spreads: bool,
}

/// Pods that are placed one after another.
pub(crate) struct Simulation<'s, 'a> {
    nodes: &'s [Node],
    workloads: &'s [Workload<'a>],
    /// By node, the number of its zone.
    zones: Vec<Option<usize>>,
    /// By node, whether it is a domain of its own.
    hosts: Vec<bool>,
    free: Vec<Amounts>,
    /// Pods by workload and node.
    placed: Vec<u32>,
    ties: u32,
}

impl<'s, 'a> Simulation<'s, 'a> {
    pub fn new(nodes: &'s [Node], free: Vec<Amounts>, workloads: &'s [Workload<'a>]) -> Self {
        let mut names: Vec<&str> = Vec::new();
        let mut number = |node: &'s Node| {
            let name = node.labels.get(ZONE)?;
            Some(names.iter().position(|known| *known == name).unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            }))
        };
        let zones = nodes.iter().map(&mut number).collect();
        let hosts = nodes.iter().map(|node| node.labels.get(HOSTNAME).is_some()).collect();
        Self { nodes, workloads, zones, hosts, free, placed: vec![0; workloads.len() * nodes.len()], ties: TIES }
    }

    /// Whether all pods get nodes, given as workloads in the order in which the scheduler sees them.
    pub fn place(&mut self, pods: &[usize]) -> bool {
        let Some((workload, later)) = pods.split_first() else { return true };
        let (workload, requests) = (*workload, self.workloads[*workload].requests);
        let fitting: Vec<usize> = self.workloads[workload].nodes.iter().copied().filter(|n| self.free[*n].fits(requests)).collect();
        let scores = self.scores(workload, &fitting);
        let Some(best) = scores.iter().copied().max() else { return false };
        let mut tried: Vec<usize> = Vec::new();
        for (n, _) in fitting.into_iter().zip(scores).filter(|(_, score)| *score == best) {
            // Nodes that are equal to the pods that come lead to the same result.
            if tried.iter().any(|other| self.are_equal(*other, n)) {
                continue;
            }
            if !tried.is_empty() {
                if self.ties == 0 {
                    break;
                }
                self.ties -= 1;
            }
            tried.push(n);
            let at = workload * self.nodes.len() + n;
            self.free[n].add(requests, -1);
            self.placed[at] += 1;
            let holds = self.place(later);
            self.placed[at] -= 1;
            self.free[n].add(requests, 1);
            if !holds {
                return false;
            }
        }
        true
    }

    fn are_equal(&self, a: usize, b: usize) -> bool {
        let count = self.nodes.len();
        let treated = |(w, workload): (usize, &Workload<'_>)| {
            workload.nodes.contains(&a) == workload.nodes.contains(&b) && self.placed[w * count + a] == self.placed[w * count + b]
        };
        self.free[a] == self.free[b]
            && self.nodes[a].allocatable == self.nodes[b].allocatable
            && (self.zones[a], self.hosts[a]) == (self.zones[b], self.hosts[b])
            && self.workloads.iter().enumerate().all(treated)
    }

    /// The score of each of these nodes, all of which have room.
    fn scores(&self, workload: usize, fitting: &[usize]) -> Vec<i64> {
        let Workload { requests, spreads, .. } = &self.workloads[workload];
        let apart = if *spreads { self.apart(workload, fitting) } else { vec![0; fitting.len()] };
        fitting.iter().zip(apart).map(|(n, apart)| self.least_allocated(*n, requests) + self.balance(*n, requests) + 2 * apart).collect()
    }

    /// The mean of the free shares of CPU and memory after placing, in whole hundredths as in Kubernetes.
    fn least_allocated(&self, n: usize, requests: &Amounts) -> i64 {
        let (allocatable, free) = (&self.nodes[n].allocatable, &self.free[n]);
        let part = |all: i64, left: i64| if all <= 0 { 0 } else { (i128::from(left.max(0)) * 100 / i128::from(all)) as i64 };
        (part(allocatable.cpu, free.cpu - requests.cpu) + part(allocatable.memory, free.memory - requests.memory)) / 2
    }

    /// Whether the shares of CPU and memory come closer together: 75 if nothing changes.
    fn balance(&self, n: usize, requests: &Amounts) -> i64 {
        if requests.cpu == 0 && requests.memory == 0 {
            return 0;
        }
        let (allocatable, free) = (&self.nodes[n].allocatable, &self.free[n]);
        let used = |all: i64, left: i64| if all <= 0 { 0.0 } else { ((all - left) as f64 / all as f64).min(1.0) };
        let even = |free: [i64; 2]| {
            let apart = used(allocatable.cpu, free[0]) - used(allocatable.memory, free[1]);
            ((1.0 - (apart / 2.0).abs()) * 100.0) as i64
        };
        let (with, without) = (even([free.cpu - requests.cpu, free.memory - requests.memory]), even([free.cpu, free.memory]));
        50 + (50 + with - without) / 2
    }

    /// How few pods of the same workload are on each node and in its zone, from 0 to 100.
    fn apart(&self, workload: usize, fitting: &[usize]) -> Vec<i64> {
        let mut domains: Vec<Option<usize>> = fitting.iter().map(|n| self.zones[*n]).collect();
        domains.sort_unstable();
        domains.dedup();
        let of = |n: usize| f64::from(self.placed[workload * self.nodes.len() + n]);
        let mut in_zone = vec![0.0; self.nodes.len()];
        (0..self.nodes.len()).for_each(|n| self.zones[n].into_iter().for_each(|zone| in_zone[zone] += of(n)));
        let weight = |domains: usize| (domains as f64 + 2.0).ln();
        let (by_host, by_zone) = (weight(fitting.len()), weight(domains.len()));
        // The summands without a factor are the tolerated differences, less one: 3 between nodes, 5 between zones.
        let count = |n: usize| {
            let host = if self.hosts[n] { of(n) * by_host + 2.0 } else { 0.0 };
            (host + self.zones[n].map_or(0.0, |zone| in_zone[zone] * by_zone + 4.0)).round() as i64
        };
        let counts: Vec<i64> = fitting.iter().map(|n| count(*n)).collect();
        let (most, fewest) = (counts.iter().copied().max().unwrap_or(0), counts.iter().copied().min().unwrap_or(0));
        counts.into_iter().map(|count| if most == 0 { 100 } else { 100 * (most + fewest - count) / most }).collect()
    }
}
