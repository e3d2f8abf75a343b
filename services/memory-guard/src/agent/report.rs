//! The agent's report about itself: remembered decisions for `drover memguard explain`, growth of the node's memory, episodes, the
//! status.

use std::sync::Arc;
use std::time::Duration;

use drover_memguard::{Action, Activity, ContainerId, Decision, Moment, NodeMemory, Observation, Permission, Reading, Reason, needs};

use serde_json::{Value, json};

use super::Agent;
use crate::clock;
use crate::http::Shared;
use crate::wire::{ContainerStatus, LastDecision, Pressure, Status};

/// Time constant of the average growth, in seconds.
const GROWTH_WINDOW: f64 = 5.0;
/// Growth below this rate, in bytes per second, counts as none when the time to exhaustion is predicted.
const NO_GROWTH: f64 = 1024.0;

/// The last decision about a container, whether it was carried out or not.
#[derive(Clone, Debug)]
pub(super) struct RememberedDecision {
    action: Option<Action>,
    reason: Reason,
    done: bool,
    at: Moment,
}

/// Use and average growth of the node's memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MemoryTrend {
    last: Option<(NodeMemory, Moment)>,
    growth: f64,
}

impl MemoryTrend {
    pub(super) fn learn(&mut self, seen: &Observation, now: Moment) {
        let Reading::Seen { value, .. } = seen.node else { return };
        if let Some((last, at)) = self.last {
            let seconds = now.since(at).as_secs_f64();
            if seconds > 0.0 {
                let rate = (value.used as f64 - last.used as f64) / seconds;
                self.growth += (1.0 - (-seconds / GROWTH_WINDOW).exp()) * (rate - self.growth);
            }
        }
        self.last = Some((value, now));
    }

    fn pressure(&self, held: usize) -> Pressure {
        let Some((memory, at)) = self.last else { return Pressure::default() };
        let free = memory.capacity.saturating_sub(memory.used) as f64;
        Pressure {
            capacity: memory.capacity,
            used: memory.used,
            growth: self.growth,
            seconds_to_exhaustion: (self.growth > NO_GROWTH).then(|| free / self.growth),
            held: u32::try_from(held).unwrap_or(u32::MAX),
            age_seconds: clock::now().since(at).as_secs_f64(),
        }
    }
}

impl Agent {
    pub(super) fn note_decision(&mut self, decision: &Decision, done: bool) {
        if let Some(id) = decision.action.container() {
            self.note(id, Some(decision.action.clone()), &decision.reason, done);
        }
        if done {
            tracing::info!(action = ?decision.action, reason = %decision.reason, "done");
        } else {
            tracing::debug!(action = ?decision.action, reason = %decision.reason, "not done");
        }
    }

    pub(super) fn note(&mut self, id: &ContainerId, action: Option<Action>, reason: &Reason, done: bool) {
        self.remembered.insert(id.clone(), RememberedDecision { action, reason: reason.clone(), done, at: clock::now() });
    }

    /// Begins an episode, which lasts from the first hold to the last release, unless one is under way. The count of OOM kills at its
    /// begin is kept.
    pub(super) fn begin_episode(&mut self) {
        self.episode.get_or_insert(self.shared.metrics.oom_kills.get());
    }

    /// Ends the episode when nothing is held any more. One without an OOM kill counts as an avoided kill.
    pub(super) fn note_episode(&mut self) {
        if self.journal.open_entries().is_empty() && self.episode.take().is_some_and(|kills| kills == self.shared.metrics.oom_kills.get()) {
            self.shared.metrics.oom_avoided.inc();
        }
    }

