//! The features of one option: what a place is like before and after a unit, relative to all places, and what is left to place.
//!
//! All of them are shares or ratios, and amounts that shrink with the number of places are multiplied by it. So a network that was trained
//! on a few places can be used on many.

use super::super::graph::{Load, RESOURCES};
use super::super::instance::{Instance, Place};
use super::super::layout::Layout;
use super::super::objective::Weights;

/// The number of features of an option.
pub const FEATURES: usize = 24;

/// What is to be placed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitKind {
    /// One replica of every service of an application.
    Copy,
    /// One replica of the services of a group.
    Group,
    /// One container.
    Container,
}

/// What is known about the whole of a placement, whatever the unit.
#[derive(Clone, Debug)]
pub struct Outlook {
    /// The mean used share when everything is placed.
    target: f64,
    /// Demand of all containers, placed or not.
    demand: Load,
    weights: Weights,
    places: f64,
    /// 1 / capacity, by place.
    inverse: Vec<Load>,
    /// How much larger a place is than an average one.
    size: Vec<f32>,
}

/// A unit to be placed, with what its options have in common.
#[derive(Clone, Debug)]
pub struct Unit<'u> {
    /// Its containers.
    pub containers: &'u [u32],
    pub kind: UnitKind,
    /// Demand of the containers of the same copy of the application that are not placed and not in the unit.
    pub rest: Load,
    /// Demand of all containers that are not placed, the unit among them.
    pub left: Load,
}

/// The calls of a unit.
#[derive(Clone, Debug, Default)]
pub struct UnitCalls {
    /// Calls to containers on each place that has any.
    pub to: Vec<(usize, f64)>,
    placed: f64,
    open: f64,
    inner: f64,
    mark: Vec<u32>,
    stamp: u32,
}

impl UnitCalls {
    /// Collects the calls of a unit.
    pub fn collect(&mut self, layout: &Layout<'_>, unit: &[u32]) {
        let instance = layout.instance();
        self.mark.resize(instance.containers().len(), 0);
        // A single container calls none of its unit.
        let several = unit.len() > 1;
        self.stamp += 1;
        unit.iter().filter(|_| several).for_each(|x| self.mark[*x as usize] = self.stamp);
        self.to.clear();
        (self.placed, self.open, self.inner) = (0.0, 0.0, 0.0);
        for x in unit {
            for (other, calls) in instance.near(*x) {
                if several && self.mark[*other as usize] == self.stamp {
                    self.inner += calls / 2.0;
                } else if let Some(place) = layout.at(*other) {
                    self.placed += calls;
                    match self.to.iter_mut().find(|(p, _)| *p == place) {
                        Some((_, sum)) => *sum += calls,
                        None => self.to.push((place, *calls)),
                    }
                } else {
                    self.open += calls;
                }
            }
        }
    }

    /// The places with most calls of the unit, at most `N`.
    pub fn most<const N: usize>(&self) -> impl Iterator<Item = usize> + use<N> {
        let mut most = [(0.0, None); N];
        for (place, calls) in &self.to {
            let at = most.iter().take_while(|(more, _)| more >= calls).count();
            if at < N {
                most[at..].rotate_right(1);
                most[at] = (*calls, Some(*place));
            }
        }
        most.into_iter().filter_map(|(_, place)| place)
    }

    fn to(&self, place: usize) -> f64 {
        self.to.iter().find(|(p, _)| *p == place).map_or(0.0, |(_, calls)| *calls)
    }
}

