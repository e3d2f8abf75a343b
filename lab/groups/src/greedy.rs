//! Greedy policies: they place one unit after the other where it scores best, and never move it again.
//!
//! `spread`, `binpack`, `balanced` and `affinity` place containers, as the schedulers do that they model. The `cgs` policies place copies
//! of groups, and split a group only where no place has room for it.

use crate::policy::{Placed, Policy};
use drover_scheduling::groups::{Instance, Layout, Load, Weights};

/// The score of a greedy policy. The place with the least score is chosen, the lower index among equals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greedy {
    /// Docker Swarm's default: fewest containers.
    Spread,
    /// Docker Swarm's binpack: highest load that still fits.
    Binpack,
    /// Kubernetes: NodeResourcesFit (LeastAllocated) and NodeResourcesBalancedAllocation with equal weights.
    Balanced,
    /// As `Balanced`, minus twice the share of the container's calls whose other end is there already (as NetMARKS does with measured
    /// traffic).
    Affinity,
    /// Copies of groups, where the objective is least afterwards: `cgs-greedy`.
    Groups,
    /// Copies of groups, where the load is least: what grouping alone achieves.
    GroupsSpread,
}

impl Policy for Greedy {
    fn name(&self) -> String {
        match self {
            Self::Spread => "spread",
            Self::Binpack => "binpack",
            Self::Balanced => "balanced",
            Self::Affinity => "affinity",
            Self::Groups => "cgs-greedy",
            Self::GroupsSpread => "cgs-spread",
        }
        .to_owned()
    }

    fn place(&self, instance: &Instance, weights: &Weights) -> Placed {
        let mut layout = begin(instance, weights);
        let grouped = matches!(self, Self::Groups | Self::GroupsSpread);
        let score = |l: &Layout<'_>, unit: &[u32], place: usize| self.score(l, unit, place);
        let units = if grouped { heaviest_first(instance, instance.groups()) } else { singles(instance) };
        fill(&mut layout, &units, &score);
        Placed::of(&layout, weights, 0)
    }
}

impl Greedy {
    fn score(&self, layout: &Layout<'_>, unit: &[u32], place: usize) -> f64 {
        match self {
            Self::Spread => layout.on(place).len() as f64,
            Self::Binpack => -layout.load(place),
            Self::GroupsSpread => layout.after(unit, place).0,
            Self::Groups => layout.value_with(unit, place),
            Self::Balanced | Self::Affinity => {
                let (load, skew) = layout.after(unit, place);
                let kubernetes = (load + skew) / 2.0;
                let calls: f64 = unit.iter().flat_map(|x| layout.instance().near(*x)).map(|(_, w)| w).sum();
                if *self == Self::Balanced || calls == 0.0 { kubernetes } else { kubernetes - 2.0 * layout.calls_to(unit, place) / calls }
            }
        }
    }
}

/// The layout that a policy starts from: empty or, with a budget of moves, what runs already.
pub(super) fn begin<'i>(instance: &'i Instance, weights: &Weights) -> Layout<'i> {
    match instance.rules().moves {
        Some(_) => Layout::of(instance, *weights, instance.now()),
        None => Layout::empty(instance, *weights),
    }
}

/// Each container as a unit of its own, copy by copy.
pub(super) fn singles(instance: &Instance) -> Vec<Vec<u32>> {
    (0..instance.containers().len() as u32).map(|c| vec![c]).collect()
}

/// Units in order of decreasing demand, because large units find room only at first.
pub(super) fn heaviest_first(instance: &Instance, units: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let mut all: Load = [0.0; 2];
    instance.places().iter().for_each(|p| (0..2).for_each(|r| all[r] += p.capacity[r]));
    let weight =
        |u: &Vec<u32>| -> f64 { u.iter().map(|c| instance.containers()[*c as usize].request).map(|q| q[0] / all[0] + q[1] / all[1]).sum() };
    let mut units: Vec<(f64, Vec<u32>)> = units.iter().map(|u| (weight(u), u.clone())).collect();
    units.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    units.into_iter().map(|(_, u)| u).collect()
}

/// Puts each unit on its best place. A unit that fits nowhere is split into containers, and a container that fits nowhere is left out.
pub(super) fn fill(layout: &mut Layout<'_>, units: &[Vec<u32>], score: &dyn Fn(&Layout<'_>, &[u32], usize) -> f64) {
    for unit in units {
        let open: Vec<u32> = unit.iter().copied().filter(|x| layout.at(*x).is_none()).collect();
        if open.is_empty() {
            continue;
        }
        if let Some(place) = best(layout, &open, score) {
            layout.put(&open, place);
        } else if open.len() > 1 {
            let alone: Vec<Vec<u32>> = open.iter().map(|x| vec![*x]).collect();
            fill(layout, &alone, score);
        }
    }
}

/// The place with the least score among those where the unit fits.
pub(super) fn best(layout: &Layout<'_>, unit: &[u32], score: &dyn Fn(&Layout<'_>, &[u32], usize) -> f64) -> Option<usize> {
    let mut best: Option<(f64, usize)> = None;
    for place in 0..layout.instance().places().len() {
        if layout.fits(unit, place) {
            let s = score(layout, unit, place);
            if best.is_none_or(|(least, _)| s < least) {
                best = Some((s, place));
            }
        }
    }
    best.map(|(_, place)| place)
}
