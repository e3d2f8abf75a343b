//! `exact`: branch and bound over containers, for instances of about 15 containers. The other policies are compared with it.
//!
//! A branch is pruned when the calls that already leave their place cost as much as the best placement found. Containers are ordered by
//! their heaviest call to those before them, so that calls are cut early. Of empty places that are alike only one is tried.

use serde::{Deserialize, Serialize};

use crate::annealing::{SearchBudget, Start, anneal};
use crate::policy::{Placed, Policy};
use drover_scheduling::groups::{Instance, Layout, Weights};

/// How the term sigma_cluster is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviationForm {
    /// The standard deviation of the loads, as in the objective.
    #[default]
    Deviation,
    /// Their mean absolute deviation, which a mixed-integer linear program (MILP) can express exactly; used only to compare with one.
    MeanAbsolute,
}

/// The branch-and-bound policy.
#[derive(Clone, Copy, Debug)]
pub struct Exact {
    /// How the minimised objective measures sigma_cluster.
    pub form: DeviationForm,
    /// Whether copies of groups are placed as a whole.
    pub grouped: bool,
    /// Number of nodes of the search tree after which the proof is given up.
    pub limit: u64,
}

impl Default for Exact {
    fn default() -> Self {
        Self { form: DeviationForm::Deviation, grouped: false, limit: u64::MAX }
    }
}

/// The best placement found, and whether it is proven optimal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Proof {
    pub placed: Placed,
    /// The objective in the requested form.
    pub value: f64,
    /// Whether the whole tree was searched, so that no placement is better.
    pub proven: bool,
}

impl Policy for Exact {
    fn name(&self) -> String {
        "exact".to_owned()
    }

    fn place(&self, instance: &Instance, weights: &Weights) -> Placed {
        self.prove(instance, weights).placed
    }
}

impl Exact {
    /// The optimum over all complete placements. If there is none, the placement of the annealing is returned, not proven.
    pub fn prove(&self, instance: &Instance, weights: &Weights) -> Proof {
        let start = anneal(instance, weights, &SearchBudget::Moves(20_000), 0, Start::Groups);
        let mut layout = match instance.rules().moves {
            Some(_) => Layout::of(instance, *weights, instance.now()),
            None => Layout::empty(instance, *weights),
        };
        // Running containers are not moved under a budget of moves: the budget would have to be branched on.
        let open = |unit: &Vec<u32>| unit.iter().all(|c| layout.at(*c).is_none());
        let units: Vec<Vec<u32>> = if self.grouped { instance.groups().to_vec() } else { crate::greedy::singles(instance) };
        let units = ordered(instance, units.into_iter().filter(open).collect());
        let feasible = start.comparable(instance, weights, self.form, self.grouped);
        let mut tree = Tree {
            form: self.form,
            weights,
            units,
            best: feasible.unwrap_or(f64::INFINITY),
            at: start.at.clone(),
            left: self.limit,
            seen: 0,
        };
        let proven = tree.branch(&mut layout, 0);
        let value = tree.best;
        let (at, seen) = (tree.at, tree.seen);
        let placed = Placed::of(&Layout::of(instance, *weights, &at), weights, seen);
        Proof { placed, value, proven: proven && value.is_finite() }
    }
}

impl Placed {
    /// The value in the given form, if this is a complete placement that the proof would consider.
    fn comparable(&self, instance: &Instance, weights: &Weights, form: DeviationForm, grouped: bool) -> Option<f64> {
        let whole = |g: &Vec<u32>| g.iter().all(|c| self.at[*c as usize] == self.at[g[0] as usize]);
        let considered = self.unplaced.is_empty() && instance.rules().moves.is_none() && (!grouped || instance.groups().iter().all(whole));
        considered.then(|| value(&Layout::of(instance, *weights, &self.at), weights, form))
    }
}

