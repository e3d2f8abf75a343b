//! Simulated annealing over the placements of an instance: the algorithm of `cgs-search`, and the first placement of `exact`.
//!
//! The neighbourhood is described in `search.rs`. The best placement seen so far is kept. With a budget in moves the result depends on
//! the seed alone.

use std::sync::Arc;

use crate::greedy::{begin, fill, heaviest_first};
use crate::policy::Placed;
use drover_scheduling::groups::learned::LearnedModel;
use drover_scheduling::groups::{Instance, Layout, Weights};

/// The budget of a search.
#[derive(Clone)]
pub enum SearchBudget {
    /// Number of moves to evaluate. The result does not depend on the machine.
    Moves(u64),
    /// Number of seconds by the given clock, which may be the CPU time of the thread.
    Seconds(f64, Arc<dyn Fn() -> f64 + Send + Sync>),
}

impl SearchBudget {
    /// About how many moves it allows.
    fn moves(&self) -> f64 {
        match self {
            Self::Moves(n) => *n as f64,
            Self::Seconds(s, _) => s * PER_SECOND,
        }
    }
}

impl std::fmt::Debug for SearchBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Moves(n) => write!(f, "{n} moves"),
            Self::Seconds(s, _) => write!(f, "{s} s"),
        }
    }
}

/// Builds a first placement and anneals it until the budget is spent, however small the instance is.
pub(super) fn anneal(instance: &Instance, weights: &Weights, budget: &SearchBudget, seed: u64, start: Start) -> Placed {
    let meter = BudgetMeter::start(budget);
    let grouped = start != Start::Containers;
    let (layout, heat) = match start {
        Start::Learned => {
            let (model, empty) = (LearnedModel::shipped(), begin(instance, weights));
            let short = budget.moves() < REFINED * instance.containers().len() as f64;
            let found = if short { model.complete(&empty, weights) } else { model.chosen(&empty, weights) };
            (found.layout, Heat::ByBudget)
        }
        Start::Groups | Start::Containers => (first(instance, weights, grouped), Heat::Full),
    };
    improve(layout, weights, meter, seed, grouped, heat)
}

/// The temperature at which a search begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heat {
    /// The first one.
    Full,
    /// The lower, the fewer moves the budget allows: for a placement that is good already.
    ByBudget,
}

/// What makes the first placement, and what moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Greedy, container by container; only containers move.
    Containers,
    /// Greedy, group by group.
    Groups,
    /// The learned policy.
    Learned,
}

/// Anneals from the given layout until the budget is spent.
pub(super) fn improve(mut layout: Layout<'_>, weights: &Weights, meter: BudgetMeter<'_>, seed: u64, grouped: bool, heat: Heat) -> Placed {
    let mut annealing = Annealing { heat, ..Annealing::new(seed, meter, grouped) };
    annealing.admit(&mut layout);
    let best = annealing.run(&mut layout);
    Placed::of(&Layout::of(layout.instance(), *weights, &best), weights, annealing.meter.done)
}

/// Anneals only the containers in `open`; all others stay where they are. Returns the best placement seen.
pub(crate) fn improve_some(mut layout: Layout<'_>, open: Vec<u32>, moves: u64, seed: u64) -> Vec<Option<usize>> {
    let budget = SearchBudget::Moves(moves);
    let mut annealing = Annealing::new(seed, BudgetMeter::start(&budget), true);
    let mut movable = vec![false; layout.instance().containers().len()];
    open.iter().for_each(|c| movable[*c as usize] = true);
    annealing.only = Some((open, movable));
    annealing.run(&mut layout)
}

/// The first placement: units in order of decreasing demand, each on the place where the objective is least.
fn first<'i>(instance: &'i Instance, weights: &Weights, grouped: bool) -> Layout<'i> {
    let mut layout = begin(instance, weights);
    let units = if grouped { heaviest_first(instance, instance.groups()) } else { crate::greedy::singles(instance) };
    fill(&mut layout, &units, &|l, unit, place| l.value_with(unit, place));
    layout
}

/// Measures how much of a budget is spent.
pub(super) struct BudgetMeter<'b> {
    budget: &'b SearchBudget,
    began: f64,
    pub(super) done: u64,
}

impl<'b> BudgetMeter<'b> {
    pub(super) fn start(budget: &'b SearchBudget) -> Self {
        let began = if let SearchBudget::Seconds(_, clock) = budget { clock() } else { 0.0 };
        Self { budget, began, done: 0 }
    }
    /// The share of the budget that is spent; at least 1 when it is used up.
    pub(super) fn spent(&self) -> f64 {
        match self.budget {
            SearchBudget::Moves(n) => self.done as f64 / (*n).max(1) as f64,
            SearchBudget::Seconds(s, clock) => (clock() - self.began) / s.max(1e-9),
        }
    }
}

