//! The outcome of a run, in the paper's measures.

use serde::Serialize;

use super::model::ClusterModel;
use super::pod::SimulatedPod;

/// The measures of one run. Times are in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    pub jobs: usize,
    /// Jobs that were not done when the run was given up.
    pub unfinished: usize,
    /// Time from the first start to the last completion, or to the time of giving up if not all jobs are done.
    pub workflow: f64,
    /// Containers that the OOM killer killed.
    pub kills: u32,
    /// Containers that the guard killed.
    pub sacrifices: u32,
    /// Mean time from the binding of a pod to its completion, which includes runs, pauses and back-off.
    pub execution: f64,
    pub longest_execution: f64,
    /// Mean wait in the queue of the pods that waited.
    pub wait: f64,
    pub longest_wait: f64,
    /// Pods that waited in the queue.
    pub waited: usize,
    pub paused: f64,
    /// Container-seconds held at the start gate.
    pub gated: f64,
    /// Mean completion time of the jobs of the highest priority, from the start of the run.
    pub first_class: f64,
}

impl Outcome {
    pub(super) fn of(done: &[SimulatedPod], left: &[SimulatedPod], paused: f64, gated: f64, model: &ClusterModel) -> Self {
        let all = || done.iter().chain(left);
        let jobs = all().count();
        let end = if left.is_empty() { done.iter().filter_map(|pod| pod.done).fold(0.0, f64::max) } else { model.give_up };
        let begin = all().filter_map(|pod| pod.first_start).fold(f64::INFINITY, f64::min);
        let executions: Vec<f64> = all().map(|pod| pod.done.unwrap_or(end) - pod.bound).collect();
        let waits: Vec<f64> = all().map(|pod| pod.bound).filter(|bound| *bound > 0.0).collect();
        let highest = model.jobs.iter().map(|class| class.priority).max();
        let first: Vec<f64> = all().filter(|pod| Some(pod.class.priority) == highest).map(|pod| pod.done.unwrap_or(end)).collect();
        Self {
            jobs,
            unfinished: left.len(),
            workflow: if begin.is_finite() { end - begin } else { 0.0 },
            kills: all().map(|pod| pod.kills).sum(),
            sacrifices: all().map(|pod| pod.sacrifices).sum(),
            execution: mean(&executions),
            longest_execution: executions.iter().copied().fold(0.0, f64::max),
            wait: mean(&waits),
            longest_wait: waits.iter().copied().fold(0.0, f64::max),
            waited: waits.len(),
            paused,
            gated,
            first_class: mean(&first),
        }
    }

    /// Restarts per container, the paper's restart ratio.
    pub fn restart_ratio(&self) -> f64 {
        f64::from(self.kills + self.sacrifices) / self.jobs.max(1) as f64
    }
}

fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}
