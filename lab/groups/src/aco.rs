//! `aco`: ant colony optimisation, the strongest baseline of the paper.
//!
//! The published version balances resources only and ignores calls; `aco-groups` places groups by the whole objective, which is a fairer
//! comparison. Constants: Hussein et al., J. Cloud Computing 2019, table 4, with alpha 1.

use crate::greedy::{begin, singles};
use crate::policy::{Placed, Policy};
use drover_scheduling::groups::{Instance, Layout, Weights};

const ANTS: usize = 8;
const ITERATIONS: usize = 100;
const EVAPORATION: f64 = 0.2;

/// Ant colony optimisation: ants place unit by unit, by pheromone and by the load that a place would have.
#[derive(Clone, Copy, Debug)]
pub struct Aco {
    /// Place copies of groups by the objective f; otherwise containers by sigma_cluster + sigma_node.
    pub grouped: bool,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Policy for Aco {
    fn name(&self) -> String {
        if self.grouped { "aco-groups" } else { "aco" }.to_owned()
    }

    fn place(&self, instance: &Instance, weights: &Weights) -> Placed {
        let judged = if self.grouped { *weights } else { Weights { cluster: 1.0, node: 1.0, container: 0.0 } };
        let units = if self.grouped { instance.groups().to_vec() } else { singles(instance) };
        let places = instance.places().len();
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let mut pheromone = vec![1.0_f64; units.len() * places];
        let mut best: Option<(usize, f64, Layout<'_>)> = None;
        for _ in 0..ITERATIONS {
            for _ in 0..ANTS {
                let layout = walk(begin(instance, &judged), &units, &pheromone, &mut rng);
                let left = layout.placement().iter().filter(|p| p.is_none()).count();
                let value = layout.value();
                if best.as_ref().is_none_or(|(l, v, _)| (left, value) < (*l, *v)) {
                    best = Some((left, value, layout));
                }
            }
            if let Some((_, value, layout)) = &best {
                pheromone.iter_mut().for_each(|p| *p = (*p * (1.0 - EVAPORATION)).max(1e-3));
                for (u, unit) in units.iter().enumerate() {
                    if let Some(place) = layout.at(unit[0]) {
                        pheromone[u * places + place] += EVAPORATION / (value + 1e-3);
                    }
                }
            }
        }
        let layout = best.map_or_else(|| begin(instance, weights), |(_, _, layout)| layout);
        Placed::of(&layout, weights, (ANTS * ITERATIONS) as u64)
    }
}

/// One ant's placement. A unit that fits nowhere as a whole is placed container by container.
fn walk<'i>(mut layout: Layout<'i>, units: &[Vec<u32>], pheromone: &[f64], rng: &mut fastrand::Rng) -> Layout<'i> {
    let places = layout.instance().places().len();
    for (u, unit) in units.iter().enumerate() {
        let open: Vec<u32> = unit.iter().copied().filter(|x| layout.at(*x).is_none()).collect();
        if !open.is_empty() && !step(&mut layout, &open, &pheromone[u * places..(u + 1) * places], rng) && open.len() > 1 {
            for x in open {
                step(&mut layout, &[x], &pheromone[u * places..(u + 1) * places], rng);
            }
        }
    }
    layout
}

/// Places the unit at random in proportion to the attraction of each place with room. Returns false if no place has room.
fn step(layout: &mut Layout<'_>, unit: &[u32], pheromone: &[f64], rng: &mut fastrand::Rng) -> bool {
    let attraction = |(place, p): (usize, &f64)| {
        // The sum keeps the attraction of an empty place finite; beta is 2.
        let eta = 1.0 / (0.05 + layout.after(unit, place).0);
        if layout.fits(unit, place) { p * eta * eta } else { 0.0 }
    };
    let attractions: Vec<f64> = pheromone.iter().enumerate().map(attraction).collect();
    let sum: f64 = attractions.iter().sum();
    if sum <= 0.0 {
        return false;
    }
    let mut left = rng.f64() * sum;
    let chosen = attractions.iter().position(|a| {
        left -= a;
        *a > 0.0 && left <= 0.0
    });
    let place = chosen.or_else(|| attractions.iter().rposition(|a| *a > 0.0));
    place.is_some_and(|p| {
        layout.put(unit, p);
        true
    })
}
