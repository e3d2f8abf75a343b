//! Placing step by step: a copy of an application first as a whole, then, where it is split, group by group, and container by container.
//!
//! Each step offers options for the next unit: the places where it fits, and splitting it. Whoever places (a network, a teacher) takes one.
//! Capacity and rules always hold. A container that fits nowhere is left out.

use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

use super::super::graph::{Load, RESOURCES};
use super::super::layout::Layout;
use super::super::objective::Weights;
use super::features::{Outlook, Unit, UnitCalls, UnitKind, request};
use super::lanes::Lanes;
use super::net::ScoreNet;

/// Up to this many places each is an option; on more only the most promising are.
pub const ALL_PLACES: usize = 40;
/// The most places with calls of the unit that are options when there are more than [`ALL_PLACES`].
const CALLED: usize = 3;
/// A unit that waits.
#[derive(Clone, Copy)]
struct Queued {
    ask: Load,
    /// Its containers are `containers[start..start + count]` of the construction, of which `first` is the first.
    start: u32,
    count: u32,
    first: u32,
    kind: UnitKind,
}

impl Queued {
    fn range(&self) -> Range<usize> {
        self.start as usize..(self.start + self.count) as usize
    }
}

/// When the turn of a unit comes. The largest comes first, because large units find room only at first; among equals the one with the first
/// container. One number, because ten thousand units are compared a hundred thousand times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn(u128);

impl Turn {
    /// Of the unit with this number. A size is not negative, and such numbers are in the order of their bits.
    fn of(size: f64, first: u32, unit: usize) -> Self {
        Self(u128::from(size.to_bits()) << 64 | u128::from(!first) << 32 | u128::from(unit as u32))
    }

    fn size(self) -> f64 {
        f64::from_bits((self.0 >> 64) as u64)
    }

    fn unit(self) -> usize {
        self.0 as u32 as usize
    }
}

/// A placement under construction.
#[derive(Clone)]
pub struct Construction<'i> {
    layout: Layout<'i>,
    outlook: Arc<Outlook>,
    weights: Weights,
    queue: BinaryHeap<Turn>,
    /// All units that have been in the queue.
    units: Vec<Queued>,
    /// The containers of all units that wait. Splitting a unit divides its part.
    containers: Vec<u32>,
    /// Demand that is not placed, by copy of an application.
    open: Vec<Load>,
    left: Load,
    capacity: Load,
    calls: UnitCalls,
    /// The places as they are ranked, if there are more than [`ALL_PLACES`].
    lanes: Option<Lanes>,
    options: Vec<Option<usize>>,
    rows: Vec<f32>,
    steps: usize,
    /// As [`Pass::shuffle`], and its random state.
    shuffle: f64,
    random: u64,
}

impl<'i> Construction<'i> {
    /// Continues a layout: all containers that it does not place are queued, the largest copies of applications first.
    pub fn of(layout: Layout<'i>, weights: Weights) -> Self {
        let instance = layout.instance();
        let capacity = instance.places().iter().fold([0.0; RESOURCES], |sum, p| std::array::from_fn(|r| sum[r] + p.capacity[r]));
        let mut construction = Self {
            outlook: Arc::new(Outlook::of(instance, weights)),
            weights,
            queue: BinaryHeap::with_capacity(instance.containers().len()),
            units: Vec::with_capacity(instance.containers().len()),
            containers: Vec::with_capacity(instance.containers().len()),
            open: vec![[0.0; RESOURCES]; instance.copies().len()],
            left: [0.0; RESOURCES],
            capacity,
            calls: UnitCalls::default(),
            lanes: (instance.places().len() > ALL_PLACES).then(|| Lanes::of(&layout)),
            layout,
            options: Vec::new(),
            rows: Vec::new(),
            steps: 0,
            shuffle: 0.0,
            random: 0,
        };
        for (n, copy) in instance.copies().iter().enumerate() {
            let start = construction.containers.len();
            construction.containers.extend(copy.iter().copied().filter(|c| construction.layout.at(*c).is_none()));
            if construction.containers.len() > start {
                let ask = construction.enqueue(start..construction.containers.len(), UnitKind::Copy);
                construction.open[n] = ask;
                (0..RESOURCES).for_each(|r| construction.left[r] += ask[r]);
            }
        }
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
        self.next().map_or(&[], |unit| &self.containers[unit.range()])
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
        self.queue.iter().flat_map(|turn| self.containers[self.units[turn.unit()].range()].iter().copied())
    }
    /// The number of options taken.
    pub fn steps(&self) -> usize {
        self.steps
    }

