//! The features of one option: what a place is like before and after a unit, relative to all places, and what is left to place.
//!
//! All of them are shares or ratios, and amounts that shrink with the number of places are multiplied by it. So a network that was trained
//! on a few places can be used on many.

use super::super::graph::{Load, RESOURCES};
use super::super::instance::Instance;
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
    /// The mean capacity of a place.
    mean: Load,
    /// Demand of all containers, placed or not.
    demand: Load,
    weights: Weights,
    places: f64,
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
        self.stamp += 1;
        unit.iter().for_each(|x| self.mark[*x as usize] = self.stamp);
        self.to.clear();
        (self.placed, self.open, self.inner) = (0.0, 0.0, 0.0);
        for x in unit {
            for (other, calls) in instance.near(*x) {
                if self.mark[*other as usize] == self.stamp {
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

    fn to(&self, place: usize) -> f64 {
        self.to.iter().find(|(p, _)| *p == place).map_or(0.0, |(_, calls)| *calls)
    }

    fn away(&self, layout: &Layout<'_>, unit: &[u32], place: usize) -> f64 {
        if layout.instance().has_distances() { layout.calls_away(unit, place) } else { self.placed - self.to(place) }
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
        Self { target, mean: capacity.map(|c| c / count), demand, weights, places: count }
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
        let progress = 1.0 - share(unit.left, self.demand);
        let first = rows.len();
        let mut least = f64::INFINITY;
        for option in options {
            let mut row = [0.0_f32; FEATURES];
            let mut set = |n: usize, value: f64| row[n] = value as f32;
            set(9, squash(per_call * calls.open));
            set(10, squash(per_call * calls.inner));
            set(14, progress);
            set(15, self.target);
            set(16, 3.0 * deviation);
            set(18, f64::from(u8::from(unit.kind == UnitKind::Copy)));
            set(19, f64::from(u8::from(unit.kind == UnitKind::Container)));
            set(22, mean);
            let Some(place) = *option else {
                set(17, 1.0);
                set(8, squash(per_call * calls.placed));
                rows.extend(row);
                continue;
            };
            let capacity = instance.places()[place].capacity;
            let before: Load = std::array::from_fn(|r| layout.used(place)[r] / capacity[r]);
            let after: Load = std::array::from_fn(|r| (layout.used(place)[r] + ask[r]) / capacity[r]);
            let load = |u: Load| (u[0] + u[1]) / 2.0;
            let skew = |u: Load| (u[0] - u[1]) / 2.0;
            let (was, is) = (load(before), load(after));
            let cluster = self.weights.cluster * (moved(mean, deviation, was, is, self.places) - deviation) * self.places;
            let node = self.weights.node * (skew(after).abs() - skew(before).abs());
            let cut = per_call * calls.away(layout, unit.containers, place);
            let change = cluster + node + cut;
            least = least.min(change);
            let free: Load = std::array::from_fn(|r| (capacity[r] * (1.0 - after[r])).max(0.0));
            let rest = (0..RESOURCES).map(|r| if unit.rest[r] > 0.0 { unit.rest[r] / (free[r] + 1e-9) } else { 0.0 }).fold(0.0, f64::max);
            set(0, 3.0 * (is - self.target));
            set(1, 3.0 * (was - self.target));
            set(2, 6.0 * skew(before));
            set(3, 6.0 * skew(after));
            set(4, 6.0 * skew(after).abs());
            set(5, 6.0 * (skew(after).abs() - skew(before).abs()));
            set(6, cluster.clamp(-2.0, 2.0));
            set(7, squash(cut));
            set(8, squash(per_call * calls.to(place)));
            set(11, squash(rest));
            set(12, (0..RESOURCES).map(|r| capacity[r] / self.mean[r]).sum::<f64>() / 2.0 - 1.0);
            set(13, squash(3.0 * (is - was)));
            set(20, change);
            set(21, 1.0 - after[0].max(after[1]));
            set(23, if rest > 0.0 && rest <= 1.0 { 1.0 } else { 0.0 });
            rows.extend(row);
        }
        for (row, option) in rows[first..].chunks_exact_mut(FEATURES).zip(options) {
            if option.is_some() {
                row[20] = squash(2.0 * (f64::from(row[20]) - least)) as f32;
            }
        }
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
fn squash(x: f64) -> f64 {
    let x = x.max(0.0);
    x / (1.0 + x)
}

/// The standard deviation after one value of a population has changed.
fn moved(mean: f64, deviation: f64, was: f64, is: f64, count: f64) -> f64 {
    let square = (deviation * deviation + mean * mean) + (is * is - was * was) / count;
    let mean = mean + (is - was) / count;
    (square - mean * mean).max(0.0).sqrt()
}
