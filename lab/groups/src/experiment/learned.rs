//! The learned policy beside what it must beat, on instances that it was not trained on.

use super::cases::{BenchmarkCase, scales, uniform};
use crate::catalogue::Setting;
use crate::ddpg::{ConstantOrder, collapsed};
use crate::greedy::Greedy;
use crate::learned::{InstanceRanges, Learned};
use crate::policy::{Placed, Policy};
use crate::search::Search;
use drover_scheduling::groups::learned::{LearnedModel, REFINEMENT};
use drover_scheduling::groups::{Instance, Layout, Weights};

/// Objectives that differ by less are equal.
const EQUAL: f64 = 1e-9;

/// What does not depend on the model: computed once for all seeds.
pub struct LearnedCase {
    pub name: &'static str,
    pub instance: Instance,
    pub greedy: Placed,
    pub greedy_refined: Placed,
    /// The best of 200 constant orders of the nodes.
    pub constant: Placed,
    /// 100,000 moves of search.
    pub search: Placed,
}

/// The learned policy, without its guard, on one case.
pub struct LearnedScore {
    /// What the trained network alone chooses.
    pub trained: Placed,
    pub untrained: Placed,
    /// What the whole policy makes with the trained weights, and below with the untrained ones.
    pub refined: Placed,
    pub untrained_refined: Placed,
    pub collapsed: bool,
    /// What is wrong with the trained placement and the refined one; must be empty.
    pub faults: Vec<String>,
}

/// A placement after one refinement of the effort that the learned policy has in all.
pub fn refined(instance: &Instance, weights: &Weights, placed: &Placed) -> Placed {
    let mut layout = Layout::of(instance, *weights, &placed.at);
    let refinement = layout.refine(REFINEMENT);
    Placed::of(&layout, weights, refinement.exchanges as u64)
}

impl LearnedScore {
    /// Whether the trained policy is better: fewer unplaced containers or, with as many, a smaller objective.
    pub fn beats(&self, rival: &Placed) -> bool {
        (self.trained.unplaced.len(), self.trained.value) < (rival.unplaced.len(), rival.value - EQUAL)
    }
}

/// Sock Shop at the paper's scales, and with replicas that call each other round robin.
pub fn learned_cases(weights: &Weights, seed: u64) -> Vec<LearnedCase> {
    let case = |case: BenchmarkCase| {
        let greedy = Greedy::Groups.place(&case.instance, weights);
        LearnedCase {
            greedy_refined: refined(&case.instance, weights, &greedy),
            greedy,
            constant: ConstantOrder::best(&case.instance, weights, 200, seed).1,
            search: Search::moves(100_000, seed).place(&case.instance, weights),
            name: case.name,
            instance: case.instance,
        }
    };
    scales(Setting::default()).into_iter().chain(uniform()).map(case).collect()
}

/// Evaluates a model on one case.
pub fn learned_score(case: &LearnedCase, model: &LearnedModel, untrained: &LearnedModel, weights: &Weights) -> LearnedScore {
    let both = [model, untrained].map(|model| Learned::new(model.clone()));
    let [trained, untrained] = both.each_ref().map(|policy| policy.chosen(&case.instance, weights));
    let [refined, untrained_refined] = both.each_ref().map(|policy| policy.learned(&case.instance, weights));
    let on_one_node = |placed: &Placed| collapsed(&case.instance, placed, &case.search);
    LearnedScore {
        collapsed: on_one_node(&trained) || on_one_node(&refined),
        faults: [trained.faults(&case.instance), refined.faults(&case.instance)].concat(),
        trained,
        untrained,
        refined,
        untrained_refined,
    }
}

/// For each of `count` generated instances, the objective of what the network alone chooses, and of the whole policy, divided by that of
/// `cgs-greedy`; a container that only one of them leaves out counts as 1. The training had fewer places and services.
pub fn learned_ratios(model: &LearnedModel, count: usize, weights: &Weights) -> [Vec<f64>; 2] {
    let mut rng = fastrand::Rng::with_seed(0x0e7a_1000);
    let ranges = InstanceRanges::evaluation();
    let learned = Learned::new(model.clone());
    let worth = |placed: &Placed| placed.value + placed.unplaced.len() as f64;
    let mut ratios = [Vec::new(), Vec::new()];
    for instance in (0..count).map(|_| ranges.draw(&mut rng)) {
        let greedy = worth(&Greedy::Groups.place(&instance, weights));
        ratios[0].push(worth(&learned.chosen(&instance, weights)) / greedy);
        ratios[1].push(worth(&learned.learned(&instance, weights)) / greedy);
    }
    ratios
}
