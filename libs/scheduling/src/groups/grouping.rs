//! Which services belong together: a partition of the services into groups of at most rho that call each other most.
//!
//! The published pseudo-code cannot be run as printed; [`Variant::Merge`] is its prose (Kruskal with a bound on the size),
//! [`Variant::Attach`] the printed form taken literally, [`Variant::Exact`] the best partition there is.
//! A group says what should be together, never what must be: policies may break groups.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::graph::{CallGraph, Load, RESOURCES};

/// Above this many services the exact partition is refused.
pub const EXACT_SERVICES: usize = 20;

/// How groups are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// Heaviest edge first; two groups are merged while the size allows.
    #[default]
    Merge,
    /// Heaviest edge first; single services are attached, two groups are never merged.
    Attach,
    /// The least call weight between groups, for at most [`EXACT_SERVICES`] services.
    Exact,
}

/// What a group must obey beside its size.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// What nodes can hold; a group must fit at least one of them. Empty: not asked.
    pub nodes: Vec<Load>,
    /// Pairs of services (lower index first) that must not share a node.
    pub apart: BTreeSet<(usize, usize)>,
}

/// Why no groups were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupingError {
    /// The exact partition of too many services.
    #[error("the exact partition is for at most {EXACT_SERVICES} services, here are {0}; use the variant `merge`")]
    TooMany(usize),
}

/// A partition of the services.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Grouping {
    /// Each group's services ascending, groups by their smallest service.
    pub groups: Vec<Vec<usize>>,
}

impl Grouping {
    /// Groups of at most `rho` services; none, 0 or 1: each service alone.
    ///
    /// # Errors
    /// [`GroupingError::TooMany`] for the exact variant only.
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

    /// Each service alone.
    pub fn singletons(graph: &CallGraph) -> Self {
        Self { groups: (0..graph.services().len()).map(|s| vec![s]).collect() }
    }

    /// The group of each service.
    pub fn index(&self) -> Vec<usize> {
        let mut of = vec![0; self.groups.iter().map(Vec::len).sum()];
        for (g, members) in self.groups.iter().enumerate() {
            members.iter().for_each(|s| of[*s] = g);
        }
        of
    }

    /// Call weight between groups as a share of all, in [0, 1].
    pub fn between(&self, graph: &CallGraph) -> f64 {
        let of = self.index();
        let total = graph.total();
        // Begun at 0: a sum of nothing is -0.
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

/// Both greedy variants: ties are broken by (i, j), so the order in which calls were given does not matter.
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
