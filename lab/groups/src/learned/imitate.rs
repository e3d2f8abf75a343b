//! The first teacher: `cgs-search`. It completes the placements that the learner has reached, and the learner is told what it would have
//! done there (DAgger, Ross et al. 2011).

use super::samples::{Sample, Samples};
use crate::annealing::improve_some;
use drover_scheduling::groups::learned::{Construction, ScoreNet, best};
use drover_scheduling::groups::{Instance, Weights};

/// The settings of the imitation.
#[derive(Clone, Debug, PartialEq)]
pub struct Imitation {
    /// Moves of the teacher's search for each container that is not placed.
    pub moves: u64,
    /// Steps for which a teacher's plan is followed before the learner goes on.
    pub follow: usize,
    /// Steps of the learner between two plans.
    pub between: usize,
}

impl Default for Imitation {
    fn default() -> Self {
        Self { moves: 100, follow: 10, between: 8 }
    }
}

/// Places an instance with the learner and lets the teacher label what it meets.
pub fn episode(
    how: &Imitation,
    instance: &Instance,
    weights: &Weights,
    net: Option<&ScoreNet>,
    rng: &mut fastrand::Rng,
    into: &mut Samples,
) -> usize {
    let mut construction = Construction::of(crate::greedy::begin(instance, weights), *weights);
    let mut scores = Vec::new();
    let (mut labels, mut until_plan) = (0, rng.usize(0..=how.between));
    while !construction.options().is_empty() {
        if until_plan > 0 {
            until_plan = until_plan.saturating_sub(1);
            let option = match net {
                Some(net) => {
                    net.score(construction.rows(), &mut scores);
                    best(&scores)
                }
                None => rng.usize(0..construction.options().len()),
            };
            construction.take(option);
            continue;
        }
        let plan = plan(how, &construction, rng);
        for _ in 0..how.follow.max(1) {
            if construction.options().is_empty() {
                break;
            }
            let Some(label) = wanted(&construction, &plan) else { break };
            into.add(Sample::labelled(construction.rows(), label), rng);
            labels += 1;
            construction.take(label);
        }
        // At least one step, because the plan may name no option.
        until_plan = if net.is_some() { how.between } else { 1 };
    }
    labels
}

/// Where the search puts what is not placed yet, while everything else stays.
fn plan(how: &Imitation, construction: &Construction<'_>, rng: &mut fastrand::Rng) -> Vec<Option<usize>> {
    let (layout, open) = super::completed(construction);
    let placed: Vec<u32> = open.into_iter().filter(|c| layout.at(*c).is_some()).collect();
    if placed.is_empty() {
        return layout.placement();
    }
    let moves = how.moves * placed.len() as u64;
    improve_some(layout, placed, moves, rng.u64(..))
}

/// The option that leads to the plan: the place, if the plan has the whole unit on one, else splitting it.
fn wanted(construction: &Construction<'_>, plan: &[Option<usize>]) -> Option<usize> {
    let (first, others) = construction.unit().split_first()?;
    let place = plan[*first as usize]?;
    let whole = others.iter().all(|c| plan[*c as usize] == Some(place));
    let option = if whole { Some(place) } else { None };
    construction.options().iter().position(|o| *o == option)
}
