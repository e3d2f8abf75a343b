//! Samples: many runs of one model under one guard, and the comparison of two samples.

use crate::simulate::{ClusterModel, Outcome, simulate};
use drover_memguard::Guard;

/// The outcomes of one model under one guard, one for each seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub outcomes: Vec<Outcome>,
}

impl Sample {
    /// Simulates `seeds` runs with the seeds from `first` on.
    pub fn take(model: &ClusterModel, guard: Option<&Guard>, first: u64, seeds: u64) -> Self {
        Self { outcomes: (first..first + seeds).map(|seed| simulate(model, guard, seed)).collect() }
    }

    /// The value of a measure for each run.
    pub fn each(&self, measure: impl Fn(&Outcome) -> f64) -> Vec<f64> {
        self.outcomes.iter().map(measure).collect()
    }

    /// The mean of a measure.
    pub fn mean(&self, measure: impl Fn(&Outcome) -> f64) -> f64 {
        self.each(measure).iter().sum::<f64>() / self.outcomes.len().max(1) as f64
    }

    /// Mean restarts per container.
    pub fn restarts(&self) -> f64 {
        self.mean(Outcome::restart_ratio)
    }

    /// Mean workflow time in seconds.
    pub fn workflow(&self) -> f64 {
        self.mean(|outcome| outcome.workflow)
    }

    /// Change of a mean against `base`, in per cent; the paper compares means too. Zero when both means are equal, infinite when
    /// only that of `base` is zero.
    pub fn change(&self, base: &Self, measure: impl Fn(&Outcome) -> f64 + Copy) -> f64 {
        let (new, old) = (self.mean(measure), base.mean(measure));
        if new == old { 0.0 } else { (new / old - 1.0) * 100.0 }
    }

    /// Change of restarts against `base`, in per cent.
    pub fn restarts_change(&self, base: &Self) -> f64 {
        self.change(base, Outcome::restart_ratio)
    }

    /// Change of the workflow time against `base`, in per cent.
    pub fn workflow_change(&self, base: &Self) -> f64 {
        self.change(base, |outcome| outcome.workflow)
    }

    /// Whether every run ended.
    pub fn finished(&self) -> bool {
        self.outcomes.iter().all(|outcome| outcome.unfinished == 0)
    }
}
