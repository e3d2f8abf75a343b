//! The paper's experiment in memory: nodes, jobs that allocate and free, the kernel's OOM killer, CrashLoopBackOff, and the guard.
//!
//! Deterministic: a world, a guard and a seed give one [`Outcome`]. What is assumed is in [`World`]; the guard is the very one of the agent.

mod node;
mod outcome;
mod path;
mod pod;
mod world;

use std::collections::VecDeque;

pub use outcome::Outcome;
pub use world::{Backoff, JobClass, JobModel, Victim, World};

use drover_memguard::Guard;
use node::Node;
use pod::Pod;

/// Runs all jobs of the world once, with or without a guard on each node.
pub fn simulate(world: &World, guard: Option<&Guard>, seed: u64) -> Outcome {
    let mut nodes: Vec<Node> = (0..world.nodes).map(|_| Node::new(guard.cloned())).collect();
    let mut queue = submit(world, seed);
    let total = queue.len();
    let mut done: Vec<Pod> = Vec::with_capacity(total);
    let mut now = 0.0;
    let mut ticks = 0_u64;
    schedule(&mut queue, &mut nodes, now, world);
    while done.len() < total && now < world.give_up {
        ticks += 1;
        now = ticks as f64 * world.step;
        let before = done.len();
        for node in &mut nodes {
            done.extend(node.step(now, world));
        }
        if done.len() > before {
            schedule(&mut queue, &mut nodes, now, world);
        }
    }
    let paused = nodes.iter().map(|node| node.paused_seconds).sum();
    let gated = nodes.iter().map(|node| node.gate_seconds).sum();
    let left: Vec<Pod> = nodes.into_iter().flat_map(|node| node.pods).chain(queue).collect();
    Outcome::of(&done, &left, paused, gated, world)
}

/// All jobs: classes alternate in proportion to their counts, higher priorities first.
fn submit(world: &World, seed: u64) -> VecDeque<Pod> {
    let mut order: Vec<(f64, usize)> = Vec::new();
    for (class, jobs) in world.jobs.iter().enumerate() {
        order.extend((0..jobs.count).map(|nth| ((nth as f64 + 0.5) / jobs.count as f64, class)));
    }
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    order.sort_by_key(|(_, class)| std::cmp::Reverse(world.jobs[*class].priority));
    order.iter().enumerate().map(|(number, (_, class))| Pod::new(number, &world.jobs[*class], world, seed)).collect()
}

/// First come, first served by whoever fits; the node with the least allocated takes it.
fn schedule(queue: &mut VecDeque<Pod>, nodes: &mut [Node], now: f64, world: &World) {
    let mut allocated: Vec<f64> = nodes.iter().map(Node::allocated).collect();
    let waiting = std::mem::take(queue);
    for mut pod in waiting {
        let fits = |index: &usize| allocated[*index] + pod.request <= world.node_memory + 1e-6;
        match (0..nodes.len()).filter(fits).min_by(|a, b| allocated[*a].total_cmp(&allocated[*b])) {
            Some(index) => {
                allocated[index] += pod.request;
                pod.bound = now;
                pod.order(now, 0.0, world);
                nodes[index].pods.push(pod);
            }
            None => queue.push_back(pod),
        }
    }
}
