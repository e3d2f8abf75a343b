//! What the guard remembers between two observations. It can be serialised, so that an agent that restarts continues with it. An agent
//! that starts without it is less informed but not wrong: which containers are held is read from the node, not from this memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::settings::GateSettings;
use crate::{Activity, Container, ContainerId, Moment, Observation, Safety};

/// Time constant of the average growth, in seconds.
const GROWTH_WINDOW: f64 = 5.0;
/// Time constant of the present growth rate, in seconds.
const RATE_WINDOW: f64 = 1.0;
/// Time constant with which the fastest growth decays, in seconds.
const BURST_WINDOW: f64 = 60.0;
/// A container that the start gate admitted and that is not seen running after this many seconds has failed to start.
const START_PATIENCE: u64 = 10;
/// A container that ended is restarted within this many seconds or not at all: twice the longest back-off of the kubelet.
const RESTART_PATIENCE: u64 = 600;

/// What the guard remembers between two steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GuardState {
    /// Growth of each container of the last observation.
    pub tracks: BTreeMap<ContainerId, ContainerTrack>,
    /// Unanswered probes by `namespace/pod/container`. The name outlives a restart of the container, as the kubelet's failure count does.
    pub probing: BTreeMap<Arc<str>, ProbeSilence>,
    /// The paper's rule: the containers that it restricted, in that order (`C_list`).
    pub restricted: Vec<ContainerId>,
    /// The paper's rule: time of its last round; `None` while it is not active.
    pub last_round: Option<Moment>,
    pub demand: DemandEstimate,
    /// Whether the last [`crate::Action::Gate`] opened the gate; `None` before the first one.
    pub gate_open: Option<bool>,
    /// Containers that the start gate admitted and that were not seen running yet.
    pub admitted: BTreeMap<ContainerId, AdmittedContainer>,
    /// Times of the sacrifices of the last hour.
    pub sacrifices: Vec<Moment>,
    /// When the memory of the node was last read, or when the guard began.
    pub last_seen: Option<Moment>,
}

/// A container that the start gate admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmittedContainer {
    /// Its limit in bytes; the node's capacity if it has none.
    pub limit: u64,
    pub at: Moment,
}

/// Last reading and growth of one container.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerTrack {
    /// Last reading of its working set, in bytes.
    pub memory: u64,
    pub at: Moment,
    /// Growth in bytes per second, averaged over the last seconds in which it ran. Shrinking counts as zero.
    pub growth: f64,
    /// The same over about the last second.
    pub rate: f64,
    /// The fastest growth between two readings, in bytes per second, slowly decaying.
    pub burst: f64,
    /// Not held again before this moment, because it was just held for the longest time allowed.
    pub leave_alone_until: Option<Moment>,
}

/// For how long the probes of a container may have gone unanswered. The kubelet counts failures in a row and keeps counting over a
/// restart of the container, so the pause and the death of the predecessor count against its successor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeSilence {
    id: ContainerId,
    seen: Moment,
    /// Begin of the present stretch of pauses. Interruptions that are too short for every probe to be answered do not end it.
    unanswered_since: Option<Moment>,
    /// The container has run without a pause since then.
    running_since: Option<Moment>,
}

/// Running estimate of the demand factor (working set as a share of the limit): sum of the weights, of the weighted shares, and of their
/// weighted squares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DemandEstimate {
    weight: f64,
    sum: f64,
    squares: f64,
}

impl DemandEstimate {
    fn fade(&mut self, keep: f64) {
        self.weight *= keep;
        self.sum *= keep;
        self.squares *= keep;
    }

    fn count(&mut self, share: f64, weight: f64) {
        self.weight += weight;
        self.sum += weight * share;
        self.squares += weight * share * share;
    }

    /// Mean and standard deviation of the demand factor: observations and the assumed prior, each by its weight.
    pub fn factor(&self, gate: &GateSettings) -> (f64, f64) {
        let weight = self.weight + gate.prior_weight;
        if weight <= 0.0 {
            return (gate.factor, gate.deviation);
        }
        let mean = (self.sum + gate.prior_weight * gate.factor) / weight;
        let assumed = gate.prior_weight * (gate.deviation.powi(2) + gate.factor.powi(2));
        let variance = (self.squares + assumed) / weight - mean * mean;
        (mean, variance.max(0.0).sqrt())
    }
}