/// The objective of a layout in the given form.
pub(super) fn value(layout: &Layout<'_>, weights: &Weights, form: DeviationForm) -> f64 {
    match form {
        DeviationForm::Deviation => layout.value(),
        DeviationForm::MeanAbsolute => {
            let m = layout.instance().places().len();
            let mean = (0..m).map(|p| layout.load(p)).sum::<f64>() / m as f64;
            let spread = (0..m).map(|p| (layout.load(p) - mean).abs()).sum::<f64>() / m as f64;
            let skew = (0..m).map(|p| layout.skew(p)).sum::<f64>() / m as f64;
            weights.cluster * spread + weights.node * skew + bound(layout, weights)
        }
    }
}

/// The cost of the calls that already leave their place, a lower bound for every completion.
fn bound(layout: &Layout<'_>, weights: &Weights) -> f64 {
    let total = layout.instance().total_calls();
    if total > 0.0 { weights.container * layout.calls() / total } else { 0.0 }
}

/// Orders the units: next is always the one with the heaviest calls to those before it.
fn ordered(instance: &Instance, mut units: Vec<Vec<u32>>) -> Vec<Vec<u32>> {
    let mut order: Vec<Vec<u32>> = Vec::new();
    let mut taken = std::collections::BTreeSet::new();
    while !units.is_empty() {
        let pull = |unit: &Vec<u32>| -> (f64, f64) {
            let near = || unit.iter().flat_map(|c| instance.near(*c));
            (near().filter(|(n, _)| taken.contains(n)).map(|(_, w)| w).sum(), near().map(|(_, w)| w).sum())
        };
        let next = (0..units.len()).max_by(|a, b| {
            let (p, q) = (pull(&units[*a]), pull(&units[*b]));
            p.0.total_cmp(&q.0).then(p.1.total_cmp(&q.1)).then(b.cmp(a))
        });
        let unit = units.remove(next.unwrap_or(0));
        taken.extend(unit.iter().copied());
        order.push(unit);
    }
    order
}

/// The search tree, in which the units are placed one after the other.
struct Tree<'w> {
    form: DeviationForm,
    weights: &'w Weights,
    units: Vec<Vec<u32>>,
    /// The least objective so far, and the placement that has it.
    best: f64,
    at: Vec<Option<usize>>,
    /// How many nodes of the tree may still be visited, and how many have been.
    left: u64,
    seen: u64,
}

impl Tree<'_> {
    /// Searches the subtree. Returns false if the limit ended the search.
    fn branch(&mut self, layout: &mut Layout<'_>, depth: usize) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        self.seen += 1;
        let Some(unit) = self.units.get(depth).cloned() else {
            let v = value(layout, self.weights, self.form);
            if v < self.best - 1e-12 {
                (self.best, self.at) = (v, layout.placement());
            }
            return true;
        };
        // Places that keep most calls together come first, because good placements found early prune the rest.
        let mut places: Vec<(f64, usize)> = Vec::new();
        for place in 0..layout.instance().places().len() {
            if layout.fits(&unit, place) && !self.tried_alike(layout, place) {
                places.push((layout.calls_away(&unit, place), place));
            }
        }
        places.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        for (_, place) in places {
            layout.put(&unit, place);
            let worth = bound(layout, self.weights) < self.best - 1e-12;
            let finished = !worth || self.branch(layout, depth + 1);
            layout.take(&unit);
            if !finished {
                return false;
            }
        }
        true
    }

    /// Whether an identical empty place comes before this one.
    fn tried_alike(&self, layout: &Layout<'_>, place: usize) -> bool {
        let instance = layout.instance();
        if !layout.on(place).is_empty() || instance.has_distances() || !instance.rules().per_domain.is_empty() {
            return false;
        }
        let this = &instance.places()[place];
        (0..place).any(|p| {
            let other = &instance.places()[p];
            layout.on(p).is_empty() && other.capacity == this.capacity && other.taken == this.taken
        })
    }
}