    fn next(&self) -> Option<Queued> {
        self.queue.peek().map(|turn| self.units[turn.unit()])
    }

    fn pop(&mut self) -> Option<Queued> {
        self.queue.pop().map(|turn| self.units[turn.unit()])
    }

    /// Takes one of the options.
    pub fn take(&mut self, option: usize) {
        self.steps += 1;
        match self.options[option] {
            Some(place) => {
                let Some(unit) = self.pop() else { return };
                self.less(&unit);
                self.layout.put(&self.containers[unit.range()], place);
                if let Some(lanes) = &mut self.lanes {
                    lanes.update(&self.layout, place);
                }
            }
            None => self.split(),
        }
        self.offer();
    }

    /// Takes the option that the network scores best in this pass, the first among equals, until the end.
    pub fn finish(&mut self, net: &ScoreNet, pass: &Pass) {
        let mut scores = Vec::new();
        let mut random = pass.seed;
        self.shuffle(pass);
        while let Some(kind) = self.next().map(|unit| unit.kind).filter(|_| !self.options.is_empty()) {
            net.score(&self.rows, &mut scores);
            pass.deviate(kind, &self.options, &mut scores, &mut random);
            self.take(best(&scores));
        }
    }

    /// Changes the order of the units that wait, and of those that come, as a pass says.
    fn shuffle(&mut self, pass: &Pass) {
        if pass.shuffle > 0.0 {
            (self.shuffle, self.random) = (pass.shuffle, !pass.seed);
            for turn in std::mem::take(&mut self.queue).into_sorted_vec() {
                let size = turn.size() * self.deviation();
                self.queue.push(Turn::of(size, self.units[turn.unit()].first, turn.unit()));
            }
            self.offer();
        }
    }

    /// The factor for the size of a unit in the order: 1 without a shuffle, else up to 1 + shuffle.
    fn deviation(&mut self) -> f64 {
        if self.shuffle > 0.0 { 1.0 + self.shuffle * f64::from(uniform(&mut self.random)) } else { 1.0 }
    }

    fn less(&mut self, unit: &Queued) {
        let copy = self.layout.instance().copy_of(unit.first);
        let minus = |a: Load| std::array::from_fn(|r| (a[r] - unit.ask[r]).max(0.0));
        self.left = minus(self.left);
        self.open[copy] = minus(self.open[copy]);
    }

    /// Queues a part of the containers as a unit, and returns its demand.
    fn enqueue(&mut self, range: Range<usize>, kind: UnitKind) -> Load {
        let containers = &self.containers[range.clone()];
        let ask = request(self.layout.instance(), containers);
        let (first, start, count) = (containers[0], range.start as u32, containers.len() as u32);
        let size = size(ask, self.capacity) * self.deviation();
        self.queue.push(Turn::of(size, first, self.units.len()));
        self.units.push(Queued { ask, start, count, first, kind });
        ask
    }

    /// Replaces the next unit by its parts: its groups, or its containers if it has only one.
    fn split(&mut self) {
        let Some(unit) = self.pop() else { return };
        let instance = self.layout.instance();
        let range = unit.range();
        let of = |c: &u32| instance.group_of(*c);
        let several = self.containers[range.clone()].windows(2).any(|pair| of(&pair[0]) != of(&pair[1]));
        if unit.kind != UnitKind::Copy || !several {
            for at in range {
                self.enqueue(at..at + 1, UnitKind::Container);
            }
            return;
        }
        // Brings the containers of each group together, in the order of their first ones.
        let mut start = range.start;
        while start < range.end {
            let group = of(&self.containers[start]);
            let mut end = start + 1;
            for at in start + 1..range.end {
                if of(&self.containers[at]) == group {
                    self.containers[end..=at].rotate_right(1);
                    end += 1;
                }
            }
            let kind = if end - start > 1 { UnitKind::Group } else { UnitKind::Container };
            self.enqueue(start..end, kind);
            start = end;
        }
    }

