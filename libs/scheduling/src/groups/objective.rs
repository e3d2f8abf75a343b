//! What a placement is worth: the weighted sum of three numbers, all smaller is better.
//!
//! With U_i^r the used share of resource r on place i:
//!
//! ```text
//! L_i = mean_r U_i^r          cluster   = std_i L_i                    (are places equally loaded)
//! s_i = std_r U_i^r           node      = mean_i s_i                   (is a place's CPU used as much as its memory)
//!                             container = calls between places / all   (do those who talk sit together)
//! ```
//!
//! The paper omits these formulas; docs/how-to/group-placement.md says why these. Standard deviations are of the population.

use serde::{Deserialize, Serialize};

use super::graph::{Load, RESOURCES};
use super::instance::Instance;

/// alpha, beta, gamma.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Weights {
    /// Of the balance between places.
    pub cluster: f64,
    /// Of the balance between the resources of a place.
    pub node: f64,
    /// Of calls between places.
    pub container: f64,
}

impl Default for Weights {
    /// A third each; the paper gives none. In an almost empty cluster this makes "all on one node" nearly optimal.
    fn default() -> Self {
        Self { cluster: 1.0 / 3.0, node: 1.0 / 3.0, container: 1.0 / 3.0 }
    }
}

impl Weights {
    /// Each term divided by its value under `spread` on the same instance, so that `spread` is worth 1.
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

/// The value of a placement, term by term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// sigma_cluster, in [0, 0.5] for loads of at most 1.
    pub cluster: f64,
    /// The other reading of sigma_cluster, mean_r std_i U_i^r; never smaller. Reported, not minimised.
    pub cluster_by_resource: f64,
    /// sigma_node, in [0, 0.5].
    pub node: f64,
    /// The same as mean over the places in use only. Reported, not minimised.
    pub node_in_use: f64,
    /// sigma_container, in [0, 1]; only calls whose ends are both placed are counted, of all calls.
    pub container: f64,
    /// The calls between places themselves, in the unit of the graph.
    pub calls: f64,
}

impl Terms {
    /// The objective f.
    pub fn value(&self, w: &Weights) -> f64 {
        w.cluster * self.cluster + w.node * self.node + w.container * self.container
    }

    /// From scratch, for any placement: the definition that the incremental sums of a layout must agree with.
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

/// What is used on each place, by others and by the containers put there.
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
