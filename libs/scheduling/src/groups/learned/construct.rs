//! Placing step by step: a copy of an application first as a whole, then, where it is split, group by group, and container by container.
//!
//! Each step offers options for the next unit: the places where it fits, and splitting it. Whoever places (a network, a teacher) takes one.
//! Capacity and rules always hold. A container that fits nowhere is left out.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::super::graph::{Load, RESOURCES};
use super::super::layout::{Layout, SLACK};
use super::super::objective::Weights;
use super::features::{Outlook, Unit, UnitCalls, UnitKind, request};
use super::net::ScoreNet;

/// Up to this many places each is an option; on more only the most promising are.
pub const ALL_PLACES: usize = 40;
/// The number of places taken from each ranking when there are more than [`ALL_PLACES`].
const SHORTLIST: usize = 3;
/// The most places with calls of the unit that are options when there are more than [`ALL_PLACES`].
const CALLED: usize = 3;
/// The most places that are ranked in a step. On more places, each step ranks another evenly spread part of them.
const RANKED: usize = 128;

/// A unit that waits. The largest comes first, because large units find room only at first; among equals the one with the first container.
#[derive(Clone)]
struct Queued {
    size: f64,
    containers: Vec<u32>,
    kind: UnitKind,
}

impl Ord for Queued {
    fn cmp(&self, other: &Self) -> Ordering {
        self.size.total_cmp(&other.size).then_with(|| other.containers.cmp(&self.containers))
    }
}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Queued {}

/// A placement under construction.
#[derive(Clone)]
pub struct Construction<'i> {
    layout: Layout<'i>,
    outlook: Outlook,
    weights: Weights,
    queue: BinaryHeap<Queued>,
    /// Demand that is not placed, by copy of an application.
    open: Vec<Load>,
    left: Load,
    capacity: Load,
    calls: UnitCalls,
    inverse: Vec<Load>,
    /// All places in an order that does not depend on how they are numbered, as long as they differ.
    ordered: Vec<u32>,
    options: Vec<Option<usize>>,
    rows: Vec<f32>,
    steps: usize,
}

impl<'i> Construction<'i> {
    /// Continues a layout: all containers that it does not place are queued, the largest copies of applications first.
    pub fn of(layout: Layout<'i>, weights: Weights) -> Self {
        let instance = layout.instance();
        let mut open = vec![[0.0; RESOURCES]; instance.copies().len()];
        let mut left = [0.0; RESOURCES];
        let capacity = instance.places().iter().fold([0.0; RESOURCES], |sum, p| std::array::from_fn(|r| sum[r] + p.capacity[r]));
        let mut queue = BinaryHeap::new();
        for (n, copy) in instance.copies().iter().enumerate() {
            let containers: Vec<u32> = copy.iter().copied().filter(|c| layout.at(*c).is_none()).collect();
            if containers.is_empty() {
                continue;
            }
            open[n] = request(instance, &containers);
            (0..RESOURCES).for_each(|r| left[r] += open[n][r]);
            queue.push(Queued { size: size(open[n], capacity), containers, kind: UnitKind::Copy });
        }
        let mut construction = Self {
            outlook: Outlook::of(instance, weights),
            weights,
            queue,
            open,
            left,
            capacity,
            calls: UnitCalls::default(),
            inverse: instance.places().iter().map(|p| p.capacity.map(|c| 1.0 / c)).collect(),
            ordered: ordered(&layout),
            layout,
            options: Vec::new(),
            rows: Vec::new(),
            steps: 0,
        };
        construction.offer();
        construction
    }