    /// Prepares the options of the next unit. A unit that fits nowhere is split, a container that fits nowhere is left out.
    fn offer(&mut self) {
        self.options.clear();
        self.rows.clear();
        while let Some(unit) = self.next() {
            self.calls.collect(&self.layout, &self.containers[unit.range()]);
            self.shortlist(&unit);
            if !self.options.is_empty() {
                if unit.count > 1 {
                    self.options.push(None);
                }
                let open = self.open[self.layout.instance().copy_of(unit.first)];
                let rest = std::array::from_fn(|r| {
                    let rest = open[r] - unit.ask[r];
                    if rest > 1e-6 { rest } else { 0.0 }
                });
                let described = Unit { containers: &self.containers[unit.range()], kind: unit.kind, rest, left: self.left };
                self.outlook.describe(&self.layout, &described, &self.calls, &self.options, &mut self.rows);
                return;
            }
            if unit.count > 1 {
                self.split();
            } else {
                self.less(&unit);
                self.queue.pop();
            }
        }
    }

    /// Fills the options with places where the next unit fits.
    fn shortlist(&mut self, unit: &Queued) {
        let places = self.layout.instance().places().len();
        let (layout, containers, options) = (&self.layout, &self.containers[unit.range()], &mut self.options);
        if let Some(lanes) = &mut self.lanes {
            let mut add = |place: usize| {
                if !options.contains(&Some(place)) && layout.fits(containers, place) {
                    options.push(Some(place));
                }
            };
            self.calls.most::<CALLED>().for_each(&mut add);
            lanes.rank(self.steps, unit.ask, layout.balance(), self.outlook.target(), &self.weights).for_each(&mut add);
        }
        // The places ranked may all be full, or forbidden by rules, while others remain.
        if options.is_empty() {
            options.extend((0..places).filter(|p| layout.fits(containers, *p)).map(Some));
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
    /// Scale of the noise that is added to all scores: with 1 an option is taken as often as the softmax of the scores says, with less the
    /// best one more often.
    pub noise: f32,
    /// How far the order of the units deviates from largest first: a size counts up to 1 + this times more.
    pub shuffle: f64,
    /// Seed of the noise and of the changed order.
    pub seed: u64,
}

const NEVER: f32 = -1e9;
const ALWAYS: f32 = 1e9;
/// [`Pass::noise`] and [`Pass::shuffle`] of the random passes: one or the other, in turn.
const NOISE: [f32; 3] = [0.3, 0.6, 1.2];
const SHUFFLE: [f64; 3] = [0.2, 0.6, 2.0];
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
        let chosen = Self { seed: n as u64, ..Self::default() };
        if let Some((split_copy, split_group)) = FIXED.get(n) {
            return Self { split_copy: *split_copy, split_group: *split_group, ..chosen };
        }
        let (split_copy, split_group) = FIXED[n / NOISE.len() % 4];
        let (noise, shuffle) = if n % 4 < 2 { (0.0, SHUFFLE[n % SHUFFLE.len()]) } else { (NOISE[n % NOISE.len()], 0.0) };
        Self { split_copy, split_group, noise, shuffle, ..chosen }
    }

    /// Changes the scores of the options of a unit. `random` is [`Pass::seed`] at the first unit, and carried from unit to unit.
    pub fn deviate(&self, kind: UnitKind, options: &[Option<usize>], scores: &mut [f32], random: &mut u64) {
        if let (Some(None), Some(split)) = (options.last(), scores.last_mut()) {
            *split += if kind == UnitKind::Copy { self.split_copy } else { self.split_group };
        }
        if self.noise > 0.0 {
            scores.iter_mut().for_each(|score| *score += self.noise * gumbel(random));
        }
    }
}

/// A random number of the Gumbel distribution: the largest of scores with such noise is a sample of their softmax.
fn gumbel(state: &mut u64) -> f32 {
    -(-uniform(state).ln()).ln()
}

/// A random number between 0 and 1, without the ends (SplitMix64).
pub(super) fn uniform(state: &mut u64) -> f32 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    (((z >> 40) as f32 + 0.5) / (1_u64 << 24) as f32).min(1.0 - f32::EPSILON / 2.0)
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

/// The demand of a unit relative to the capacity of all places.
fn size(ask: Load, all: Load) -> f64 {
    (0..RESOURCES).map(|r| ask[r] / all[r]).sum()
}
