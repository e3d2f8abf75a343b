//! The start gate: a container that is held before it allocates holds no memory hostage, so this is where to wait.
//!
//! Containers use a share of their limits: mean and deviation of that share are learned while they run ([`crate::state::Demand`]).
//! A container is let in when the demand expected of all that run, `mean * sum of limits`, and some standard deviations of that sum
//! (`deviation * sqrt(sum of squared limits)`: independent containers even each other out) fit into the node, beside what others use.

use std::cmp::Reverse;

use crate::policy::{View, Wishes};
use crate::settings::GateBankSettings;
use crate::state::{Admitted, State};
use crate::{Activity, Container, NodeMemory, Reason};

/// Adds who may come in, first come, first served within a priority, and whether another one might.
pub(crate) fn step(settings: &GateBankSettings, state: &mut State, view: &View<'_>, wishes: &mut Wishes) {
    let mut load = Load::new(settings, state, view);
    let mut queue: Vec<&Container> = view.seen.containers.iter().filter(|container| at_gate(container)).collect();
    queue.sort_by(|a, b| (Reverse(a.priority), a.started, &a.id).cmp(&(Reverse(b.priority), b.started, &b.id)));
    let mut refused = None;
    for container in queue {
        let limit = limit(container, view.node);
        match load.verdict(limit) {
            Ok(reason) => {
                load.add(limit);
                state.admitted.insert(container.id.clone(), Admitted { limit, at: view.now });
                wishes.admit.push((container.id.clone(), reason));
            }
            // Nobody passes the one in front, or the large would starve.
            Err(reason) => {
                refused = Some((false, reason));
                break;
            }
        }
    }
    wishes.gate = refused.or_else(|| load.next()).filter(|(open, _)| state.gate_open != Some(*open));
    if let Some((open, _)) = wishes.gate {
        state.gate_open = Some(open);
    }
}

/// May this one start now? `Err` says why not.
pub(crate) fn may_start(settings: &GateBankSettings, state: &State, view: &View<'_>, container: &Container) -> Result<Reason, Reason> {
    // Whoever waits for longer comes first, and whoever is more important.
    let place = |one: &Container| (Reverse(one.priority), one.started, one.id.clone());
    let ahead = |other: &&Container| at_gate(other) && other.id != container.id && place(other) < place(container);
    let mut load = Load::new(settings, state, view);
    for waiting in view.seen.containers.iter().filter(ahead).filter(|other| !state.admitted.contains_key(&other.id)) {
        load.add(limit(waiting, view.node));
    }
    load.verdict(limit(container, view.node))
}

fn at_gate(container: &Container) -> bool {
    matches!(container.activity, Activity::AtGate { .. })
}

/// A container without a limit may take everything.
pub(crate) fn limit(container: &Container, node: NodeMemory) -> u64 {
    container.limit.unwrap_or(node.capacity).min(node.capacity)
}

/// What is expected of those that are in.
struct Load {
    mean: f64,
    deviation: f64,
    sigmas: f64,
    others: f64,
    limits: f64,
    squares: f64,
    largest: f64,
    inside: usize,
    capacity: f64,
}

impl Load {
    fn new(settings: &GateBankSettings, state: &State, view: &View<'_>) -> Self {
        let (mean, deviation) = state.demand.factor(&settings.gate);
        let own: u64 = view.candidates.iter().map(|candidate| candidate.memory).sum();
        let mut load = Self {
            mean,
            deviation,
            sigmas: settings.gate.sigmas,
            others: view.node.used.saturating_sub(own) as f64,
            limits: 0.0,
            squares: 0.0,
            largest: 0.0,
            inside: 0,
            capacity: view.node.capacity as f64 * (1.0 - settings.bank.margin),
        };
        for candidate in &view.candidates {
            load.add(limit(candidate.container, view.node));
        }
        let inside = |id: &crate::ContainerId| view.candidates.iter().any(|candidate| candidate.container.id == *id);
        for (_, let_in) in state.admitted.iter().filter(|(id, _)| !inside(id)) {
            load.add(let_in.limit);
        }
        load
    }

    fn add(&mut self, limit: u64) {
        let limit = limit as f64;
        self.inside += 1;
        self.limits += limit;
        self.squares += limit * limit;
        self.largest = self.largest.max(limit);
    }

    fn expected_with(&self, limit: f64) -> f64 {
        let spread = self.deviation * (self.squares + limit * limit).sqrt();
        // No more than everybody at the limit.
        let most = self.limits + limit;
        self.others + (self.mean * most + self.sigmas * spread).min(most)
    }

    fn verdict(&self, limit: u64) -> Result<Reason, Reason> {
        let expected = self.expected_with(limit as f64);
        let (with_it, capacity) = (expected as u64, self.capacity as u64);
        // An empty node takes anybody: waiting would not help.
        if expected <= self.capacity || self.inside == 0 {
            Ok(Reason::GateRoom { expected: with_it, capacity })
        } else {
            Err(Reason::GateFull { expected: with_it, capacity })
        }
    }

    /// Would another one of the largest kind be let in?
    fn next(&self) -> Option<(bool, Reason)> {
        Some(match self.verdict(self.largest as u64) {
            Ok(reason) => (true, reason),
            Err(reason) => (false, reason),
        })
    }
}
