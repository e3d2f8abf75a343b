//! Grouping: a partition of the services into groups of at most rho services that call each other most.
//!
//! The published pseudo-code is contradictory. [`Variant::Merge`] implements its description in the text (Kruskal with a limit on the
//! size), [`Variant::Attach`] the printed code taken literally, [`Variant::Exact`] an optimal partition.
//! A group is a preference, not a constraint: policies may split groups.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::graph::{CallGraph, Load, RESOURCES};

/// Limit on the number of services for the exact partition.
pub const EXACT_SERVICES: usize = 20;

/// How groups are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// Heaviest edge first; two groups are merged if the size allows it.
    #[default]
    Merge,
    /// Heaviest edge first; single services are attached, two groups are never merged.
    Attach,
    /// A partition with the least call weight between groups, for at most [`EXACT_SERVICES`] services.
    Exact,
}

/// Constraints on a group beside its size.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Capacities of nodes; a group must fit on at least one of them. Empty: not checked.
    pub nodes: Vec<Load>,
    /// Pairs of services (lower index first) that must not share a node.
    pub apart: BTreeSet<(usize, usize)>,
}

/// Why there is no grouping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupingError {
    /// There are too many services for the exact partition.
    #[error("the exact partition supports at most {EXACT_SERVICES} services, but there are {0}; use the variant `merge`")]
    TooMany(usize),
}

/// A partition of the services.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Grouping {
    /// The services of each group in ascending order, the groups sorted by their first service.
    pub groups: Vec<Vec<usize>>,
}

impl Grouping {
    /// Makes groups of at most `rho` services; `None`, 0 or 1: each service alone.
    ///
    /// # Errors
    /// [`GroupingError::TooMany`], only for the exact variant.
    pub fn of(graph: &CallGraph, rho: Option<usize>, variant: Variant, limits: &Limits) -> Result<Self, GroupingError> {
        let rho = rho.unwrap_or(1).max(1);
        let may = |members: &[usize]| members.len() <= rho && limits.allow(graph, members);
        match variant {
            Variant::Merge => Ok(joined(graph, may, true)),
            Variant::Attach => Ok(joined(graph, may, false)),
            Variant::Exact if graph.services().len() > EXACT_SERVICES => Err(GroupingError::TooMany(graph.services().len())),
            Variant::Exact => Ok(Self::ordered(super::partition::best(graph, rho, may))),
        }
    }

    /// Makes a group of each service.
    pub fn singletons(graph: &CallGraph) -> Self {
        Self { groups: (0..graph.services().len()).map(|s| vec![s]).collect() }
    }

    /// The index of each service's group.
    pub fn index(&self) -> Vec<usize> {
        let mut of = vec![0; self.groups.iter().map(Vec::len).sum()];
        for (g, members) in self.groups.iter().enumerate() {
            members.iter().for_each(|s| of[*s] = g);
        }
        of
    }

    /// The share of all calls that are between groups, in [0, 1].
    pub fn between(&self, graph: &CallGraph) -> f64 {
        let of = self.index();
        let total = graph.total();
        // The fold starts at 0, because an empty sum is -0.
        let between = graph.calls().iter().filter(|c| of[c.from] != of[c.to]).fold(0.0, |sum, c| sum + c.calls);
        if total == 0.0 { 0.0 } else { between / total }
    }

    fn ordered(mut groups: Vec<Vec<usize>>) -> Self {
        groups.iter_mut().for_each(|g| g.sort_unstable());
        groups.retain(|g| !g.is_empty());
        groups.sort_unstable();
        Self { groups }
    }
}

impl Limits {
    fn allow(&self, graph: &CallGraph, members: &[usize]) -> bool {
        let mut sum = [0.0; RESOURCES];
        for s in members {
            (0..RESOURCES).for_each(|r| sum[r] += graph.services()[*s].request[r]);
        }
        let fits = self.nodes.is_empty() || self.nodes.iter().any(|n| (0..RESOURCES).all(|r| sum[r] <= n[r] + 1e-9));
        fits && (self.apart.is_empty() || !members.iter().any(|a| members.iter().any(|b| self.apart.contains(&(*a, *b)))))
    }
}

/// Both greedy variants. Ties are broken by (i, j), so the order of the calls has no influence.
fn joined(graph: &CallGraph, may: impl Fn(&[usize]) -> bool, merge: bool) -> Grouping {
    let mut edges = graph.weights();
    edges.sort_by(|a, b| b.2.total_cmp(&a.2).then((a.0, a.1).cmp(&(b.0, b.1))));
    let mut of: Vec<usize> = (0..graph.services().len()).collect();
    let mut groups: Vec<Vec<usize>> = of.iter().map(|s| vec![*s]).collect();
    for (i, j, _) in edges {
        let (a, b) = (of[i], of[j]);
        if a == b || (!merge && groups[a].len() > 1 && groups[b].len() > 1) {
            continue;
        }
        let together = [groups[a].as_slice(), &groups[b]].concat();
        if may(&together) {
            together.iter().for_each(|s| of[*s] = a);
            groups[b].clear();
            groups[a] = together;
        }
    }
    Grouping::ordered(groups)
}
