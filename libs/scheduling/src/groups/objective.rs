//! The objective of a placement: the weighted sum of three terms; lower is better.
//!
//! U_i^r is the used share of resource r on place i:
//!
//! ```text
//! L_i = mean_r U_i^r          cluster   = std_i L_i                    (imbalance of load between places)
//! s_i = std_r U_i^r           node      = mean_i s_i                   (imbalance of CPU and memory on a place)
//!                             container = calls between places / all   (share of calls that leave their place)
//! ```
//!
//! The paper omits these formulas; docs/how-to/group-placement.md gives the reasons for this choice. Standard deviations are of the
//! population.

use serde::{Deserialize, Serialize};

use super::graph::{Load, RESOURCES};
use super::instance::Instance;

/// The weights of the terms: alpha, beta and gamma of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Weights {
    /// Weight of the imbalance between places.
    pub cluster: f64,
    /// Weight of the imbalance between the resources of a place.
    pub node: f64,
    /// Weight of calls between places.
    pub container: f64,
}

impl Default for Weights {
    /// One third each, since the paper gives no weights. In an almost empty cluster this makes "all on one node" nearly optimal.
    fn default() -> Self {
        Self { cluster: 1.0 / 3.0, node: 1.0 / 3.0, container: 1.0 / 3.0 }
    }
}

impl Weights {
    /// Divides each weight by the value of its term in `spread`, a placement of the same instance, so that each term of `spread` counts its
    /// weight.
    #[must_use]
    pub fn scaled(self, spread: &Terms) -> Self {
        let by = |weight: f64, value: f64| if value > 1e-12 { weight / value } else { weight };
        Self {
            cluster: by(self.cluster, spread.cluster),
            node: by(self.node, spread.node),
            container: by(self.container, spread.container),
        }
    }
}

/// The terms of the objective for a placement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// sigma_cluster, in [0, 0.5] for loads of at most 1.
    pub cluster: f64,
    /// Another interpretation of sigma_cluster: mean_r std_i U_i^r, which is never smaller. Reported, not minimised.
    pub cluster_by_resource: f64,
    /// sigma_node, in [0, 0.5].
    pub node: f64,
    /// sigma_node as the mean over used places only. Reported, not minimised.
    pub node_in_use: f64,
    /// sigma_container, in [0, 1]: calls between places as a share of all calls. A call counts only if both ends are placed.
    pub container: f64,
    /// The calls between places, in the unit of the graph.
    pub calls: f64,
}

impl Terms {
    /// The value of the objective.
    pub fn value(&self, w: &Weights) -> f64 {
        w.cluster * self.cluster + w.node * self.node + w.container * self.container
    }

    /// Computes the terms of a placement from scratch. The incremental sums of a layout must agree with them.
    pub fn of(instance: &Instance, at: &[Option<usize>]) -> Self {
        let m = instance.places().len() as f64;
        let used = used(instance, at);
        let shares: Vec<Load> = used.iter().zip(instance.places()).map(|(u, p)| std::array::from_fn(|r| u[r] / p.capacity[r])).collect();
        let loads: Vec<f64> = shares.iter().map(|u| mean(u)).collect();
        let skews: Vec<f64> = shares.iter().map(|u| deviation(u)).collect();
        let in_use = loads.iter().filter(|l| **l > 0.0).count().max(1) as f64;
        let by_resource =
            (0..RESOURCES).map(|r| deviation(&shares.iter().map(|u| u[r]).collect::<Vec<_>>())).sum::<f64>() / RESOURCES as f64;
        let mut calls = 0.0;
        for (a, place) in at.iter().enumerate() {
            for (b, w) in instance.near(a as u32).iter().filter(|(b, _)| (*b as usize) > a) {
                if let (Some(p), Some(q)) = (*place, at[*b as usize]) {
                    calls += w * instance.apart(p, q);
                }
            }
        }
        let total = instance.total_calls();
        Self {
            cluster: deviation(&loads),
            cluster_by_resource: by_resource,
            node: skews.iter().sum::<f64>() / m,
            node_in_use: skews.iter().sum::<f64>() / in_use,
            container: if total > 0.0 { calls / total } else { 0.0 },
            calls,
        }
    }
}

/// The amounts used on each place, by others and by the containers placed there.
pub fn used(instance: &Instance, at: &[Option<usize>]) -> Vec<Load> {
    let mut used: Vec<Load> = instance.places().iter().map(|p| p.taken).collect();
    for (c, place) in at.iter().enumerate() {
        if let Some(p) = place {
            (0..RESOURCES).for_each(|r| used[*p][r] += instance.containers()[c].request[r]);
        }
    }
    used
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len().max(1) as f64
}

/// The standard deviation of a population.
pub fn deviation(of: &[f64]) -> f64 {
    let m = mean(of);
    mean(&of.iter().map(|x| (x - m) * (x - m)).collect::<Vec<_>>()).sqrt()
}
