//! The search on this objective: simulated annealing with shifts and swaps as in `cgs-search`, starting from the given assignment.
//!
//! Invariant: every assignment that it visits keeps all constraints (if the first one does), so the moves can be carried out in any order
//! that transient use allows. Cost and use are updated move by move; tests compare them with the checker.

use std::collections::BTreeMap;

use super::read::Reassignment;
use crate::annealing::{BudgetMeter, SearchBudget};

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchResult {
    pub at: Vec<usize>,
    /// The cost of the assignment.
    pub total: i64,
    /// Number of moves that were evaluated.
    pub effort: u64,
}

/// Anneals from the initial assignment. Deterministic for a seed and a budget in moves.
pub fn improve(instance: &Reassignment, budget: &SearchBudget, seed: u64) -> SearchResult {
    let mut meter = BudgetMeter::start(budget);
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut state = SearchState::new(instance);
    let (mut best, mut total) = (state.at.clone(), state.total());
    if instance.machines.len() < 2 || instance.processes.is_empty() {
        return SearchResult { at: best, total, effort: 0 };
    }
    let hot = state.typical(&mut rng);
    let cold = (hot * 1e-4).max(0.05);
    let mut at_best = false;
    loop {
        let spent = meter.spent();
        if spent >= 1.0 {
            break;
        }
        let heat = hot * (cold / hot).powf(spent);
        for _ in 0..64 {
            meter.done += 1;
            let before = state.total();
            let Some(change) = state.random_move(&mut rng) else { continue };
            let worse = (state.total() - before) as f64;
            if worse > 0.0 && (worse > 12.0 * heat || rng.f64() >= (-worse / heat).exp()) {
                state.undo(&change);
                continue;
            }
            if at_best && worse > 0.0 {
                state.undo(&change);
                (best, total) = (state.at.clone(), state.total());
                state.redo(&change);
                at_best = false;
            }
            at_best |= state.total() < total;
        }
    }
    if at_best && state.total() < total {
        (best, total) = (state.at.clone(), state.total());
    }
    SearchResult { at: best, total, effort: meter.done }
}

/// Moved processes, each as process, old machine and new machine.
type Moved = Vec<(usize, usize, usize)>;

struct SearchState<'i> {
    instance: &'i Reassignment,
    at: Vec<usize>,
    on: Vec<Vec<usize>>,
    used: Vec<Vec<i64>>,
    /// Use of transient resources by processes that moved away, by machine.
    held: Vec<Vec<i64>>,
    machine_cost: Vec<i64>,
    machines: i64,
    moves: i64,
    moved: Vec<usize>,
    /// Number of services by their number of moves.
    with: Vec<usize>,
    /// The largest number of moves of any service.
    most: usize,
    in_location: BTreeMap<(usize, usize), usize>,
    locations: Vec<usize>,
    in_neighborhood: BTreeMap<(usize, usize), usize>,
    needed_by: Vec<Vec<usize>>,
}

impl<'i> SearchState<'i> {
    fn new(instance: &'i Reassignment) -> Self {
        let (m, s) = (instance.machines.len(), instance.services.len());
        let mut needed_by = vec![Vec::new(); s];
        for (service, rules) in instance.services.iter().enumerate() {
            rules.depends_on.iter().for_each(|needs| needed_by[*needs].push(service));
        }
        let mut state = Self {
            instance,
            at: instance.initial.clone(),
            on: vec![Vec::new(); m],
            used: vec![vec![0; instance.resources.len()]; m],
            held: vec![vec![0; instance.resources.len()]; m],
            machine_cost: vec![0; m],
            machines: 0,
            moves: 0,
            moved: vec![0; s],
            with: vec![0; instance.processes.len() + 1],
            most: 0,
            in_location: BTreeMap::new(),
            locations: vec![0; s],
            in_neighborhood: BTreeMap::new(),
            needed_by,
        };
        state.with[0] = s;
        for p in 0..instance.processes.len() {
            state.enter(p, instance.initial[p]);
        }
        for machine in 0..m {
            state.recost(machine);
        }
        state
    }

    fn total(&self) -> i64 {
        self.machines + self.moves + self.instance.weights[1] * self.most as i64
    }

    /// A tenth of the median worsening of a random move: processes differ by orders of magnitude.
    fn typical(&mut self, rng: &mut fastrand::Rng) -> f64 {
        let mut worse = Vec::new();
        for _ in 0..500 {
            let before = self.total();
            if let Some(change) = self.random_move(rng) {
                worse.push((self.total() - before).max(0));
                self.undo(&change);
            }
        }
        worse.retain(|w| *w > 0);
        worse.sort_unstable();
        worse.get(worse.len() / 2).map_or(1.0, |w| (*w as f64 / 10.0).max(1.0))
    }

