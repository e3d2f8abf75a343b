//! The start gate. A container that is held before it allocates occupies no memory, so this is the cheapest place to wait.
//!
//! Containers use a share of their limits, the demand factor. Its mean and deviation are learned while containers run
//! ([`crate::state::DemandEstimate`]). A container is admitted when the expected demand of all containers that run, `mean * sum of
//! limits`, plus some standard deviations of that sum (`deviation * sqrt(sum of squared limits)`, because independent containers average
//! out), fits into the node beside what everything else uses.

use std::cmp::Reverse;

use crate::policy::{PolicyInput, Proposal};
use crate::settings::GateBankSettings;
use crate::state::{AdmittedContainer, GuardState};
use crate::{Activity, Container, NodeMemory, Reason};

/// Proposes the containers to admit, first come, first served within a priority, and whether the gate would admit another one.
pub(crate) fn step(settings: &GateBankSettings, state: &mut GuardState, input: &PolicyInput<'_>, proposal: &mut Proposal) {
    let mut demand = ExpectedDemand::new(settings, state, input);
    let mut queue: Vec<&Container> = input.observation.containers.iter().filter(|container| at_gate(container)).collect();
    queue.sort_by(|a, b| (Reverse(a.priority), a.started, &a.id).cmp(&(Reverse(b.priority), b.started, &b.id)));
    let mut refused = None;
    for container in queue {
        let limit = limit(container, input.node);
        match demand.verdict(limit) {
            Ok(reason) => {
                demand.add(limit);
                state.admitted.insert(container.id.clone(), AdmittedContainer { limit, at: input.now });
                proposal.admit.push((container.id.clone(), reason));
            }
            // No container overtakes the first one, or large containers would starve.
            Err(reason) => {
                refused = Some((false, reason));
                break;
            }
        }
    }
    proposal.gate = refused.or_else(|| demand.next()).filter(|(open, _)| state.gate_open != Some(*open));
    if let Some((open, _)) = proposal.gate {
        state.gate_open = Some(open);
    }
}

/// Whether the container may start now.
///
/// # Errors
/// The reason to hold it, when its expected demand does not fit.
pub(crate) fn may_start(
    settings: &GateBankSettings,
    state: &GuardState,
    input: &PolicyInput<'_>,
    container: &Container,
) -> Result<Reason, Reason> {
    // Containers of a higher priority come first, then those that have waited longer.
    let place = |one: &Container| (Reverse(one.priority), one.started, one.id.clone());
    let ahead = |other: &&Container| at_gate(other) && other.id != container.id && place(other) < place(container);
    let mut demand = ExpectedDemand::new(settings, state, input);
    for waiting in input.observation.containers.iter().filter(ahead).filter(|other| !state.admitted.contains_key(&other.id)) {
        demand.add(limit(waiting, input.node));
    }
    demand.verdict(limit(container, input.node))
}

fn at_gate(container: &Container) -> bool {
    matches!(container.activity, Activity::AtGate { .. })
}

/// Limit of a container in bytes. One without a limit may take all memory of the node.
pub(crate) fn limit(container: &Container, node: NodeMemory) -> u64 {
    container.limit.unwrap_or(node.capacity).min(node.capacity)
}

/// The expected demand of all containers that run or were admitted.
struct ExpectedDemand {
    mean: f64,
    deviation: f64,
    sigmas: f64,
    others: f64,
    limits: f64,
    squares: f64,
    largest: f64,
    admitted: usize,
    capacity: f64,
}

impl ExpectedDemand {
    fn new(settings: &GateBankSettings, state: &GuardState, input: &PolicyInput<'_>) -> Self {
        let (mean, deviation) = state.demand.factor(&settings.gate);
        let own: u64 = input.candidates.iter().map(|candidate| candidate.memory).sum();
        let mut demand = Self {
            mean,
            deviation,
            sigmas: settings.gate.sigmas,
            others: input.node.used.saturating_sub(own) as f64,
            limits: 0.0,
            squares: 0.0,
            largest: 0.0,
            admitted: 0,
            capacity: input.node.capacity as f64 * (1.0 - settings.bank.margin),
        };
        for candidate in &input.candidates {
            demand.add(limit(candidate.container, input.node));
        }
        let is_candidate = |id: &crate::ContainerId| input.candidates.iter().any(|candidate| candidate.container.id == *id);
        for (_, admitted) in state.admitted.iter().filter(|(id, _)| !is_candidate(id)) {
            demand.add(admitted.limit);
        }
        demand
    }

    fn add(&mut self, limit: u64) {
        let limit = limit as f64;
        self.admitted += 1;
        self.limits += limit;
        self.squares += limit * limit;
        self.largest = self.largest.max(limit);
    }

    fn expected_with(&self, limit: f64) -> f64 {
        let spread = self.deviation * (self.squares + limit * limit).sqrt();
        // It cannot exceed the sum of the limits.
        let most = self.limits + limit;
        self.others + (self.mean * most + self.sigmas * spread).min(most)
    }

    fn verdict(&self, limit: u64) -> Result<Reason, Reason> {
        let expected = self.expected_with(limit as f64);
        let (with_it, capacity) = (expected as u64, self.capacity as u64);
        // An empty node admits any container: waiting would not help.
        if expected <= self.capacity || self.admitted == 0 {
            Ok(Reason::GateRoom { expected: with_it, capacity })
        } else {
            Err(Reason::GateFull { expected: with_it, capacity })
        }
    }

    /// Whether another container as large as the largest would be admitted.
    fn next(&self) -> Option<(bool, Reason)> {
        Some(match self.verdict(self.largest as u64) {
            Ok(reason) => (true, reason),
            Err(reason) => (false, reason),
        })
    }
}