impl Outlook {
    /// The outlook for a placement that may already hold some containers.
    pub fn of(instance: &Instance, weights: Weights) -> Self {
        let places = instance.places();
        let count = places.len() as f64;
        let sum = |of: &dyn Fn(usize) -> Load| -> Load {
            (0..places.len()).map(of).fold([0.0; RESOURCES], |sum, l| std::array::from_fn(|r| sum[r] + l[r]))
        };
        let capacity = sum(&|p| places[p].capacity);
        let taken = sum(&|p| places[p].taken);
        let mut demand = [0.0; RESOURCES];
        instance.containers().iter().for_each(|c| (0..RESOURCES).for_each(|r| demand[r] += c.request[r]));
        let target = (0..RESOURCES).map(|r| (taken[r] + demand[r]) / capacity[r]).sum::<f64>() / RESOURCES as f64;
        let size = |p: &Place| (0..RESOURCES).map(|r| p.capacity[r] * count / capacity[r]).sum::<f64>() / 2.0 - 1.0;
        Self {
            target,
            demand,
            weights,
            places: count,
            inverse: places.iter().map(|p| p.capacity.map(|c| 1.0 / c)).collect(),
            size: places.iter().map(|p| size(p) as f32).collect(),
        }
    }

    /// The mean used share when everything is placed.
    pub fn target(&self) -> f64 {
        self.target
    }

    /// Appends a row of features for each option: a place, or `None` for splitting the unit.
    pub fn describe(&self, layout: &Layout<'_>, unit: &Unit<'_>, calls: &UnitCalls, options: &[Option<usize>], rows: &mut Vec<f32>) {
        let instance = layout.instance();
        let ask = request(instance, unit.containers);
        let (mean, deviation) = layout.balance();
        let per_call = if instance.total_calls() > 0.0 { self.places * self.weights.container / instance.total_calls() } else { 0.0 };
        let mut same = [0.0_f32; FEATURES];
        same[9] = squash((per_call * calls.open) as f32);
        same[10] = squash((per_call * calls.inner) as f32);
        same[14] = (1.0 - share(unit.left, self.demand)) as f32;
        same[15] = self.target as f32;
        same[16] = 3.0 * deviation as f32;
        same[18] = f32::from(u8::from(unit.kind == UnitKind::Copy));
        same[19] = f32::from(u8::from(unit.kind == UnitKind::Container));
        same[22] = mean as f32;
        let common = Common {
            target: self.target as f32,
            mean: mean as f32,
            deviation: deviation as f32,
            per_place: 1.0 / self.places as f32,
            cluster: (self.weights.cluster * self.places) as f32,
            node: self.weights.node as f32,
        };
        let far = instance.has_distances();
        let first = rows.len();
        rows.resize(first + options.len() * FEATURES, 0.0);
        let (rows, _) = rows[first..].as_chunks_mut::<FEATURES>();
        let mut least = f32::INFINITY;
        for (options, rows) in options.chunks(LANES).zip(rows.chunks_mut(LANES)) {
            let mut given = Given::default();
            for (n, place) in options.iter().enumerate().filter_map(|(n, option)| Some((n, (*option)?))) {
                let (used, inverse) = (layout.used(place), self.inverse[place]);
                for r in 0..RESOURCES {
                    given.used[r][n] = (used[r] * inverse[r]) as f32;
                    given.ask[r][n] = (ask[r] * inverse[r]) as f32;
                    given.rest[r][n] = (unit.rest[r] * inverse[r]) as f32;
                }
                let to = calls.to(place);
                let away = if far { layout.calls_away(unit.containers, place) } else { calls.placed - to };
                (given.to[n], given.away[n]) = ((per_call * to) as f32, (per_call * away) as f32);
                given.size[n] = self.size[place];
            }
            let told = common.columns(&given);
            for (n, (option, row)) in options.iter().zip(rows).enumerate() {
                *row = same;
                if option.is_some() {
                    TOLD.iter().zip(&told).for_each(|(feature, column)| row[*feature] = column[n]);
                    least = least.min(row[20]);
                } else {
                    row[8] = squash((per_call * calls.placed) as f32);
                    row[17] = 1.0;
                }
            }
        }
        for (row, option) in rows.iter_mut().zip(options) {
            if option.is_some() {
                row[20] = squash(2.0 * (row[20] - least));
            }
        }
    }
}