/// Moves for each container up to which a search starts from the refined learned placement. A longer one finds better placements from what the
/// network alone has chosen: from a refined one no small change leads on.
const REFINED: f64 = 250.0;
/// About the number of moves in a second.
const PER_SECOND: f64 = 5e6;
/// Number of moves between two checks of the budget (reading a clock costs as much as several moves).
const CHECK_EVERY: u64 = 64;
/// First and last temperature, in units of the median worsening of a random move; the best of a grid of 12 on the paper's x9 and on 100
/// nodes.
const HOT: f64 = 0.3;
const COLD: f64 = 0.01;
/// Random moves from which the temperatures are derived.
const PROBES: u32 = 200;
/// Moves for each container up to which a search from a good placement begins with the last temperature, and from which with the first one: a
/// short search that begins hot spends its time on repairing what it has destroyed. From the greedy placement it is better to begin hot.
const SHORT: f64 = 60.0;
const LONG: f64 = 4_000.0;
/// Number of moves after which the sums are recomputed from scratch.
const RESYNC: u64 = 1 << 20;

struct Annealing<'b> {
    rng: fastrand::Rng,
    meter: BudgetMeter<'b>,
    grouped: bool,
    xs: Vec<u32>,
    ys: Vec<u32>,
    /// The containers that may move, as a list and by container; `None`: all.
    only: Option<(Vec<u32>, Vec<bool>)>,
    heat: Heat,
}

impl<'b> Annealing<'b> {
    fn new(seed: u64, meter: BudgetMeter<'b>, grouped: bool) -> Self {
        Self { rng: fastrand::Rng::with_seed(seed), meter, grouped, xs: Vec::new(), ys: Vec::new(), only: None, heat: Heat::Full }
    }

    /// Puts each container without a place where the least room is missing, and then moves containers until all places are within their
    /// capacity. What still does not fit is taken off again. Uses at most half of the budget.
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
            for _ in 0..CHECK_EVERY {
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

    /// Takes containers off places that exceed their capacity, the newest first.
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

    /// Whether to make a move that makes the value worse by `worse` at the temperature `heat` (Metropolis). A move whose chance is below
    /// exp(-12) is refused without drawing a number.
    fn accepts(&mut self, worse: f64, heat: f64) -> bool {
        worse <= 0.0 || (worse < 12.0 * heat && self.rng.f64() < (-worse / heat).exp())
    }

    /// Anneals for the rest of the budget and returns the best placement seen.
    fn run(&mut self, layout: &mut Layout<'_>) -> Vec<Option<usize>> {
        let mut best = (layout.value(), layout.placement());
        if layout.instance().places().len() < 2 || layout.instance().containers().is_empty() {
            return best.1;
        }
        let probing = self.meter.spent();
        let (hot, cold) = self.heats(layout);
        let begin = self.meter.spent();
        let hot = match self.heat {
            Heat::Full => hot,
            Heat::ByBudget => self.tempered(hot, cold, begin - probing, layout.instance().containers().len()),
        };
        let mut resync = RESYNC;
        // The best placement is copied when the search is about to leave it, not at every step towards it.
        let mut at_best = false;
        loop {
            let spent = (self.meter.spent() - begin) / (1.0 - begin).max(1e-9);
            if spent >= 1.0 || begin >= 1.0 {
                break;
            }
            let heat = hot * (cold / hot).powf(spent);
            for _ in 0..CHECK_EVERY {
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

    /// The first temperature for the moves that the budget allows. `probing` is the share of it that [`Annealing::heats`] has spent.
    fn tempered(&self, hot: f64, cold: f64, probing: f64, containers: usize) -> f64 {
        let moves = match self.meter.budget {
            SearchBudget::Moves(n) => n.saturating_sub(self.meter.done) as f64,
            SearchBudget::Seconds(..) => (1.0 - self.meter.spent()) * f64::from(PROBES) / probing.max(1e-12),
        };
        let share = (moves / containers as f64 / SHORT).max(1.0).ln() / (LONG / SHORT).ln();
        cold * (hot / cold).powf(share.min(1.0))
    }

    /// The first and the last temperature, from the median worsening of random moves.
    fn heats(&mut self, layout: &mut Layout<'_>) -> (f64, f64) {
        let mut worse: Vec<f64> = Vec::new();
        for _ in 0..PROBES {
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

    /// Chooses a move: fills `xs` (what moves) and `ys` (what moves in the opposite direction), and returns the two places.
    ///
    /// Three of eight moves go to any place, the others to where a container is that calls the chosen one. With `relieve` all go to any
    /// place, and three of four that would leave a place within its capacity are not made.
    fn choose(&mut self, layout: &Layout<'_>, spent: f64, relieve: bool) -> Option<(usize, usize)> {
        let instance = layout.instance();
        let (containers, places) = (instance.containers().len() as u32, instance.places().len());
        let x = match &self.only {
            Some((open, _)) => open[self.rng.usize(0..open.len())],
            None => self.rng.u32(0..containers),
        };
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
        if let Some((_, movable)) = &self.only {
            self.xs.retain(|c| movable[*c as usize]);
            self.ys.retain(|c| movable[*c as usize]);
        }
        Some((from, to))
    }

    /// How much moves together. At first nine of ten moves take a group or (one in seven of them) a whole copy; at the end two of ten do.
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

/// What moves together, as far as it is on one place.
#[derive(Clone, Copy)]
enum Level {
    Container,
    /// A copy of a group.
    Group,
    /// A copy of the whole application.
    Copy,
}

/// Collects what belongs to the same unit as `x` and is on the same place.
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