    /// The options for the next unit; empty at the end.
    pub fn options(&self) -> &[Option<usize>] {
        &self.options
    }
    /// The features of the options, row by row.
    pub fn rows(&self) -> &[f32] {
        &self.rows
    }
    /// The containers of the next unit; empty at the end.
    pub fn unit(&self) -> &[u32] {
        self.queue.peek().map_or(&[], |q| &q.containers)
    }
    /// What has been placed so far.
    pub fn layout(&self) -> &Layout<'i> {
        &self.layout
    }
    /// The finished layout.
    pub fn into_layout(self) -> Layout<'i> {
        self.layout
    }
    /// Containers that are not placed yet.
    pub fn waiting(&self) -> impl Iterator<Item = u32> + '_ {
        self.queue.iter().flat_map(|q| q.containers.iter().copied())
    }
    /// The number of options taken.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Takes one of the options.
    pub fn take(&mut self, option: usize) {
        self.steps += 1;
        match self.options[option] {
            Some(place) => {
                let Some(unit) = self.queue.pop() else { return };
                let ask = request(self.layout.instance(), &unit.containers);
                self.less(&unit.containers, ask);
                self.layout.put(&unit.containers, place);
            }
            None => self.split(),
        }
        self.offer();
    }

    /// Takes the option that the network scores best in this pass, the first among equals, until the end.
    pub fn finish(&mut self, net: &ScoreNet, pass: &Pass) {
        let mut scores = Vec::new();
        let mut random = pass.seed;
        while let Some(kind) = self.queue.peek().map(|q| q.kind).filter(|_| !self.options.is_empty()) {
            net.score(&self.rows, &mut scores);
            pass.deviate(kind, &self.options, &mut scores, &mut random);
            self.take(best(&scores));
        }
    }

    fn less(&mut self, containers: &[u32], ask: Load) {
        let copy = containers.first().map_or(0, |c| self.layout.instance().copy_of(*c));
        let minus = |a: Load| std::array::from_fn(|r| (a[r] - ask[r]).max(0.0));
        self.left = minus(self.left);
        self.open[copy] = minus(self.open[copy]);
    }

    /// Replaces the next unit by its parts, the largest first.
    fn split(&mut self) {
        let Some(unit) = self.queue.pop() else { return };
        let instance = self.layout.instance();
        let mut groups: Vec<(usize, Vec<u32>)> = Vec::new();
        if unit.kind == UnitKind::Copy {
            for c in &unit.containers {
                let of = instance.group_of(*c);
                match groups.iter_mut().find(|(g, _)| *g == of) {
                    Some((_, members)) => members.push(*c),
                    None => groups.push((of, vec![*c])),
                }
            }
        }
        if groups.len() < 2 {
            groups = unit.containers.iter().map(|c| (0, vec![*c])).collect();
        }
        for (_, containers) in groups {
            let kind = if containers.len() > 1 { UnitKind::Group } else { UnitKind::Container };
            self.queue.push(Queued { size: size(request(instance, &containers), self.capacity), containers, kind });
        }
    }

    /// Prepares the options of the next unit. A unit that fits nowhere is split, a container that fits nowhere is left out.
    fn offer(&mut self) {
        self.options.clear();
        self.rows.clear();
        while let Some(unit) = self.queue.peek() {
            let ask = request(self.layout.instance(), &unit.containers);
            self.calls.collect(&self.layout, &unit.containers);
            self.shortlist(ask);
            let Some(unit) = self.queue.peek() else { return };
            if !self.options.is_empty() {
                if unit.containers.len() > 1 {
                    self.options.push(None);
                }
                let copy = unit.containers.first().map_or(0, |c| self.layout.instance().copy_of(*c));
                let rest = std::array::from_fn(|r| {
                    let rest = self.open[copy][r] - ask[r];
                    if rest > 1e-6 { rest } else { 0.0 }
                });
                let described = Unit { containers: &unit.containers, kind: unit.kind, rest, left: self.left };
                self.outlook.describe(&self.layout, &described, &self.calls, &self.options, &mut self.rows);
                return;
            }
            if unit.containers.len() > 1 {
                self.split();
            } else {
                let containers = unit.containers.clone();
                self.less(&containers, ask);
                self.queue.pop();
            }
        }
    }

    /// Fills the options with places where the next unit fits.
    fn shortlist(&mut self, ask: Load) {
        let Some(unit) = self.queue.peek() else { return };
        let places = self.inverse.len();
        if places <= ALL_PLACES {
            let layout = &self.layout;
            self.options.extend((0..places).filter(|p| layout.fits(&unit.containers, *p)).map(Some));
            return;
        }
        let mut called = self.calls.to.clone();
        called.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mut balanced = Ranking::default();
        let mut filling = Ranking::default();
        let mut evening = Ranking::default();
        let (mean, deviation) = self.layout.balance();
        let target = self.outlook.target();
        let per_square = self.weights.cluster / (2.0 * deviation.max(1e-3));
        let stride = places.div_ceil(RANKED);
        for p in self.ordered.iter().skip(self.steps % stride).step_by(stride).map(|p| *p as usize) {
            let (used, inverse) = (self.layout.used(p), self.inverse[p]);
            let (u, v) = ((used[0] + ask[0]) * inverse[0], (used[1] + ask[1]) * inverse[1]);
            if u > 1.0 + SLACK || v > 1.0 + SLACK {
                continue;
            }
            let (is, was) = ((u + v) / 2.0, self.layout.load(p));
            let skew = (u - v).abs() / 2.0;
            let (d, e) = (is - mean, was - mean);
            let change = per_square * (d * d - e * e) + self.weights.node * (skew - self.layout.skew(p));
            balanced.add(change, p);
            filling.add((is - target).abs() + skew, p);
            evening.add(skew - self.layout.skew(p) + (is - target).max(0.0), p);
        }
        let all = called.iter().take(CALLED).map(|(p, _)| *p).chain(balanced.places()).chain(filling.places()).chain(evening.places());
        for p in all {
            if !self.options.contains(&Some(p)) && self.layout.fits(&unit.containers, p) {
                self.options.push(Some(p));
            }
        }
        // The places ranked may all be full, or forbidden by rules, while others remain.
        if self.options.is_empty() {
            let layout = &self.layout;
            self.options.extend((0..places).filter(|p| layout.fits(&unit.containers, *p)).map(Some));
        }
    }
}

