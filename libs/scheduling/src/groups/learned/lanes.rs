//! The ranking of many places for one unit: the few that are worth a look by the network.
//!
//! The places are kept in columns of f32, part by part, so that a step reads only the part that it ranks. A part is an even spread of all
//! places. Many units in a row ask for the same, so what only depends on a place and on that is kept until the place changes.
//!
//! Invariant: the columns say what the layout says, because each change of a place is followed by [`Lanes::update`].

use std::cmp::Ordering;

use super::super::graph::{Load, RESOURCES};
use super::super::layout::Layout;
use super::super::objective::Weights;
use super::super::top::Top;

/// The most places of a part. Each step ranks another one.
const RANKED: usize = 128;
/// The number of places taken from each ranking.
const SHORTLIST: usize = 2;
/// Places whose columns are kept together.
const BLOCK: usize = 16;
/// A cost that only places without room exceed.
const FULL: f32 = 1e9;
/// Used share of a position without a place.
const NO_PLACE: f32 = 2.0;

/// The places in parts.
#[derive(Clone)]
pub(super) struct Lanes {
    parts: usize,
    /// The size of each part in blocks. Its last positions may be empty.
    width: usize,
    /// The place at each position, and the position of each place.
    place: Vec<u32>,
    position: Vec<u32>,
    blocks: Vec<Block>,
    asked: Vec<Asked>,
}

/// Some places in columns.
#[derive(Clone)]
struct Block {
    used: [[f32; BLOCK]; RESOURCES],
    inverse: [[f32; BLOCK]; RESOURCES],
    /// Half of the difference of the resources.
    skew: [f32; BLOCK],
}

/// The places of a block for a unit, apart from what only changes with the block: each step reads all of this.
#[derive(Clone)]
struct Asked {
    /// What the unit asks for; not a number if the block has changed since then.
    ask: [f32; RESOURCES],
    /// The mean used share before and after it, and what the difference of the resources grows by: without end where there is no room.
    load: [f32; BLOCK],
    after: [f32; BLOCK],
    change: [f32; BLOCK],
    /// The best by how well it fills them, and by how much it evens them out.
    best: [Top<u32, SHORTLIST>; 2],
}

impl Lanes {
    /// The places of a layout.
    pub fn of(layout: &Layout<'_>) -> Self {
        let places = layout.instance().places();
        let parts = places.len().div_ceil(RANKED);
        let width = places.len().div_ceil(parts).div_ceil(BLOCK);
        let positions = width * BLOCK;
        let mut lanes = Self {
            parts,
            width,
            place: vec![0; parts * positions],
            position: vec![0; places.len()],
            blocks: vec![Block::EMPTY; parts * width],
            asked: vec![Asked::NOTHING; parts * width],
        };
        for (n, place) in ordered(layout).into_iter().enumerate() {
            let position = n % parts * positions + n / parts;
            lanes.place[position] = place;
            lanes.position[place as usize] = position as u32;
            let inverse = &mut lanes.blocks[position / BLOCK].inverse;
            (0..RESOURCES).for_each(|r| inverse[r][position % BLOCK] = (1.0 / places[place as usize].capacity[r]) as f32);
            lanes.update(layout, place as usize);
        }
        lanes
    }

    /// Takes over what is used on a place.
    pub fn update(&mut self, layout: &Layout<'_>, place: usize) {
        let (position, used) = (self.position[place] as usize, layout.used(place));
        let (block, asked, n) = (&mut self.blocks[position / BLOCK], &mut self.asked[position / BLOCK], position % BLOCK);
        let [u, v] = std::array::from_fn(|r| used[r] as f32 * block.inverse[r][n]);
        (block.used[0][n], block.used[1][n], block.skew[n]) = (u, v, (u - v).abs() * 0.5);
        (asked.load[n], asked.ask) = ((u + v) * 0.5, [f32::NAN; RESOURCES]);
    }

