//! The ranking of many places for one unit: the few that are worth a look by the network.
//!
//! The places are kept in columns of f32, part by part, so that a step reads only the part that it ranks. A part is an even spread of all
//! places. Invariant: the columns say what the layout says, because each change of a place is followed by [`Lanes::update`].

use std::cmp::Ordering;
use std::ops::Range;

use super::super::graph::{Load, RESOURCES};
use super::super::layout::Layout;
use super::super::objective::Weights;
use super::super::top::Top;

/// The most places of a part. Each step ranks another one.
const RANKED: usize = 128;
/// The number of places taken from each ranking.
const SHORTLIST: usize = 2;
/// Costs of which the least is computed first.
const BLOCK: usize = 16;
/// Cost of a place without room.
const FULL: f32 = 1e9;
/// Used share of a position without a place.
const NO_PLACE: f32 = 2.0;

/// The places in parts.
#[derive(Clone)]
pub(super) struct Lanes {
    parts: usize,
    /// The size of each part, in which the last positions may be empty.
    width: usize,
    /// The place at each position, and the position of each place.
    place: Vec<u32>,
    position: Vec<u32>,
    used: [Vec<f32>; RESOURCES],
    inverse: [Vec<f32>; RESOURCES],
}

impl Lanes {
    /// The places of a layout.
    pub fn of(layout: &Layout<'_>) -> Self {
        let places = layout.instance().places();
        let parts = places.len().div_ceil(RANKED);
        let width = places.len().div_ceil(parts);
        let mut lanes = Self {
            parts,
            width,
            place: vec![0; parts * width],
            position: vec![0; places.len()],
            used: std::array::from_fn(|_| vec![NO_PLACE; parts * width]),
            inverse: std::array::from_fn(|_| vec![1.0; parts * width]),
        };
        for (n, place) in ordered(layout).into_iter().enumerate() {
            let position = n % parts * width + n / parts;
            lanes.place[position] = place;
            lanes.position[place as usize] = position as u32;
            (0..RESOURCES).for_each(|r| lanes.inverse[r][position] = (1.0 / places[place as usize].capacity[r]) as f32);
            lanes.update(layout, place as usize);
        }
        lanes
    }

    /// Takes over what is used on a place.
    pub fn update(&mut self, layout: &Layout<'_>, place: usize) {
        let (position, used) = (self.position[place] as usize, layout.used(place));
        (0..RESOURCES).for_each(|r| self.used[r][position] = used[r] as f32 * self.inverse[r][position]);
    }

    /// The best places of a part for a unit: by the change of the objective, by how well it fills them, and by how much it evens them out.
    pub fn rank(
        &self,
        step: usize,
        ask: Load,
        (mean, deviation): (f64, f64),
        target: f64,
        weights: &Weights,
    ) -> impl Iterator<Item = usize> + '_ {
        let start = step % self.parts * self.width;
        let costs = self.costs(start..start + self.width, ask, (mean, deviation), target, weights);
        let best = costs.map(|costs| cheapest(&costs));
        best.into_iter().flat_map(Top::items).map(move |n| self.place[start + n] as usize)
    }

    /// The three costs of the places of a part.
    fn costs(&self, part: Range<usize>, ask: Load, (mean, deviation): (f64, f64), target: f64, weights: &Weights) -> [[f32; RANKED]; 3] {
        let [used0, used1] = [0, 1].map(|r| &self.used[r][part.clone()]);
        let [inverse0, inverse1] = [0, 1].map(|r| &self.inverse[r][part.clone()]);
        let (ask0, ask1) = (ask[0] as f32, ask[1] as f32);
        let (mean, target) = (mean as f32, target as f32);
        let (per_square, per_skew) = ((weights.cluster / (2.0 * deviation.max(1e-3))) as f32, weights.node as f32);
        let mut costs = [[FULL; RANKED]; 3];
        let [balanced, filling, evening] = &mut costs;
        let out = balanced[..part.len()].iter_mut().zip(&mut filling[..part.len()]).zip(&mut evening[..part.len()]);
        for (((balanced, filling), evening), ((u, v), (iu, iv))) in out.zip(used0.iter().zip(used1).zip(inverse0.iter().zip(inverse1))) {
            let (p, q) = (u + ask0 * iu, v + ask1 * iv);
            let full = if p > 1.0 + 1e-6 || q > 1.0 + 1e-6 { FULL } else { 0.0 };
            let (was, is) = ((u + v) * 0.5, (p + q) * 0.5);
            let skew = (p - q).abs() * 0.5;
            let change = skew - (u - v).abs() * 0.5;
            let (d, e) = (is - mean, was - mean);
            let above = is - target;
            *balanced = per_square * (d * d - e * e) + per_skew * change + full;
            *filling = above.abs() + skew + full;
            *evening = change + if above > 0.0 { above } else { 0.0 } + full;
        }
        costs
    }
}

