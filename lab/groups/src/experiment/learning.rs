//! CGS-DDPG as the paper evaluates it: trained on Bookinfo and Online Boutique, evaluated on Sock Shop.

use crate::catalogue::{Setting, bookinfo, online_boutique, paper, sock_shop_compose};
use crate::ddpg::{ConstantOrder, Trained, Training, collapsed};
use crate::greedy::Greedy;
use crate::policy::{Placed, Policy};
use crate::search::Search;
use drover_scheduling::groups::{Instance, Weights};

/// The training instances: both applications at four scales, each alone on the paper's nodes.
pub fn training_set(rho: Option<usize>) -> Vec<Instance> {
    let at = |scale| Setting { scale, rho, ..Setting::default() };
    [1, 3, 6, 9].into_iter().flat_map(|scale| [paper(&bookinfo(), at(scale)), paper(&online_boutique(), at(scale))]).collect()
}

/// The validation instances, by which the best weights are chosen: the same applications at other scales, and never a test instance.
pub fn validation_set(rho: Option<usize>) -> Vec<Instance> {
    let at = |scale| Setting { scale, rho, ..Setting::default() };
    [2, 5, 8].into_iter().flat_map(|scale| [paper(&bookinfo(), at(scale)), paper(&online_boutique(), at(scale))]).collect()
}

/// The training with one seed, and its evaluation on each scale of Sock Shop.
pub struct TrainingRun {
    /// Seed of weights, noise and batches.
    pub seed: u64,
    /// The trained policy and the course of its training.
    pub trained: Trained,
    /// In the order of [`SCALES`].
    pub tests: Vec<ScaleEvaluation>,
}

/// The scales of the evaluation, in replicas of each service.
pub const SCALES: [usize; 3] = [1, 3, 9];

/// The trained policy on one scale, beside the placements that it must beat.
pub struct ScaleEvaluation {
    pub scale: usize,
    pub instance: Instance,
    /// The placement of the trained policy.
    pub trained: Placed,
    /// The placement of the policy before its training.
    pub untrained: Placed,
    /// The placement by the best of 200 fixed orders of the nodes.
    pub constant: Placed,
    /// The placement of `cgs-greedy`.
    pub greedy: Placed,
    /// The placement of the trained policy after 100,000 moves of search.
    pub polished: Placed,
    /// Whether all containers are on one node although the search uses several.
    pub collapsed: bool,
}

impl ScaleEvaluation {
    /// Whether the trained policy is better: fewer unplaced containers or, with as many, a smaller objective.
    pub fn beats(&self, rival: &Placed) -> bool {
        (self.trained.unplaced.len(), self.trained.value) < (rival.unplaced.len(), rival.value - 1e-9)
    }
}

/// Trains with one seed and evaluates the result.
pub fn run(training: &Training, rho: Option<usize>, weights: &Weights, seed: u64, watch: &mut dyn FnMut(usize)) -> TrainingRun {
    let trained = training.run(&training_set(rho), &validation_set(rho), weights, seed, watch);
    let test = |scale| {
        let instance = paper(&sock_shop_compose(), Setting { scale, rho, ..Setting::default() });
        let placed = trained.best.place(&instance, weights);
        let search = Search::moves(100_000, seed);
        let found = search.place(&instance, weights);
        ScaleEvaluation {
            scale,
            untrained: trained.untrained.place(&instance, weights),
            constant: ConstantOrder::best(&instance, weights, 200, seed).1,
            greedy: Greedy::Groups.place(&instance, weights),
            polished: search.polish(&instance, weights, &placed),
            collapsed: collapsed(&instance, &placed, &found),
            trained: placed,
            instance,
        }
    };
    let tests = SCALES.into_iter().map(test).collect();
    TrainingRun { seed, trained, tests }
}

/// The rewards of the episodes as a curve: means over windows of `window` updates.
pub fn curve(rewards: &[(usize, f64)], window: usize) -> Vec<(f64, f64)> {
    let mut sums: std::collections::BTreeMap<usize, (f64, f64)> = std::collections::BTreeMap::new();
    for (updates, reward) in rewards {
        let sum = sums.entry(updates / window.max(1)).or_default();
        *sum = (sum.0 + reward, sum.1 + 1.0);
    }
    sums.into_iter().map(|(w, (sum, n))| (((w * window) + window / 2) as f64, sum / n)).collect()
}