    /// The best places of a part for a unit: by the change of the objective, by how well it fills them, and by how much it evens them out.
    pub fn rank(
        &mut self,
        step: usize,
        ask: Load,
        (mean, deviation): (f64, f64),
        target: f64,
        weights: &Weights,
    ) -> impl Iterator<Item = usize> + '_ {
        let first = step % self.parts * self.width;
        let (mean, target) = (mean as f32, target as f32);
        let (per_square, per_skew) = ((weights.cluster / (2.0 * deviation.max(1e-3))) as f32, weights.node as f32);
        let ask = ask.map(|q| q as f32);
        let mut best = [Top::above(-FULL / 2.0); 3];
        let [balanced, filling, evening] = &mut best;
        for (b, block) in self.asked[first..first + self.width].iter_mut().enumerate() {
            if block.ask != ask {
                block.prepare(&self.blocks[first + b], ask, target);
            }
            let start = (b * BLOCK) as u32;
            let costs = block.balanced(mean, per_square, per_skew);
            if least(&costs).into_iter().any(|least| -least > balanced.needed()) {
                costs.iter().zip(start..).for_each(|(cost, n)| balanced.offer(-cost, n));
            }
            filling.offer_all(&block.best[0], |n| start + n);
            evening.offer_all(&block.best[1], |n| start + n);
        }
        let place = &self.place[first * BLOCK..];
        best.into_iter().flat_map(Top::items).map(|n| place[n as usize] as usize)
    }
}

impl Block {
    const EMPTY: Self = Self { used: [[NO_PLACE; BLOCK]; RESOURCES], inverse: [[1.0; BLOCK]; RESOURCES], skew: [0.0; BLOCK] };
}

impl Asked {
    const NOTHING: Self =
        Self { ask: [f32::NAN; RESOURCES], load: [0.0; BLOCK], after: [0.0; BLOCK], change: [0.0; BLOCK], best: [Top::above(0.0); 2] };

    /// Computes what only depends on the places and on what is asked for.
    fn prepare(&mut self, of: &Block, ask: [f32; RESOURCES], target: f32) {
        self.ask = ask;
        let (mut filling, mut evening) = ([0.0; BLOCK], [0.0; BLOCK]);
        for n in 0..BLOCK {
            let (p, q) = (of.used[0][n] + ask[0] * of.inverse[0][n], of.used[1][n] + ask[1] * of.inverse[1][n]);
            let full = if p > 1.0 + 1e-6 || q > 1.0 + 1e-6 { f32::INFINITY } else { 0.0 };
            let (is, skew) = ((p + q) * 0.5, (p - q).abs() * 0.5);
            let change = skew - of.skew[n] + full;
            let above = is - target;
            filling[n] = above.abs() + skew + full;
            evening[n] = change + if above > 0.0 { above } else { 0.0 };
            (self.after[n], self.change[n]) = (is, change);
        }
        for (best, costs) in self.best.iter_mut().zip([filling, evening]) {
            *best = Top::above(-FULL / 2.0);
            costs.iter().zip(0..).for_each(|(cost, n)| best.offer(-cost, n));
        }
    }

    /// The changes of the objective, with the places balanced as they are now. Without room it is no number, or one without end.
    #[inline]
    #[allow(clippy::needless_range_loop, reason = "all columns are indexed, and so the loop uses the vector unit")]
    fn balanced(&self, mean: f32, per_square: f32, per_skew: f32) -> [f32; BLOCK] {
        let mut costs = [0.0; BLOCK];
        for n in 0..BLOCK {
            let (d, e) = (self.after[n] - mean, self.load[n] - mean);
            costs[n] = per_square * (d * d - e * e) + per_skew * self.change[n];
        }
        costs
    }
}

/// The least costs of a block, one of four of them. Most blocks have none of the best, which this says at once.
#[inline]
fn least(costs: &[f32; BLOCK]) -> [f32; 4] {
    let mut least = [FULL; 4];
    for four in costs.as_chunks::<4>().0 {
        least.iter_mut().zip(four).for_each(|(least, cost)| *least = if cost < least { *cost } else { *least });
    }
    least
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
            // The same for some units in a row, for which what has not changed is kept.
            let mut ask = [100.0, 150.0];
            for step in 0..2 * places {
                let place = rng.usize(0..places);
                if layout.fits(&[step as u32], place) {
                    layout.put(&[step as u32], place);
                    lanes.update(&layout, place);
                }
                if rng.u8(..) < 64 {
                    ask = [50.0 + 500.0 * rng.f64(), 50.0 + 500.0 * rng.f64()];
                }
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
