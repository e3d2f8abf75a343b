//! CGS-DDPG as the paper evaluates it: trained on Bookinfo and Online Boutique, evaluated on Sock Shop.

use crate::catalogue::{Setting, bookinfo, online_boutique, paper, sock_shop_compose};
use crate::ddpg::{ConstantOrder, Trained, Training, collapsed};
use crate::greedy::Greedy;
use crate::policy::{Placed, Policy};
use crate::search::Search;
use drover_scheduling::groups::Instance;
use drover_scheduling::groups::Weights;

/// What the policy is trained on: both applications at four scales, alone on the paper's nodes.
pub fn training_set(rho: Option<usize>) -> Vec<Instance> {
    let at = |scale| Setting { scale, rho, ..Setting::default() };
    [1, 3, 6, 9].into_iter().flat_map(|scale| [paper(&bookinfo(), at(scale)), paper(&online_boutique(), at(scale))]).collect()
}

/// What the best weights are chosen by: the same applications at scales in between, never the test instance.
pub fn validation_set(rho: Option<usize>) -> Vec<Instance> {
    let at = |scale| Setting { scale, rho, ..Setting::default() };
    [2, 5, 8].into_iter().flat_map(|scale| [paper(&bookinfo(), at(scale)), paper(&online_boutique(), at(scale))]).collect()
}

/// One seed: how it was trained, and what it places on each scale of Sock Shop.
pub struct Run {
    /// Decides weights, noise and batches.
    pub seed: u64,
    /// The way there.
    pub trained: Trained,
    /// By scale, in the order of [`SCALES`].
    pub tests: Vec<Test>,
}

/// The scales of the evaluation.
pub const SCALES: [usize; 3] = [1, 3, 9];

/// A policy on one scale, beside what it must beat.
pub struct Test {
    /// Replicas of each service.
    pub scale: usize,
    /// The instance.
    pub instance: Instance,
    /// By the trained policy.
    pub trained: Placed,
    /// By the weights it began with.
    pub untrained: Placed,
    /// By the best of 200 fixed orders of the nodes.
    pub constant: Placed,
    /// By `cgs-greedy`.
    pub greedy: Placed,
    /// The trained one's, then 100,000 moves of search.
    pub polished: Placed,
    /// All on one node although the search uses several.
    pub collapsed: bool,
}

impl Test {
    /// Acceptance test 5: no worse placed, and a smaller objective.
    pub fn beats(&self, rival: &Placed) -> bool {
        (self.trained.unplaced.len(), self.trained.value) < (rival.unplaced.len(), rival.value - 1e-9)
    }
}

/// Trains one seed and evaluates it.
pub fn run(training: &Training, rho: Option<usize>, weights: &Weights, seed: u64, watch: &mut dyn FnMut(usize)) -> Run {
    let trained = training.run(&training_set(rho), &validation_set(rho), weights, seed, watch);
    let test = |scale| {
        let instance = paper(&sock_shop_compose(), Setting { scale, rho, ..Setting::default() });
        let placed = trained.best.place(&instance, weights);
        let search = Search::moves(100_000, seed);
        let found = search.place(&instance, weights);
        Test {
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
    Run { seed, trained, tests }
}

/// Rewards of episodes as a curve: the mean over windows of `window` updates.
pub fn curve(rewards: &[(usize, f64)], window: usize) -> Vec<(f64, f64)> {
    let mut sums: std::collections::BTreeMap<usize, (f64, f64)> = std::collections::BTreeMap::new();
    for (updates, reward) in rewards {
        let sum = sums.entry(updates / window.max(1)).or_default();
        *sum = (sum.0 + reward, sum.1 + 1.0);
    }
    sums.into_iter().map(|(w, (sum, n))| (((w * window) + window / 2) as f64, sum / n)).collect()
}
