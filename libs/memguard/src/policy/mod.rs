//! What the policies share: what they look at, and what they wish. A policy wishes; [`crate::Guard`] applies the safety rules.

pub(crate) mod bank;
pub(crate) mod gate;
pub(crate) mod paper;

use crate::state::{State, Track};
use crate::{Activity, Container, ContainerId, Moment, NodeMemory, Observation, Reason, Safety};

/// A container that may be touched and whose memory is known. Those at the gate are not among them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    pub container: &'a Container,
    pub memory: u64,
    pub track: Track,
}

impl Candidate<'_> {
    pub fn paused(&self) -> bool {
        matches!(self.container.activity, Activity::Paused { .. })
    }
}

/// What a policy looks at.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub now: Moment,
    pub node: NodeMemory,
    pub seen: &'a Observation,
    pub candidates: Vec<Candidate<'a>>,
    /// How fast those grow that may not be touched, in bytes per second.
    pub untouchable_growth: f64,
}

impl<'a> View<'a> {
    pub fn new(seen: &'a Observation, node: NodeMemory, state: &State, safety: &Safety, now: Moment) -> Self {
        let candidates = seen
            .containers
            .iter()
            .filter(|container| container.permission.granted() && !matches!(container.activity, Activity::AtGate { .. }))
            .filter_map(|container| {
                let memory = *container.memory.fresh(now, safety.max_age)?;
                Some(Candidate { container, memory, track: *state.tracks.get(&container.id)? })
            })
            .collect();
        let untouchable = seen.containers.iter().filter(|container| !container.permission.granted());
        let untouchable_growth = untouchable.filter_map(|container| state.tracks.get(&container.id)).map(|track| track.growth).sum();
        Self { now, node, seen, candidates, untouchable_growth }
    }
}

/// What a policy wishes, most urgent first.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    /// Do not let these grow.
    pub hold: Vec<(ContainerId, Reason)>,
    /// Let these grow.
    pub free: Vec<(ContainerId, Reason)>,
    /// Kill these.
    pub sacrifice: Vec<(ContainerId, Reason)>,
    /// Let these in.
    pub admit: Vec<(ContainerId, Reason)>,
    /// Would another one be let in?
    pub gate: Option<(bool, Reason)>,
}