/// How a pass deviates from the network's own choices.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pass {
    /// Added to the score of splitting a copy of an application.
    pub split_copy: f32,
    /// Added to the score of splitting a group.
    pub split_group: f32,
    /// Seed of the noise that is added to all scores; 0: no noise.
    pub seed: u64,
}

const NEVER: f32 = -1e9;
const ALWAYS: f32 = 1e9;
/// Scales of the noise in turn: with 1 an option is taken as often as the softmax of the scores says, with less the best one more often.
const NOISE: [f32; 3] = [0.3, 0.6, 1.2];
/// The most passes that are made of one placement.
pub const MAX_PASSES: usize = 128;

impl Pass {
    /// The pass of this number: the first is the network's own, some more split more or less readily, the others are random.
    pub fn nth(n: usize) -> Self {
        const FIXED: [(f32, f32); 10] = [
            (0.0, 0.0),
            (ALWAYS, 0.0),
            (0.0, NEVER),
            (ALWAYS, NEVER),
            (1.0, 0.0),
            (-1.0, 0.0),
            (0.0, 1.0),
            (0.0, -1.0),
            (-2.0, -0.5),
            (ALWAYS, 1.0),
        ];
        let (split_copy, split_group) = FIXED[if n < FIXED.len() { n } else { n / NOISE.len() % 4 }];
        Self { split_copy, split_group, seed: if n < FIXED.len() { 0 } else { n as u64 } }
    }

    /// Changes the scores of the options of a unit. `random` is [`Pass::seed`] at the first unit, and carried from unit to unit.
    pub fn deviate(&self, kind: UnitKind, options: &[Option<usize>], scores: &mut [f32], random: &mut u64) {
        if let (Some(None), Some(split)) = (options.last(), scores.last_mut()) {
            *split += if kind == UnitKind::Copy { self.split_copy } else { self.split_group };
        }
        if self.seed > 0 {
            let noise = NOISE[(self.seed % NOISE.len() as u64) as usize];
            scores.iter_mut().for_each(|score| *score += noise * gumbel(random));
        }
    }
}

/// A random number of the Gumbel distribution (SplitMix64): the largest of scores with such noise is a sample of their softmax.
fn gumbel(state: &mut u64) -> f32 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    let uniform = ((z >> 40) as f32 + 0.5) / (1_u64 << 24) as f32;
    -(-uniform.ln()).ln()
}

/// The index of the best score, the first among equals.
pub fn best(scores: &[f32]) -> usize {
    let mut best = 0;
    for (n, s) in scores.iter().enumerate() {
        if *s > scores[best] {
            best = n;
        }
    }
    best
}

/// The places by capacity and use.
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

/// The demand of a unit relative to the capacity of all places.
fn size(ask: Load, all: Load) -> f64 {
    (0..RESOURCES).map(|r| ask[r] / all[r]).sum()
}

/// The few places with the least cost.
#[derive(Default)]
struct Ranking {
    least: [(f64, usize); SHORTLIST],
    len: usize,
}

impl Ranking {
    #[inline]
    fn add(&mut self, cost: f64, place: usize) {
        if self.len == SHORTLIST && cost >= self.least[SHORTLIST - 1].0 {
            return;
        }
        let mut at = if self.len < SHORTLIST { self.len } else { SHORTLIST - 1 };
        self.len = (self.len + 1).min(SHORTLIST);
        while at > 0 && self.least[at - 1].0 > cost {
            self.least[at] = self.least[at - 1];
            at -= 1;
        }
        self.least[at] = (cost, place);
    }

    fn places(&self) -> impl Iterator<Item = usize> + '_ {
        self.least[..self.len].iter().map(|(_, p)| *p)
    }
}
