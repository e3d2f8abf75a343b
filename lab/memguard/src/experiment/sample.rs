//! Many runs of one world under one guard, and how two such samples compare.

use crate::simulate::{Outcome, World, simulate};
use drover_memguard::Guard;

/// Outcomes of the same world, a seed each.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// In the order of the seeds.
    pub outcomes: Vec<Outcome>,
}

impl Sample {
    /// Runs `seeds` runs from `first` on.
    pub fn take(world: &World, guard: Option<&Guard>, first: u64, seeds: u64) -> Self {
        Self { outcomes: (first..first + seeds).map(|seed| simulate(world, guard, seed)).collect() }
    }

    /// A measure of each run.
    pub fn each(&self, measure: impl Fn(&Outcome) -> f64) -> Vec<f64> {
        self.outcomes.iter().map(measure).collect()
    }

    /// Its mean.
    pub fn mean(&self, measure: impl Fn(&Outcome) -> f64) -> f64 {
        self.each(measure).iter().sum::<f64>() / self.outcomes.len().max(1) as f64
    }

    /// Restarts per container, mean.
    pub fn restarts(&self) -> f64 {
        self.mean(Outcome::restart_ratio)
    }

    /// Workflow time in seconds, mean.
    pub fn workflow(&self) -> f64 {
        self.mean(|outcome| outcome.workflow)
    }

    /// Change of a mean against `base`, in percent: the paper compares means. Zero when both are zero.
    pub fn change(&self, base: &Self, measure: impl Fn(&Outcome) -> f64 + Copy) -> f64 {
        let (new, old) = (self.mean(measure), base.mean(measure));
        if new == old { 0.0 } else { (new / old - 1.0) * 100.0 }
    }

    /// Change of restarts against `base`, in percent.
    pub fn restarts_change(&self, base: &Self) -> f64 {
        self.change(base, Outcome::restart_ratio)
    }

    /// Change of the workflow time against `base`, in percent.
    pub fn workflow_change(&self, base: &Self) -> f64 {
        self.change(base, |outcome| outcome.workflow)
    }

    /// Whether every run of it came to an end.
    pub fn finished(&self) -> bool {
        self.outcomes.iter().all(|outcome| outcome.unfinished == 0)
    }
}