    /// Carries out a random shift or swap that keeps all constraints. Returns `None` if the one that was tried does not.
    fn random_move(&mut self, rng: &mut fastrand::Rng) -> Option<Moved> {
        let p = rng.usize(0..self.at.len());
        let (from, to) = (self.at[p], rng.usize(0..self.on.len()));
        if from == to {
            return None;
        }
        let mut change = vec![(p, from, to)];
        if rng.bool() && !self.on[to].is_empty() {
            change.push((self.on[to][rng.usize(0..self.on[to].len())], to, from));
        } else if !self.has_room(p, to) {
            return None;
        }
        self.redo(&change);
        if change.iter().all(|(p, from, to)| self.sound(*p, *from, *to)) {
            Some(change)
        } else {
            self.undo(&change);
            None
        }
    }

    fn has_room(&self, p: usize, to: usize) -> bool {
        let process = &self.instance.processes[p];
        let home = self.instance.initial[p] == to;
        let fits = |(r, resource): (usize, &super::Resource)| {
            let more = if home && resource.transient { 0 } else { process.requirement[r] };
            self.used[to][r] + self.held[to][r] + more <= self.instance.machines[to].capacity[r]
        };
        self.instance.resources.iter().enumerate().all(fits)
    }

    /// Whether all constraints that concern a move hold after it was carried out.
    fn sound(&self, p: usize, from: usize, to: usize) -> bool {
        let service = self.instance.processes[p].service;
        let (left, entered) = (&self.instance.machines[from], &self.instance.machines[to]);
        let room = (0..self.used[to].len()).all(|r| self.used[to][r] + self.held[to][r] <= entered.capacity[r]);
        let here = |s: usize, n: usize| self.in_neighborhood.get(&(s, n)).copied().unwrap_or(0) > 0;
        room && self.on[to].iter().filter(|q| self.instance.processes[**q].service == service).count() == 1
            && self.locations[service] >= self.instance.services[service].spread
            && self.instance.services[service].depends_on.iter().all(|needs| here(*needs, entered.neighborhood))
            && (here(service, left.neighborhood) || !self.needed_by[service].iter().any(|s| here(*s, left.neighborhood)))
    }

    fn redo(&mut self, change: &Moved) {
        for (p, from, to) in change {
            self.shift(*p, *from, *to);
        }
        self.recost(change[0].1);
        self.recost(change[0].2);
    }

    fn undo(&mut self, change: &Moved) {
        for (p, from, to) in change {
            self.shift(*p, *to, *from);
        }
        self.recost(change[0].1);
        self.recost(change[0].2);
    }

    fn recost(&mut self, machine: usize) {
        let (load, balance) = self.instance.machine_cost(&self.instance.machines[machine], &self.used[machine]);
        self.machines += load + balance - self.machine_cost[machine];
        self.machine_cost[machine] = load + balance;
    }

    fn shift(&mut self, p: usize, from: usize, to: usize) {
        let process = &self.instance.processes[p];
        self.on[from].retain(|q| *q != p);
        self.used[from].iter_mut().zip(&process.requirement).for_each(|(u, q)| *u -= q);
        let (location, neighborhood) = (self.instance.machines[from].location, self.instance.machines[from].neighborhood);
        let n = self.in_location.entry((process.service, location)).or_default();
        *n -= 1;
        self.locations[process.service] -= usize::from(*n == 0);
        *self.in_neighborhood.entry((process.service, neighborhood)).or_default() -= 1;

        let home = self.instance.initial[p];
        let sign = i64::from(from == home) - i64::from(to == home);
        for (r, _) in self.instance.resources.iter().enumerate().filter(|(_, r)| r.transient) {
            self.held[home][r] += sign * process.requirement[r];
        }
        let cost = |m: usize| {
            if m == home {
                0
            } else {
                self.instance.weights[0] * process.move_cost + self.instance.weights[2] * self.instance.machines[home].move_cost[m]
            }
        };
        self.moves += cost(to) - cost(from);
        self.with[self.moved[process.service]] -= 1;
        self.moved[process.service] = self.moved[process.service].saturating_add_signed(sign as isize);
        self.with[self.moved[process.service]] += 1;
        self.most = self.most.max(self.moved[process.service]);
        while self.most > 0 && self.with[self.most] == 0 {
            self.most -= 1;
        }
        self.enter(p, to);
    }

    fn enter(&mut self, p: usize, to: usize) {
        let process = &self.instance.processes[p];
        self.at[p] = to;
        self.on[to].push(p);
        self.used[to].iter_mut().zip(&process.requirement).for_each(|(u, q)| *u += q);
        let machine = &self.instance.machines[to];
        let n = self.in_location.entry((process.service, machine.location)).or_default();
        *n += 1;
        self.locations[process.service] += usize::from(*n == 1);
        *self.in_neighborhood.entry((process.service, machine.neighborhood)).or_default() += 1;
    }
}
