//! What the policies have in common: their input and their proposal. A policy proposes holds and releases; [`crate::Guard`] applies the
//! safety rules to the proposal.

pub(crate) mod bank;
pub(crate) mod gate;
pub(crate) mod paper;

use crate::state::{ContainerTrack, GuardState};
use crate::{Activity, Container, ContainerId, Moment, NodeMemory, Observation, Reason, Safety};

/// A container that may be held and whose memory is known. Containers at the start gate are not candidates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    pub container: &'a Container,
    /// Working set in bytes.
    pub memory: u64,
    pub track: ContainerTrack,
}

impl Candidate<'_> {
    /// Whether the guard has paused the container.
    pub fn paused(&self) -> bool {
        matches!(self.container.activity, Activity::Paused { .. })
    }
}

/// The input of a policy.
#[derive(Debug)]
pub(crate) struct PolicyInput<'a> {
    pub now: Moment,
    pub node: NodeMemory,
    pub observation: &'a Observation,
    pub candidates: Vec<Candidate<'a>>,
    /// Growth of the containers that may not be held, in bytes per second.
    pub ineligible_growth: f64,
}

impl<'a> PolicyInput<'a> {
    /// Selects the candidates of an observation and sums the growth of the other containers.
    pub fn new(observation: &'a Observation, node: NodeMemory, state: &GuardState, safety: &Safety, now: Moment) -> Self {
        let candidates = observation
            .containers
            .iter()
            .filter(|container| container.permission.granted() && !matches!(container.activity, Activity::AtGate { .. }))
            .filter_map(|container| {
                let memory = *container.memory.fresh(now, safety.max_age)?;
                Some(Candidate { container, memory, track: *state.tracks.get(&container.id)? })
            })
            .collect();
        let ineligible = observation.containers.iter().filter(|container| !container.permission.granted());
        let ineligible_growth = ineligible.filter_map(|container| state.tracks.get(&container.id)).map(|track| track.growth).sum();
        Self { now, node, observation, candidates, ineligible_growth }
    }
}

/// What a policy proposes, most urgent first in each list.
#[derive(Debug, Default)]
pub(crate) struct Proposal {
    /// Containers that must not grow.
    pub hold: Vec<(ContainerId, Reason)>,
    /// Containers that may grow again.
    pub free: Vec<(ContainerId, Reason)>,
    /// Containers to kill.
    pub sacrifice: Vec<(ContainerId, Reason)>,
    /// Containers that may pass the start gate.
    pub admit: Vec<(ContainerId, Reason)>,
    /// Whether the start gate is open, if that has changed.
    pub gate: Option<(bool, Reason)>,
}