/// The positions of the least costs. Most blocks have none of them, which their minimum says at once.
fn cheapest(costs: &[f32; RANKED]) -> Top<usize, SHORTLIST> {
    let mut best = Top::above(-FULL / 2.0);
    for (b, block) in costs.as_chunks::<BLOCK>().0.iter().enumerate() {
        let mut least = [FULL; 4];
        for four in block.as_chunks::<4>().0 {
            least.iter_mut().zip(four).for_each(|(least, cost)| *least = if cost < least { *cost } else { *least });
        }
        if least.into_iter().any(|least| -least > best.needed()) {
            block.iter().enumerate().for_each(|(n, cost)| best.offer(-cost, b * BLOCK + n));
        }
    }
    best
}

/// The places by capacity and use, which does not depend on how they are numbered, as long as they differ.
fn ordered(layout: &Layout<'_>) -> Vec<u32> {
    let places = layout.instance().places();
    let key = |p: u32| (places[p as usize].capacity, layout.used(p as usize));
    let mut order: Vec<u32> = (0..places.len() as u32).collect();
    order.sort_by(|a, b| {
        let (a, b) = (key(*a), key(*b));
        a.0.iter().chain(&a.1).zip(b.0.iter().chain(&b.1)).map(|(a, b)| a.total_cmp(b)).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
    });
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::{CallGraph, Grouping, Instance, Limits, Place, Rules, Service, Traffic, Variant};

    /// The three costs as they are defined, in f64; `None` without room.
    fn costs(layout: &Layout<'_>, place: usize, ask: Load, target: f64, weights: &Weights) -> Option<[f64; 3]> {
        let (mean, deviation) = layout.balance();
        let capacity = layout.instance().places()[place].capacity;
        let [p, q] = [0, 1].map(|r| (layout.used(place)[r] + ask[r]) / capacity[r]);
        let (is, was, skew) = ((p + q) / 2.0, layout.load(place), (p - q).abs() / 2.0);
        let square = ((is - mean).powi(2) - (was - mean).powi(2)) / (2.0 * deviation.max(1e-3));
        let change = skew - layout.skew(place);
        let three = [weights.cluster * square + weights.node * change, (is - target).abs() + skew, change + (is - target).max(0.0)];
        (p <= 1.0 && q <= 1.0).then_some(three)
    }

    #[test]
    fn ranking_in_columns_finds_the_best_single_places_of_each_part() {
        let mut rng = fastrand::Rng::with_seed(3);
        let weights = Weights::default();
        for places in [41, 128, 129, 300, 1_000] {
            let services = vec![Service { name: "s".to_owned(), request: [100.0, 150.0], replicas: 1 + 2 * places }];
            let graph = CallGraph::new(services, vec![]).unwrap();
            let capacities: Vec<Load> = (0..places).map(|_| [300.0 + 700.0 * rng.f64(), 300.0 + 700.0 * rng.f64()]).collect();
            let all = capacities.iter().map(|c| Place::new("n", *c, 0)).collect();
            let grouping = Grouping::of(&graph, None, Variant::Merge, &Limits::default()).unwrap();
            let instance = Instance::new(&graph, Traffic::Local, &grouping, all, Rules::default()).unwrap();
            let mut layout = Layout::empty(&instance, weights);
            let (mut lanes, order) = (Lanes::of(&layout), ordered(&layout));
            for step in 0..2 * places {
                let place = rng.usize(0..places);
                if layout.fits(&[step as u32], place) {
                    layout.put(&[step as u32], place);
                    lanes.update(&layout, place);
                }
                let ask = [50.0 + 500.0 * rng.f64(), 50.0 + 500.0 * rng.f64()];
                let got: Vec<usize> = lanes.rank(step, ask, layout.balance(), 0.5, &weights).collect();
                let part = order.iter().skip(step % places.div_ceil(RANKED)).step_by(places.div_ceil(RANKED)).map(|p| *p as usize);
                let all: Vec<[f64; 3]> = part.filter_map(|p| costs(&layout, p, ask, 0.5, &weights)).collect();
                let many = all.len().min(SHORTLIST);
                assert_eq!(got.len(), 3 * many, "{places} places, step {step}");
                for ranking in 0..3 {
                    let mut best: Vec<f64> = all.iter().map(|c| c[ranking]).collect();
                    best.sort_by(f64::total_cmp);
                    for (place, best) in got[ranking * many..].iter().zip(&best[..many]) {
                        let cost = costs(&layout, *place, ask, 0.5, &weights).unwrap()[ranking];
                        assert!((cost - best).abs() <= 1e-4 * best.abs().max(0.1), "{cost} {best}: {places} places, step {step}");
                    }
                }
            }
        }
    }
}
