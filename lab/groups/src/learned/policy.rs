//! `learned`: the learned policy as it is used, guarded by `cgs-greedy`.

use crate::greedy::{Greedy, begin};
use crate::policy::{Placed, Policy};
use drover_scheduling::groups::learned::{LearnedModel, Pass};
use drover_scheduling::groups::{Instance, Refinement, Weights};

/// The learned policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    model: LearnedModel,
    guarded: bool,
}

/// A placement by the learned policy, and what the guard did.
#[derive(Clone, Debug)]
pub struct GuardedPlacement {
    /// The placement that is taken.
    pub placed: Placed,
    /// The learned placement.
    pub learned: Placed,
    /// The placement of `cgs-greedy`.
    pub greedy: Placed,
    /// Whether greedy's placement is taken because it is better.
    pub took_greedy: bool,
    /// Passes made, and the one that is best.
    pub passes: usize,
    pub pass: Pass,
    /// What the refinement changed of what the network chose.
    pub refinement: Refinement,
}

impl Learned {
    /// The policy of a model, guarded.
    pub fn new(model: LearnedModel) -> Self {
        Self { model, guarded: true }
    }

    /// Without the guard, for measurements of what was learned.
    #[must_use]
    pub fn unguarded(mut self) -> Self {
        self.guarded = false;
        self
    }

    /// The model.
    pub fn model(&self) -> &LearnedModel {
        &self.model
    }

    /// The learned placement, refined, without the guard.
    pub fn learned(&self, instance: &Instance, weights: &Weights) -> Placed {
        let found = self.model.complete(&begin(instance, weights), weights);
        Placed::of(&found.layout, weights, found.steps as u64)
    }

    /// What the network alone chooses: without the refinement, without the guard.
    pub fn chosen(&self, instance: &Instance, weights: &Weights) -> Placed {
        let found = self.model.chosen(&begin(instance, weights), weights);
        Placed::of(&found.layout, weights, found.steps as u64)
    }

    /// Places, and tells what the guard did.
    pub fn guard(&self, instance: &Instance, weights: &Weights) -> GuardedPlacement {
        let found = self.model.complete(&begin(instance, weights), weights);
        let learned = Placed::of(&found.layout, weights, found.steps as u64);
        let greedy = Greedy::Groups.place(instance, weights);
        let took_greedy = (greedy.unplaced.len(), greedy.value) < (learned.unplaced.len(), learned.value);
        let placed = if took_greedy { greedy.clone() } else { learned.clone() };
        GuardedPlacement { placed, learned, greedy, took_greedy, passes: found.passes, pass: found.pass, refinement: found.refinement }
    }
}

impl Policy for Learned {
    fn name(&self) -> String {
        "learned".to_owned()
    }

    fn place(&self, instance: &Instance, weights: &Weights) -> Placed {
        if self.guarded { self.guard(instance, weights).placed } else { self.learned(instance, weights) }
    }
}
