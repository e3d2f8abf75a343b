//! Refinement: exchanges between two places while they improve the objective, the best of all exchanges between the two first.
//!
//! ```text
//! pairs of places (calls, loads) ──▶ parts of both (parts) ──▶ the best exchanges (exchange) ──▶ probed and made
//! ```
//!
//! It is no search: nothing is made worse first, nothing is random, and the result depends on the layout and the effort alone.
//!
//! Invariant: every exchange is computed again by [`Layout::probe`] before it is made, so capacity and rules hold and the objective never
//! rises. The quick computation in f32 only finds it.

mod calls;
mod exchange;
mod loads;
mod parts;

use super::layout::Layout;
use calls::Between;
use exchange::{Finder, Side};
use loads::Loads;
use parts::{Collector, Parts};

/// How often two places are looked at in a row while exchanges improve them.
const REPEATS: usize = 2;
/// The effort of looking at two places besides that for each exchange.
const OVERHEAD: u64 = 150;
/// In a choosy round, what a pair of places has to promise, as a share of what a place costs: by calls and loads, and by loads alone.
const LINKED: f32 = 0.2;
const LOADED: f32 = 1.0;
/// A choosy round that improves the objective by a smaller share is the last of them.
const CHOOSY: f64 = 0.02;
/// A round that improves the objective by a smaller share is the last.
const ENOUGH: f64 = 1e-4;

/// What a refinement has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Refinement {
    /// The objective before it.
    pub before: f64,
    /// The objective after it.
    pub after: f64,
    /// Exchanges made.
    pub exchanges: usize,
    /// Exchanges considered: what the effort is counted in.
    pub effort: u64,
}

impl Layout<'_> {
    /// Exchanges containers between places until that improves nothing, or until so many exchanges were considered.
    pub fn refine(&mut self, effort: u64) -> Refinement {
        let before = self.value();
        let mut refiner = Refiner::of(self, effort);
        refiner.run();
        let (exchanges, effort) = (refiner.exchanges, refiner.effort);
        if exchanges > 0 {
            self.resync();
        }
        Refinement { before, after: self.value(), exchanges, effort }
    }
}

struct Refiner<'l, 'i> {
    layout: &'l mut Layout<'i>,
    loads: Loads,
    collector: Collector,
    between: Between,
    finder: Finder,
    /// The parts of each place, and whether they are those that it has now.
    parts: Vec<Parts>,
    known: Vec<bool>,
    limit: u64,
    effort: u64,
    exchanges: usize,
}

impl<'l, 'i> Refiner<'l, 'i> {
    fn of(layout: &'l mut Layout<'i>, limit: u64) -> Self {
        let instance = layout.instance();
        let places = instance.places().len();
        let total = instance.total_calls();
        let per_call = if total > 0.0 { places as f64 * layout.weights().container / total } else { 0.0 };
        Self {
            loads: Loads::of(layout),
            collector: Collector::new(per_call, instance.containers().len()),
            between: Between::default(),
            finder: Finder::new(),
            parts: vec![Parts::default(); places],
            known: vec![false; places],
            limit,
            effort: 0,
            exchanges: 0,
            layout,
        }
    }

    /// Rounds over all pairs that promise something, at first only over those that promise much.
    fn run(&mut self) {
        if self.parts.len() < 2 {
            return;
        }
        let mut choosy = true;
        while !self.spent() {
            let before = self.layout.value();
            self.by_calls(if choosy { LINKED } else { 0.0 });
            self.by_load(if choosy { LOADED } else { 0.0 });
            let gained = before - self.layout.value();
            if !choosy && gained <= ENOUGH * before {
                break;
            }
            choosy &= gained > CHOOSY * before;
        }
    }

    fn spent(&self) -> bool {
        self.effort >= self.limit
    }

    /// The pairs of places with calls between them that promise such a share of what a place costs, those with most calls first.
    fn by_calls(&mut self, share: f32) {
        let enough = share * self.layout.value() as f32;
        let outside = |place: usize| self.known[place].then(|| self.parts[place].outside());
        for (here, there, calls) in calls::linked(self.layout, 2 * self.parts.len(), outside) {
            if self.spent() {
                return;
            }
            if self.loads.potential(here, there) + self.collector.cost(calls) > enough {
                self.exchange(here, there, true);
            }
        }
    }

    /// Each place, the most unbalanced first, with those partners that promise most by their loads, and such a share of what a place costs.
    fn by_load(&mut self, share: f32) {
        let enough = share * self.layout.value() as f32;
        for place in self.loads.worst_first() {
            if 2.0 * self.loads.cost(place) < enough {
                continue; // the other place costs less, or has been here before
            }
            for partner in self.loads.partners(place, enough).items() {
                if self.spent() {
                    return;
                }
                self.exchange(place, partner, false);
            }
        }
    }

    /// Makes the best exchanges of two places as long as there are any. `linked`: whether there are calls between them.
    fn exchange(&mut self, here: usize, there: usize, linked: bool) {
        for _ in 0..REPEATS {
            for place in [here, there] {
                if !self.known[place] {
                    self.collector.collect(self.layout, place, &mut self.parts[place]);
                    self.known[place] = true;
                }
            }
            if !self.improve(here, there, linked) {
                return;
            }
        }
    }

    /// Makes the best exchanges of two places, if there are any.
    fn improve(&mut self, here: usize, there: usize, linked: bool) -> bool {
        let parts = [here, there].map(|place| &self.parts[place]);
        if linked {
            self.between.look_at(self.layout, there, parts, &self.collector);
        }
        let side = |n: usize, place: usize| Side {
            load: self.loads.place(place),
            parts: if linked { &self.between.parts[n] } else { parts[n].lean() },
        };
        let sides = [side(0, here), side(1, there)];
        let apart = if linked { &*self.between.apart } else { &[] };
        let found = self.finder.best([&sides[0], &sides[1]], &self.loads.balance, apart);
        self.effort += OVERHEAD + self.finder.considered();
        let mut made = false;
        for (x, y) in found.items() {
            made |= self.make(here, x, there, y);
        }
        made
    }

    /// Makes an exchange if it is still possible, allowed, and an improvement.
    fn make(&mut self, here: usize, x: usize, there: usize, y: usize) -> bool {
        let (xs, ys) = (self.parts[here].part(x), self.parts[there].part(y));
        let on = |part: &[u32], place: usize| part.iter().all(|container| self.layout.at(*container) == Some(place));
        if (xs.is_empty() && ys.is_empty()) || !on(xs, here) || !on(ys, there) {
            return false;
        }
        let value = self.layout.value();
        let Some(change) = self.layout.probe(here, xs, there, ys) else { return false };
        if change.value >= value - 1e-12 || change.over() > self.layout.over() {
            return false;
        }
        self.layout.commit(&change, xs, ys);
        self.loads.update(self.layout, [here, there]);
        self.exchanges += 1;
        self.known[here] = false;
        self.known[there] = false;
        true
    }
}