/// Options that are described at once, in columns.
const LANES: usize = 12;
type Column = [f32; LANES];
/// The features that differ between places, in the order in which [`Common::columns`] returns them.
const TOLD: [usize; 15] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 20, 21, 23];

/// What is known of some places: shares of their capacity that are used, asked for, and asked for by the rest of the copy; the calls.
#[derive(Default)]
struct Given {
    used: [Column; RESOURCES],
    ask: [Column; RESOURCES],
    rest: [Column; RESOURCES],
    to: Column,
    away: Column,
    size: Column,
}

/// What all options of a unit have in common.
struct Common {
    target: f32,
    mean: f32,
    deviation: f32,
    per_place: f32,
    cluster: f32,
    node: f32,
}

impl Common {
    /// The features that differ between places.
    #[allow(clippy::needless_range_loop, reason = "all columns are indexed, and so the loop uses the vector unit")]
    fn columns(&self, given: &Given) -> [Column; TOLD.len()] {
        let mut told = [[0.0; LANES]; TOLD.len()];
        let variance = self.deviation * self.deviation;
        for n in 0..LANES {
            let (u, v) = (given.used[0][n], given.used[1][n]);
            let (p, q) = (u + given.ask[0][n], v + given.ask[1][n]);
            let (was, is) = ((u + v) * 0.5, (p + q) * 0.5);
            let (before, after) = ((u - v) * 0.5, (p - q) * 0.5);
            // The standard deviation after one value has changed, without the difference of two nearly equal numbers.
            let (d, e, step) = (was - self.mean, is - self.mean, (is - was) * self.per_place);
            let change = (e * e - d * d) * self.per_place - step * step;
            let cluster = self.cluster * change / (above_zero(variance + change).sqrt() + self.deviation + 1e-9);
            let skew = after.abs() - before.abs();
            let needed = |r: usize, share: f32| given.rest[r][n] / (above_zero(1.0 - share) + 1e-9);
            let (a, b) = (needed(0, p), needed(1, q));
            let rest = if a > b { a } else { b };
            let fullest = if p > q { p } else { q };
            told[0][n] = 3.0 * (is - self.target);
            told[1][n] = 3.0 * (was - self.target);
            told[2][n] = 6.0 * before;
            told[3][n] = 6.0 * after;
            told[4][n] = 6.0 * after.abs();
            told[5][n] = 6.0 * skew;
            told[6][n] = if cluster > 2.0 { 2.0 } else { above_zero(cluster + 2.0) - 2.0 };
            told[7][n] = squash(given.away[n]);
            told[8][n] = squash(given.to[n]);
            told[9][n] = squash(rest);
            told[10][n] = given.size[n];
            told[11][n] = squash(3.0 * (is - was));
            told[12][n] = cluster + self.node * skew + given.away[n];
            told[13][n] = 1.0 - fullest;
            told[14][n] = if rest > 0.0 && rest <= 1.0 { 1.0 } else { 0.0 };
        }
        told
    }
}

/// The sum of the requests of some containers.
pub fn request(instance: &Instance, containers: &[u32]) -> Load {
    let mut sum = [0.0; RESOURCES];
    for c in containers {
        let q = instance.containers()[*c as usize].request;
        (0..RESOURCES).for_each(|r| sum[r] += q[r]);
    }
    sum
}

/// The mean of the shares of each resource.
fn share(part: Load, whole: Load) -> f64 {
    (0..RESOURCES).map(|r| if whole[r] > 0.0 { part[r] / whole[r] } else { 0.0 }).sum::<f64>() / RESOURCES as f64
}

/// Maps 0 to infinity to 0 to 1.
#[inline]
fn squash(x: f32) -> f32 {
    let x = above_zero(x);
    x / (1.0 + x)
}

#[inline]
fn above_zero(x: f32) -> f32 {
    if x > 0.0 { x } else { 0.0 }
}
