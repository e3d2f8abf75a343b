//! The simulator of the paper's experiment: nodes, jobs that allocate and free memory, the kernel's OOM killer, CrashLoopBackOff, and the
//! guard.
//!
//! Deterministic: a model, a guard and a seed determine one [`Outcome`]. All assumptions are in [`ClusterModel`]. The guard is the one
//! that the agent runs.

mod model;
mod node;
mod outcome;
mod path;
mod pod;

use std::collections::VecDeque;

pub use model::{Backoff, ClusterModel, JobClass, JobModel, OomVictim};
pub use outcome::Outcome;

use drover_memguard::Guard;
use node::SimulatedNode;
use pod::SimulatedPod;

/// Runs all jobs of the model once, with a guard on each node or without.
pub fn simulate(model: &ClusterModel, guard: Option<&Guard>, seed: u64) -> Outcome {
    let mut nodes: Vec<SimulatedNode> = (0..model.nodes).map(|_| SimulatedNode::new(guard.cloned())).collect();
    let mut queue = submit(model, seed);
    let total = queue.len();
    let mut done: Vec<SimulatedPod> = Vec::with_capacity(total);
    let mut now = 0.0;
    let mut ticks = 0_u64;
    schedule(&mut queue, &mut nodes, now, model);
    while done.len() < total && now < model.give_up {
        ticks += 1;
        now = ticks as f64 * model.step;
        let before = done.len();
        for node in &mut nodes {
            done.extend(node.step(now, model));
        }
        if done.len() > before {
            schedule(&mut queue, &mut nodes, now, model);
        }
    }
    let paused = nodes.iter().map(|node| node.paused_seconds).sum();
    let gated = nodes.iter().map(|node| node.gate_seconds).sum();
    let left: Vec<SimulatedPod> = nodes.into_iter().flat_map(|node| node.pods).chain(queue).collect();
    Outcome::of(&done, &left, paused, gated, model)
}

/// All jobs in the order of submission: higher priorities first, classes alternating in proportion to their counts.
fn submit(model: &ClusterModel, seed: u64) -> VecDeque<SimulatedPod> {
    let mut order: Vec<(f64, usize)> = Vec::new();
    for (class, jobs) in model.jobs.iter().enumerate() {
        order.extend((0..jobs.count).map(|nth| ((nth as f64 + 0.5) / jobs.count as f64, class)));
    }
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    order.sort_by_key(|(_, class)| std::cmp::Reverse(model.jobs[*class].priority));
    order.iter().enumerate().map(|(number, (_, class))| SimulatedPod::new(number, &model.jobs[*class], model, seed)).collect()
}

/// Binds queued pods to nodes, first come, first served; the node with the least allocated that has room takes the pod.
fn schedule(queue: &mut VecDeque<SimulatedPod>, nodes: &mut [SimulatedNode], now: f64, model: &ClusterModel) {
    let mut allocated: Vec<f64> = nodes.iter().map(SimulatedNode::allocated).collect();
    let waiting = std::mem::take(queue);
    for mut pod in waiting {
        let fits = |index: &usize| allocated[*index] + pod.request <= model.node_memory + 1e-6;
        match (0..nodes.len()).filter(fits).min_by(|a, b| allocated[*a].total_cmp(&allocated[*b])) {
            Some(index) => {
                allocated[index] += pod.request;
                pod.bound = now;
                pod.order(now, 0.0, model);
                nodes[index].pods.push(pod);
            }
            None => queue.push_back(pod),
        }
    }
}