    /// Publishes the status of this poll.
    pub(super) fn publish(&mut self, hindered: Option<String>) {
        let now = clock::now();
        let pressure = self.memory.pressure(self.held());
        self.shared.metrics.show(&pressure);
        let known = |id: &ContainerId| self.inventory.known().contains_key(&*id.0);
        self.remembered.retain(|id, said| known(id) || now.since(said.at) < Duration::from_secs(60));
        let needed = match self.observation.node {
            Reading::Seen { value, .. } => needs(&self.guard, &self.state, &self.observation, value, now),
            Reading::Missing => Vec::new(),
        };
        let containers = self
            .observation
            .containers
            .iter()
            .map(|container| {
                let since = match container.activity {
                    Activity::AtGate { since } | Activity::Paused { since, .. } => Some(since),
                    Activity::Running { lease } => lease.map(|lease| lease.since),
                };
                ContainerStatus {
                    id: container.id.to_string(),
                    name: container.name.to_string(),
                    memory: match container.memory {
                        Reading::Seen { value, .. } => Some(value),
                        Reading::Missing => None,
                    },
                    limit: container.limit,
                    need: needed.iter().find(|(id, _)| *id == container.id).map(|(_, need)| *need),
                    growth: self.state.tracks.get(&container.id).map_or(0.0, |track| track.growth),
                    activity: container.activity,
                    held_seconds: since.map(|since| now.since(since).as_secs_f64()),
                    permission: container.permission,
                    verdict: describe(&container.permission),
                    last: self.remembered.get(&container.id).and_then(|said| said.summary(now)),
                }
            })
            .collect();
        self.shared.publish(Status {
            node: self.run.node.clone(),
            mode: self.run.mode,
            hindered,
            policy: self.guard.policy.name().to_owned(),
            policy_because: self.policy_because.clone(),
            gate: self.gate_status(),
            runtime: self.runtime_status.clone(),
            cgroup: self.hierarchy.version().to_owned(),
            memory_source: self.memory_description.clone(),
            api_server: self.cluster.lock().is_ok_and(|view| view.version > 0),
            pressure,
            containers,
            totals: self.shared.metrics.totals(),
        });
    }
}

/// What the Lease of the node says about the guard: version, mode and pressure. Nothing before the first poll.
pub(super) fn of_node(shared: &Arc<Shared>) -> Arc<dyn Fn() -> Option<Value> + Send + Sync> {
    let shared = shared.clone();
    Arc::new(move || {
        let status = shared.latest()?;
        let Pressure { capacity, used, seconds_to_exhaustion, held, .. } = status.pressure;
        Some(json!({
            "version": std::env::var("DROVER_AGENT_VERSION").unwrap_or_else(|_| env!("CARGO_PKG_VERSION").to_owned()),
            "mode": status.mode, "capacity": capacity, "used": used, "secondsToExhaustion": seconds_to_exhaustion, "held": held,
            "watches": status.containers.len(), "hindered": status.hindered, "oomKills": status.totals.oom_kills,
        }))
    })
}

impl RememberedDecision {
    fn summary(&self, now: Moment) -> Option<LastDecision> {
        let words = match &self.action {
            Some(Action::Pause { .. }) => "pause",
            Some(Action::Resume { .. }) => "resume",
            Some(Action::Lease { .. }) => "limit its growth",
            Some(Action::EndLease { .. }) => "lift the limit on its growth",
            Some(Action::Admit { .. }) => "let it start",
            Some(Action::Sacrifice { .. }) => "sacrifice",
            Some(Action::Gate { .. }) => return None,
            None => "hold at its start",
        };
        Some(LastDecision {
            action: self.action.clone(),
            reason: self.reason.clone(),
            words: format!("{words}: {}", self.reason),
            done: self.done,
            seconds_ago: now.since(self.at).as_secs_f64(),
        })
    }
}

fn describe(permission: &Permission) -> String {
    match permission {
        Permission::Denied { because } => format!("never held: {because}"),
        Permission::Granted { levers, probe_budget } => {
            let with: Vec<&str> = [(levers.high, "memory.high"), (levers.freeze, "freezer"), (levers.quota, "CPU quota")]
                .into_iter()
                .filter_map(|(there, name)| there.then_some(name))
                .collect();
            let bound = probe_budget.map(|probe_budget| {
                format!(", for at most {:.0} s at a time because of its probes", probe_budget.longest_millis as f64 / 1000.0)
            });
            format!("may be held by {}{}", with.join(", "), bound.unwrap_or_default())
        }
    }
}
