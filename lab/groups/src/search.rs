//! `cgs-search`, the default: simulated annealing over copies of applications, copies of groups and containers.
//!
//! Groups are a neighbourhood, not a rule: a move takes what a group has on one place to another place (or exchanges it for
//! something there), later moves take single containers, so a group is broken where that pays. Any-time: the best placement
//! so far is kept. With a budget in moves the seed decides everything.

use std::sync::Arc;

use crate::exact::Exact;
use crate::greedy::{begin, fill, heaviest_first};
use crate::policy::{Placed, Policy};
use drover_scheduling::groups::Instance;
use drover_scheduling::groups::Layout;
use drover_scheduling::groups::Weights;

/// How long to search.
#[derive(Clone)]
pub enum Budget {
    /// So many moves are looked at: the result does not depend on the machine.
    Moves(u64),
    /// Until the clock shows so many seconds more than at the start; give it the CPU time of the thread, say.
    Seconds(f64, Arc<dyn Fn() -> f64 + Send + Sync>),
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Moves(n) => write!(f, "{n} moves"),
            Self::Seconds(s, _) => write!(f, "{s} s"),
        }
    }
}

/// Simulated annealing with groups as a neighbourhood.
#[derive(Clone, Debug)]
pub struct Search {
    /// Decides every choice.
    pub seed: u64,
    /// How long to search.
    pub budget: Budget,
    /// Whether groups and whole applications are moved too; without, only containers are.
    pub grouped: bool,
}

impl Search {
    /// A budget in moves.
    pub fn moves(moves: u64, seed: u64) -> Self {
        Self { seed, budget: Budget::Moves(moves), grouped: true }
    }
}

impl Policy for Search {
    fn name(&self) -> String {
        if self.grouped { "cgs-search" } else { "search" }.to_owned()
    }

    fn place(&self, instance: &Instance, weights: &Weights) -> Placed {
        // Where nearly everything is full no exchange may lead to the best: what is small is looked through instead.
        let placements = (instance.places().len() as f64).powi(i32::try_from(instance.containers().len()).unwrap_or(i32::MAX));
        if placements <= FEW {
            let proof = Exact { limit: FEW as u64, ..Exact::default() }.prove(instance, weights);
            if proof.proven {
                return proof.placed;
            }
        }
        self.anneal(instance, weights)
    }
}

/// So many placements are no search.
const FEW: f64 = 10_000.0;

impl Search {
    /// The search alone, however small the instance is.
    pub(super) fn anneal(&self, instance: &Instance, weights: &Weights) -> Placed {
        let meter = Meter::start(&self.budget);
        let layout = first(instance, weights, self.grouped);
        self.improve(layout, weights, meter)
    }

    /// Searches on from a placement that another policy made (the polish of a learned one, say).
    pub fn polish(&self, instance: &Instance, weights: &Weights, from: &Placed) -> Placed {
        let meter = Meter::start(&self.budget);
        self.improve(Layout::of(instance, *weights, &from.at), weights, meter)
    }

    fn improve(&self, mut layout: Layout<'_>, weights: &Weights, meter: Meter<'_>) -> Placed {
        let mut annealing =
            Annealing { rng: fastrand::Rng::with_seed(self.seed), meter, grouped: self.grouped, xs: Vec::new(), ys: Vec::new() };
        annealing.admit(&mut layout);
        let best = annealing.run(&mut layout);
        Placed::of(&Layout::of(layout.instance(), *weights, &best), weights, annealing.meter.done)
    }
}

/// Whole applications, then groups, then containers, each where the objective is least.
fn first<'i>(instance: &'i Instance, weights: &Weights, grouped: bool) -> Layout<'i> {
    let mut layout = begin(instance, weights);
    let units = if grouped { heaviest_first(instance, instance.groups()) } else { crate::greedy::singles(instance) };
    fill(&mut layout, &units, &|l, unit, place| l.value_with(unit, place));
    layout
}

