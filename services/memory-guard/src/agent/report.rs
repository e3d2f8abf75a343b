//! What the agent says of itself: decisions remembered for `explain`, growth of the node, episodes, the status.

use std::time::Duration;

use drover_memguard::{Action, Activity, ContainerId, Decision, Moment, NodeMemory, Observation, Permission, Reading, Reason, needs};

use super::Agent;
use crate::clock;
use crate::wire::{ContainerStatus, LastDecision, Pressure, Status};

/// Growth is averaged over about this long, in seconds.
const GROWTH_MEMORY: f64 = 5.0;
/// Slower growth than this, in bytes per second, exhausts nothing.
const NO_GROWTH: f64 = 1024.0;

/// The last decision about a container.
#[derive(Clone, Debug)]
pub(super) struct Said {
    action: Option<Action>,
    reason: Reason,
    done: bool,
    at: Moment,
}

/// How the memory of the node goes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    last: Option<(NodeMemory, Moment)>,
    growth: f64,
}

impl Memory {
    pub(super) fn learn(&mut self, seen: &Observation, now: Moment) {
        let Reading::Seen { value, .. } = seen.node else { return };
        if let Some((last, at)) = self.last {
            let seconds = now.since(at).as_secs_f64();
            if seconds > 0.0 {
                let rate = (value.used as f64 - last.used as f64) / seconds;
                self.growth += (1.0 - (-seconds / GROWTH_MEMORY).exp()) * (rate - self.growth);
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
        self.said.insert(id.clone(), Said { action, reason: reason.clone(), done, at: clock::now() });
    }

    /// An episode is from the first hold to the last release.
    pub(super) fn begin_episode(&mut self) {
        self.episode.get_or_insert(self.shared.metrics.oom_kills.get());
    }

    /// One that ended without a kill has avoided one.
    pub(super) fn note_episode(&mut self) {
        if self.journal.open_entries().is_empty() && self.episode.take().is_some_and(|kills| kills == self.shared.metrics.oom_kills.get()) {
            self.shared.metrics.oom_avoided.inc();
        }
    }

    /// Makes the status known.
    pub(super) fn publish(&mut self, hindered: Option<String>) {
        let now = clock::now();
        let pressure = self.memory.pressure(self.held());
        self.shared.metrics.show(&pressure);
        let known = |id: &ContainerId| self.inventory.known().contains_key(&*id.0);
        self.said.retain(|id, said| known(id) || now.since(said.at) < Duration::from_secs(60));
        let needed = match self.seen.node {
            Reading::Seen { value, .. } => needs(&self.guard, &self.state, &self.seen, value, now).1,
            Reading::Missing => Vec::new(),
        };
        let containers = self
            .seen
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
                    verdict: verdict(&container.permission),
                    last: self.said.get(&container.id).and_then(|said| said.told(now)),
                }
            })
            .collect();
        self.shared.publish(Status {
            node: self.run.node.clone(),
            mode: self.run.mode,
            hindered,
            policy: self.guard.policy.name().to_owned(),
            policy_because: self.policy_because.clone(),
            gate: self.gate_words(),
            runtime: self.runtime_words.clone(),
            cgroup: self.hierarchy.version().to_owned(),
            memory_source: self.memory_words.clone(),
            api_server: self.cluster.lock().is_ok_and(|view| view.version > 0),
            pressure,
            containers,
            totals: self.shared.metrics.totals(),
        });
    }
}

impl Said {
    fn told(&self, now: Moment) -> Option<LastDecision> {
        let words = match &self.action {
            Some(Action::Pause { .. }) => "pause",
            Some(Action::Resume { .. }) => "resume",
            Some(Action::Lease { .. }) => "let it grow no further",
            Some(Action::EndLease { .. }) => "let it grow",
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

fn verdict(permission: &Permission) -> String {
    match permission {
        Permission::Denied { because } => format!("left alone: {because}"),
        Permission::Granted { levers, patience } => {
            let with: Vec<&str> = [(levers.high, "memory.high"), (levers.freeze, "freezer"), (levers.quota, "CPU quota")]
                .into_iter()
                .filter_map(|(there, name)| there.then_some(name))
                .collect();
            let bound =
                patience.map(|patience| format!(", at most {:.0} s at a time (its probes)", patience.longest_millis as f64 / 1000.0));
            format!("may be held by {}{}", with.join(", "), bound.unwrap_or_default())
        }
    }
}