impl GuardState {
    /// Updates growth, demand and probe silence from an observation, and forgets containers that are gone.
    pub(crate) fn learn(&mut self, observation: &Observation, gate: Option<&GateSettings>, safety: &Safety, now: Moment) {
        let mut elapsed = 0.0_f64;
        let mut known = 0;
        for container in &observation.containers {
            let memory = container.memory.fresh(now, safety.max_age).copied();
            if let Some(probe_budget) = container.permission.probe_budget() {
                let answered = Duration::from_millis(probe_budget.answered_millis);
                let probing = ProbeSilence::next(self.probing.get(&container.name), container, answered, now);
                self.probing.insert(container.name.clone(), probing);
            }
            match (self.tracks.get_mut(&container.id), memory) {
                (Some(track), Some(memory)) => {
                    elapsed = elapsed.max(now.since(track.at).as_secs_f64());
                    *track = track.next(memory, now, container);
                }
                (None, Some(memory)) => {
                    self.tracks.insert(container.id.clone(), ContainerTrack::first(memory, now));
                }
                (Some(_), None) => {}
                (None, None) => continue,
            }
            known += 1;
        }
        if known < self.tracks.len() {
            let here: BTreeSet<&ContainerId> = observation.containers.iter().map(|container| &container.id).collect();
            self.tracks.retain(|id, _| here.contains(id));
        }
        self.probing.retain(|_, probing| now.since(probing.seen).as_secs() < RESTART_PATIENCE);
        self.admitted.retain(|id, admitted| !self.tracks.contains_key(id) && now.since(admitted.at).as_secs() < START_PATIENCE);
        self.sacrifices.retain(|at| now.since(*at).as_secs() < 3600);
        if let Some(gate) = gate {
            self.learn_demand(observation, gate, safety, now, elapsed);
        }
    }

    /// Since when the probes of a container may have gone unanswered; `None` if no probe limits its pauses.
    pub(crate) fn unanswered_since(&self, container: &Container) -> Option<Moment> {
        container.permission.probe_budget()?;
        self.probing.get(&container.name)?.unanswered_by(&container.id)
    }

    fn learn_demand(&mut self, observation: &Observation, gate: &GateSettings, safety: &Safety, now: Moment, elapsed: f64) {
        self.demand.fade(0.5_f64.powf(elapsed / gate.half_life.as_secs_f64().max(1e-3)));
        for container in &observation.containers {
            let settled = now.since(container.started) >= gate.settle;
            let running = matches!(container.activity, Activity::Running { lease: None }) && container.permission.granted();
            if let (true, true, Some(limit @ 1..), Some(&memory)) =
                (settled, running, container.limit, container.memory.fresh(now, safety.max_age))
            {
                self.demand.count(memory as f64 / limit as f64, elapsed);
            }
        }
    }
}

impl ContainerTrack {
    fn first(memory: u64, at: Moment) -> Self {
        Self { memory, at, growth: 0.0, rate: 0.0, burst: 0.0, leave_alone_until: None }
    }

    fn next(self, memory: u64, at: Moment, container: &Container) -> Self {
        let seconds = at.since(self.at).as_secs_f64();
        if seconds <= 0.0 {
            return self;
        }
        // A held container does not show how fast it would grow.
        if !matches!(container.activity, Activity::Running { lease: None }) {
            return Self { memory, at, ..self };
        }
        let rate = memory.saturating_sub(self.memory) as f64 / seconds;
        let towards = |old: f64, window: f64| old + (1.0 - (-seconds / window).exp()) * (rate - old);
        Self {
            memory,
            at,
            growth: towards(self.growth, GROWTH_WINDOW),
            rate: towards(self.rate, RATE_WINDOW),
            burst: rate.max(self.burst * (-seconds / BURST_WINDOW).exp()),
            ..self
        }
    }
}

impl ProbeSilence {
    /// After `answered` without a pause, at least one of each kind of probe was answered.
    fn next(before: Option<&Self>, container: &Container, answered: Duration, now: Moment) -> Self {
        let unanswered_since = before.and_then(|before| before.unanswered_by(&container.id));
        let running_since = before.filter(|before| before.id == container.id).and_then(|before| before.running_since);
        let (unanswered_since, running_since) = match container.activity {
            Activity::Paused { since, .. } | Activity::AtGate { since } => (Some(unanswered_since.unwrap_or(since)), None),
            Activity::Running { .. } => {
                let running_since = running_since.unwrap_or(now);
                (unanswered_since.filter(|_| now.since(running_since) < answered), Some(running_since))
            }
        };
        Self { id: container.id.clone(), seen: now, unanswered_since, running_since }
    }

    /// Begin of the unanswered stretch for the container `id`. For a successor of the observed container it begins at the latest when the
    /// predecessor was last seen, because that one's last probe went unanswered.
    fn unanswered_by(&self, id: &ContainerId) -> Option<Moment> {
        self.unanswered_since.or_else(|| (self.id != *id).then_some(self.seen))
    }
}
