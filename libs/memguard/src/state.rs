//! What the guard remembers between two looks. Serialisable: an agent that starts again goes on with it, and one that starts without it
//! is only less informed, never wrong, because who is paused is read off the node and not off this memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::settings::GateSettings;
use crate::{Activity, Container, ContainerId, Moment, Observation, Safety};

/// The growth average looks back about this far, in seconds.
const GROWTH_MEMORY: f64 = 5.0;
/// The present rate looks back about this far, in seconds.
const RATE_MEMORY: f64 = 1.0;
/// The fastest growth is forgotten over about this long, in seconds.
const BURST_MEMORY: f64 = 60.0;
/// A container that was let in and is not seen running after this long, in seconds, has failed to start.
const START_PATIENCE: u64 = 10;
/// A container that is gone comes back within this long, in seconds, or not at all: the kubelet's longest back-off is half of it.
const RESTART_PATIENCE: u64 = 600;

/// Memory of the guard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct State {
    /// Per container of the last observation.
    pub tracks: BTreeMap<ContainerId, Track>,
    /// Per container of a pod, by name: what the kubelet may count against its probes.
    pub probing: BTreeMap<Arc<str>, Probing>,
    /// The paper's rule: whom it restricted, in that order (`C_list`).
    pub restricted: Vec<ContainerId>,
    /// The paper's rule: when its last round was, while it is active.
    pub last_round: Option<Moment>,
    /// The demand factor seen so far.
    pub demand: Demand,
    /// What was last said about the gate.
    pub gate_open: Option<bool>,
    /// Let in a moment ago and not yet seen running.
    pub admitted: BTreeMap<ContainerId, Admitted>,
    /// When containers were sacrificed, the last hour.
    pub sacrifices: Vec<Moment>,
    /// When the memory of the node was last seen (or the guard began).
    pub last_seen: Option<Moment>,
}

/// A container that was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Admitted {
    /// Its limit in bytes (the node's capacity if it has none).
    pub limit: u64,
    /// When.
    pub at: Moment,
}

/// What is remembered of a container.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Track {
    /// Last reading, bytes.
    pub memory: u64,
    /// When.
    pub at: Moment,
    /// Growth in bytes per second, averaged over the last seconds of running; shrinking counts as none.
    pub growth: f64,
    /// The same over the last second.
    pub rate: f64,
    /// The fastest growth between two readings, slowly forgotten.
    pub burst: f64,
    /// Let alone until then: it was just held as long as it may be.
    pub leave_alone_until: Option<Moment>,
}

/// For how long the probes of a container may have gone unanswered. The kubelet counts failures in a row, and goes on counting when the
/// container is restarted: the predecessor's pause and its death count against the one that comes after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probing {
    id: ContainerId,
    seen: Moment,
    /// Stopped, with interruptions too short for its probes to be answered, since then.
    unanswered_since: Option<Moment>,
    /// Not stopped since then.
    going_since: Option<Moment>,
}

/// Sums from which the demand factor follows: weight, weighted share of the limit, weighted square of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Demand {
    weight: f64,
    sum: f64,
    squares: f64,
}

impl Demand {
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

    /// Mean and standard deviation of use as a share of the limit: what was seen and what was assumed, each by its weight.
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

impl State {
    /// Takes an observation in: growth, demand, who is gone.
    pub(crate) fn learn(&mut self, seen: &Observation, gate: Option<&GateSettings>, safety: &Safety, now: Moment) {
        let mut elapsed = 0.0_f64;
        let mut known = 0;
        for container in &seen.containers {
            let memory = container.memory.fresh(now, safety.max_age).copied();
            if let Some(patience) = container.permission.patience() {
                let answered = Duration::from_millis(patience.answered_millis);
                let probing = Probing::next(self.probing.get(&container.name), container, answered, now);
                self.probing.insert(container.name.clone(), probing);
            }
            match (self.tracks.get_mut(&container.id), memory) {
                (Some(track), Some(memory)) => {
                    elapsed = elapsed.max(now.since(track.at).as_secs_f64());
                    *track = track.next(memory, now, container);
                }
                (None, Some(memory)) => {
                    self.tracks.insert(container.id.clone(), Track::first(memory, now));
                }
                (Some(_), None) => {}
                (None, None) => continue,
            }
            known += 1;
        }
        if known < self.tracks.len() {
            let here: BTreeSet<&ContainerId> = seen.containers.iter().map(|container| &container.id).collect();
            self.tracks.retain(|id, _| here.contains(id));
        }
        self.probing.retain(|_, probing| now.since(probing.seen).as_secs() < RESTART_PATIENCE);
        self.admitted.retain(|id, let_in| !self.tracks.contains_key(id) && now.since(let_in.at).as_secs() < START_PATIENCE);
        self.sacrifices.retain(|at| now.since(*at).as_secs() < 3600);
        if let Some(gate) = gate {
            self.learn_demand(seen, gate, safety, now, elapsed);
        }
    }

    /// Since when the probes of a container may have gone unanswered, if they set a bound.
    pub(crate) fn unanswered_since(&self, container: &Container) -> Option<Moment> {
        container.permission.patience()?;
        self.probing.get(&container.name)?.unanswered_by(&container.id)
    }

    fn learn_demand(&mut self, seen: &Observation, gate: &GateSettings, safety: &Safety, now: Moment, elapsed: f64) {
        self.demand.fade(0.5_f64.powf(elapsed / gate.half_life.as_secs_f64().max(1e-3)));
        for container in &seen.containers {
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

impl Track {
    fn first(memory: u64, at: Moment) -> Self {
        Self { memory, at, growth: 0.0, rate: 0.0, burst: 0.0, leave_alone_until: None }
    }

    fn next(self, memory: u64, at: Moment, container: &Container) -> Self {
        let seconds = at.since(self.at).as_secs_f64();
        if seconds <= 0.0 {
            return self;
        }
        // A held container says nothing about how it grows when it may.
        if !matches!(container.activity, Activity::Running { lease: None }) {
            return Self { memory, at, ..self };
        }
        let rate = memory.saturating_sub(self.memory) as f64 / seconds;
        let towards = |old: f64, memory: f64| old + (1.0 - (-seconds / memory).exp()) * (rate - old);
        Self {
            memory,
            at,
            growth: towards(self.growth, GROWTH_MEMORY),
            rate: towards(self.rate, RATE_MEMORY),
            burst: rate.max(self.burst * (-seconds / BURST_MEMORY).exp()),
            ..self
        }
    }
}

impl Probing {
    /// After `answered` without a stop at least one probe was answered.
    fn next(before: Option<&Self>, container: &Container, answered: Duration, now: Moment) -> Self {
        let unanswered_since = before.and_then(|before| before.unanswered_by(&container.id));
        let going_since = before.filter(|before| before.id == container.id).and_then(|before| before.going_since);
        let (unanswered_since, going_since) = match container.activity {
            Activity::Paused { since, .. } | Activity::AtGate { since } => (Some(unanswered_since.unwrap_or(since)), None),
            Activity::Running { .. } => {
                let going_since = going_since.unwrap_or(now);
                (unanswered_since.filter(|_| now.since(going_since) < answered), Some(going_since))
            }
        };
        Self { id: container.id.clone(), seen: now, unanswered_since, going_since }
    }

    /// The same for this container or, if another one was seen, for its successor: the last probe of who died went unanswered.
    fn unanswered_by(&self, id: &ContainerId) -> Option<Moment> {
        self.unanswered_since.or_else(|| (self.id != *id).then_some(self.seen))
    }
}
