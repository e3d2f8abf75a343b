//! `cgs-search`, the default policy: simulated annealing over copies of applications, copies of groups, and containers.
//!
//! Groups define the neighbourhood, they are no rule: a move takes the part of a group that is on one place to another place, or
//! exchanges it for something there. Later moves take single containers, so that a group is split where that improves the objective. The
//! search can be stopped at any time, because the best placement so far is kept. With a budget in moves the result depends on the seed
//! alone.

use crate::annealing::{BudgetMeter, Heat, SearchBudget, Start, anneal, improve};
use crate::exact::Exact;
use crate::policy::{Placed, Policy};
use drover_scheduling::groups::{Instance, Layout, Weights};

/// Instances with at most this many placements are searched exhaustively.
const FEW: f64 = 10_000.0;
/// On more places than these the search starts from the learned policy: there it is soon ahead of the greedy start, its own time included.
/// On few places the passes take longer than they save.
const MANY: usize = 80;

/// Simulated annealing with groups as a neighbourhood.
#[derive(Clone, Debug)]
pub struct Search {
    /// Seed of all random choices.
    pub seed: u64,
    pub budget: SearchBudget,
    /// Whether groups and whole copies are moved too; otherwise only containers are.
    pub grouped: bool,
}

impl Search {
    /// A search with groups and a budget in moves.
    pub fn moves(moves: u64, seed: u64) -> Self {
        Self { seed, budget: SearchBudget::Moves(moves), grouped: true }
    }

    /// Continues the search from a placement that another policy made, for example to improve a learned one. The shorter the search, the less
    /// it leaves of the placement's neighbourhood.
    pub fn polish(&self, instance: &Instance, weights: &Weights, from: &Placed) -> Placed {
        self.continued(instance, weights, from, Heat::ByBudget)
    }

    /// As [`Search::polish`], but the search begins as hot as from the greedy placement, whatever its budget.
    pub fn reheat(&self, instance: &Instance, weights: &Weights, from: &Placed) -> Placed {
        self.continued(instance, weights, from, Heat::Full)
    }

    fn continued(&self, instance: &Instance, weights: &Weights, from: &Placed, heat: Heat) -> Placed {
        let meter = BudgetMeter::start(&self.budget);
        improve(Layout::of(instance, *weights, &from.at), weights, meter, self.seed, self.grouped, heat)
    }
}

impl Policy for Search {
    fn name(&self) -> String {
        if self.grouped { "cgs-search" } else { "search" }.to_owned()
    }

    fn place(&self, instance: &Instance, weights: &Weights) -> Placed {
        // On nearly full places no exchange may lead to the optimum, so a small instance is searched exhaustively.
        let placements = (instance.places().len() as f64).powi(i32::try_from(instance.containers().len()).unwrap_or(i32::MAX));
        if placements <= FEW {
            let proof = Exact { limit: FEW as u64, ..Exact::default() }.prove(instance, weights);
            if proof.proven {
                return proof.placed;
            }
        }
        let start = match instance.places().len() {
            _ if !self.grouped => Start::Containers,
            places if places > MANY => Start::Learned,
            _ => Start::Groups,
        };
        anneal(instance, weights, &self.budget, self.seed, start)
    }
}
