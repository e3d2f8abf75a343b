//! The experiment: which models run under which guards, and the measured samples. Plain data; the command line makes tables and charts of
//! it.

mod arms;
mod sample;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub use arms::{
    Arm, FOUR, OVERSUBSCRIPTIONS, SIZES, arms, assumptions, governed, grid, mistuned, mixes, paper_in_rules, published, safety,
};
pub use sample::Sample;

use crate::simulate::{ClusterModel, JobClass, simulate};
use drover_memguard::{Guard, Lever};
use drover_memguard::{PaperSettings, Policy, Safety};

/// A model under a guard, to be simulated with several seeds.
#[derive(Clone, Debug)]
pub struct SimulationTask {
    pub model: ClusterModel,
    /// The guard on each node; `None` for no guard.
    pub guard: Option<Guard>,
    pub first: u64,
    /// Number of seeds.
    pub seeds: u64,
}

/// Runs all tasks on all cores. The samples are in the order of the tasks. `tick` is called when a task is done.
pub fn run(tasks: &[SimulationTask], tick: &(dyn Fn() + Sync)) -> Vec<Sample> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<Sample>>> = Mutex::new(vec![None; tasks.len()]);
    let worker = || {
        while let Some((index, task)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            tasks.get(index).map(|task| (index, task))
        } {
            let sample = Sample::take(&task.model, task.guard.as_ref(), task.first, task.seeds);
            if let Ok(mut results) = results.lock() {
                results[index] = Some(sample);
            }
            tick();
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(worker);
        }
    });
    results.into_inner().unwrap_or_default().into_iter().flatten().collect()
}

/// The score of a parameter set of the paper's rule: change of restarts plus change of workflow time against no guard, in per cent; less
/// is better. A set under which a run does not end is excluded. (The paper says only "the best of several combinations".)
pub fn score(sample: &Sample, base: &Sample) -> f64 {
    if sample.finished() { sample.restarts_change(base) + sample.workflow_change(base) } else { f64::INFINITY }
}

/// The best parameter set, given one sample for each set of [`grid`].
pub fn best(sets: &[PaperSettings], samples: &[Sample], base: &Sample) -> Option<PaperSettings> {
    let scored = sets.iter().zip(samples).map(|(set, sample)| (set, score(sample, base)));
    scored.filter(|(_, score)| score.is_finite()).min_by(|a, b| a.1.total_cmp(&b.1)).map(|(set, _)| *set)
}

/// The paper's figure 5: run time in seconds of a 4 GB job that is paused for its whole run under a quota of `millicores`, or of a job
/// without a pause for `None`.
pub fn paused_all_its_life(millicores: Option<f64>, seed: u64) -> f64 {
    let alone = ClusterModel {
        nodes: 1,
        jobs: vec![JobClass { count: 1, ..JobClass::of_size(4) }],
        pause_quota: millicores.unwrap_or(10.0),
        step: 0.5,
        give_up: 1e6,
        ..ClusterModel::default()
    };
    // A bound of zero is exceeded at the first observation and always.
    let ever = PaperSettings { upper: 0.0, lower: 0.0, per_round: 1, round: Duration::from_secs(u64::from(u32::MAX)) };
    let guard = Guard { policy: Policy::Paper(ever), safety: Safety { levers: vec![Lever::Quota], ..Safety::as_published() } };
    simulate(&alone, millicores.map(|_| &guard), seed).execution
}