/// What is spent of the budget.
pub(super) struct Meter<'b> {
    budget: &'b Budget,
    began: f64,
    pub(super) done: u64,
}

impl<'b> Meter<'b> {
    pub(super) fn start(budget: &'b Budget) -> Self {
        let began = if let Budget::Seconds(_, clock) = budget { clock() } else { 0.0 };
        Self { budget, began, done: 0 }
    }
    /// In [0, 1].
    pub(super) fn spent(&self) -> f64 {
        match self.budget {
            Budget::Moves(n) => self.done as f64 / (*n).max(1) as f64,
            Budget::Seconds(s, clock) => (clock() - self.began) / s.max(1e-9),
        }
    }
}

/// Moves between two looks at the budget (a clock costs as much as several moves).
const LOOK: u64 = 64;
/// Temperatures in median changes for the worse; the best of a grid of 12 on the paper's x9 and on 100 nodes.
const HOT: f64 = 0.3;
const COLD: f64 = 0.01;
/// Moves after which the sums are taken anew.
const RESYNC: u64 = 1 << 20;

struct Annealing<'b> {
    rng: fastrand::Rng,
    meter: Meter<'b>,
    grouped: bool,
    xs: Vec<u32>,
    ys: Vec<u32>,
}

impl Annealing<'_> {
    /// Who found no room is put where the least is missing, and places are relieved until all are within their capacity;
    /// who still is in the way is left out. Half of the budget at most.
    fn admit(&mut self, layout: &mut Layout<'_>) {
        let left: Vec<u32> = (0..layout.instance().containers().len() as u32).filter(|c| layout.at(*c).is_none()).collect();
        if left.is_empty() {
            return;
        }
        for c in &left {
            let allowed = (0..layout.instance().places().len()).filter(|p| layout.allows(&[*c], *p));
            if let Some(p) = allowed.min_by(|p, q| layout.after(&[*c], *p).0.total_cmp(&layout.after(&[*c], *q).0)) {
                layout.put(&[*c], p);
            }
        }
        let start = 0.01;
        while layout.over() > 0.0 {
            let spent = self.meter.spent() * 2.0;
            if spent >= 1.0 {
                break;
            }
            let heat = start * (1.0 - spent).max(1e-3);
            for _ in 0..LOOK {
                self.meter.done += 1;
                let Some((from, to)) = self.choose(layout, 0.1, true) else { continue };
                let Some(change) = layout.probe(from, &self.xs, to, &self.ys) else { continue };
                let worse = change.over() - layout.over() + 0.1 * (change.value - layout.value());
                if self.accepts(worse, heat) {
                    layout.commit(&change, &self.xs, &self.ys);
                    if layout.over() == 0.0 {
                        break;
                    }
                }
            }
        }
        self.evict(layout);
    }

    /// Takes containers off places that are over their capacity, the newest first.
    fn evict(&mut self, layout: &mut Layout<'_>) {
        for place in 0..layout.instance().places().len() {
            while layout.over_at(place) > 0.0 {
                let now = layout.instance().now();
                let newcomer = layout.on(place).iter().rev().find(|c| now[**c as usize].is_none()).or(layout.on(place).last()).copied();
                match newcomer {
                    Some(c) => layout.take(&[c]),
                    None => break,
                }
            }
        }
        layout.resync();
    }

    fn accepts(&mut self, worse: f64, heat: f64) -> bool {
        worse <= 0.0 || (worse < 12.0 * heat && self.rng.f64() < (-worse / heat).exp())
    }

    /// Anneals for what is left of the budget; the best placement seen.
    fn run(&mut self, layout: &mut Layout<'_>) -> Vec<Option<usize>> {
        let mut best = (layout.value(), layout.placement());
        if layout.instance().places().len() < 2 || layout.instance().containers().is_empty() {
            return best.1;
        }
        let (hot, cold) = self.heats(layout);
        let begin = self.meter.spent();
        let mut resync = RESYNC;
        // The best is copied when the search is about to leave it, not at every step towards it.
        let mut at_best = false;
        loop {
            let spent = (self.meter.spent() - begin) / (1.0 - begin).max(1e-9);
            if spent >= 1.0 || begin >= 1.0 {
                break;
            }
            let heat = hot * (cold / hot).powf(spent);
            for _ in 0..LOOK {
                self.meter.done += 1;
                let Some((from, to)) = self.choose(layout, spent, false) else { continue };
                let Some(change) = layout.probe(from, &self.xs, to, &self.ys) else { continue };
                let worse = change.value - layout.value();
                if self.accepts(worse, heat) {
                    if worse > 0.0 && at_best {
                        best = (layout.value(), layout.placement());
                        at_best = false;
                    }
                    layout.commit(&change, &self.xs, &self.ys);
                    at_best |= change.value < best.0 - 1e-12;
                }
            }
            if self.meter.done >= resync {
                layout.resync();
                resync += RESYNC;
            }
        }
        if at_best && layout.value() < best.0 { layout.placement() } else { best.1 }
    }

    /// The first and the last temperature, from the median change for the worse.
    fn heats(&mut self, layout: &mut Layout<'_>) -> (f64, f64) {
        let mut worse: Vec<f64> = Vec::new();
        for _ in 0..200 {
            if let Some((from, to)) = self.choose(layout, 1.0, false)
                && let Some(change) = layout.probe(from, &self.xs, to, &self.ys)
            {
                let w = change.value - layout.value();
                if w > 1e-12 {
                    worse.push(w);
                }
            }
        }
        worse.sort_by(f64::total_cmp);
        let typical = worse.get(worse.len() / 2).copied().unwrap_or(1e-3);
        (typical * HOT, typical * COLD)
    }

    /// Fills `xs` (what leaves) and `ys` (what comes back) and says between which places.
    fn choose(&mut self, layout: &Layout<'_>, spent: f64, relieve: bool) -> Option<(usize, usize)> {
        let instance = layout.instance();
        let (containers, places) = (instance.containers().len() as u32, instance.places().len());
        let x = self.rng.u32(0..containers);
        let from = layout.at(x)?;
        if relieve && layout.over_at(from) == 0.0 && self.rng.u8(..) < 192 {
            return None;
        }
        let near = instance.near(x);
        let to = if near.is_empty() || relieve || self.rng.u8(..) < 96 {
            self.rng.usize(0..places)
        } else {
            layout.at(near[self.rng.usize(0..near.len())].0)?
        };
        if to == from {
            return None;
        }
        self.xs.clear();
        self.ys.clear();
        let level = self.level(spent);
        gather(layout, level, x, from, &mut self.xs);
        if !layout.on(to).is_empty() && self.rng.bool() {
            let y = layout.on(to)[self.rng.usize(0..layout.on(to).len())];
            let level = self.level(spent);
            gather(layout, level, y, to, &mut self.ys);
        }
        Some((from, to))
    }

    fn level(&mut self, spent: f64) -> Level {
        if !self.grouped {
            return Level::Container;
        }
        let u = self.rng.f64();
        let broad = 0.9 - 0.7 * spent;
        if u < broad * 0.15 {
            Level::Copy
        } else if u < broad {
            Level::Group
        } else {
            Level::Container
        }
    }
}

#[derive(Clone, Copy)]
enum Level {
    Container,
    Group,
    Copy,
}

/// What belongs to `x` and is on the same place.
fn gather(layout: &Layout<'_>, level: Level, x: u32, place: usize, into: &mut Vec<u32>) {
    let instance = layout.instance();
    let unit = match level {
        Level::Container => {
            into.push(x);
            return;
        }
        Level::Group => &instance.groups()[instance.group_of(x)],
        Level::Copy => &instance.copies()[instance.copy_of(x)],
    };
    into.extend(unit.iter().copied().filter(|c| layout.at(*c) == Some(place)));
}
