//! The guard of a node: a policy inside the safety rules. One look, one step:
//! [`Guard::step`]`(state, observation, now) -> decisions`. The agent and the simulator run this same code.
//!
//! Invariants, whatever the policy wishes (see tests/properties.rs):
//! nothing but releases on missing data · only who may be touched is touched · somebody always runs · nobody is held longer than allowed.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::action::{Action, Decision, Reason};
use crate::policy::{View, Wishes, bank, gate, paper};
use crate::settings::{BankSettings, Policy, Safety};
use crate::state::{Admitted, State};
use crate::{Activity, Container, ContainerId, Moment, NodeMemory, Observation, governor};

/// A policy and the safety rules around it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Guard {
    /// Policy.
    pub policy: Policy,
    /// Safety rules.
    #[serde(default)]
    pub safety: Safety,
}

impl Guard {
    /// What is to be done now. Call it once per look, or at once when something happened; more often does no harm.
    pub fn step(&self, state: &mut State, seen: &Observation, now: Moment) -> Vec<Decision> {
        let Some(&node) = seen.node.fresh(now, self.safety.max_age).filter(|node| node.capacity > 0) else {
            return self.blind(state, seen, now);
        };
        state.last_seen = Some(now);
        state.learn(seen, self.policy.gate(), &self.safety, now);
        let view = View::new(seen, node, state, &self.safety, now);
        let wishes = match &self.policy {
            Policy::None => Wishes::default(),
            Policy::Paper(settings) => paper::step(settings, state, &view),
            Policy::Bank(settings) => bank::step(settings, &view),
            Policy::GateBank(settings) => {
                let mut wishes = bank::step(&settings.bank, &view);
                gate::step(settings, state, &view, &mut wishes);
                wishes
            }
        };
        Round { guard: self, state, view: &view, decisions: Vec::new() }.carry_out(wishes)
    }

    /// A container is about to start: may it, or is it to be held at the gate? The same rule as in [`Guard::step`], asked between two
    /// looks; `seen` is the latest look. `Err` is: hold it, because. Whoever may not be touched always starts, and so does everybody
    /// when the memory of the node is not known.
    ///
    /// # Errors
    /// The reason to hold it.
    pub fn may_start(&self, state: &mut State, seen: &Observation, container: &Container, now: Moment) -> Result<Reason, Reason> {
        let Policy::GateBank(settings) = &self.policy else { return Ok(Reason::Unasked) };
        if !container.permission.granted() {
            return Ok(Reason::NotEligible);
        }
        if self.hold_until(state, container, now) <= now {
            // Its predecessor has used up what its probes bear.
            return Ok(Reason::held(container.permission.longest(self.safety.max_hold)));
        }
        let Some(&node) = seen.node.fresh(now, self.safety.max_age).filter(|node| node.capacity > 0) else { return Ok(Reason::Blind) };
        let view = View::new(seen, node, state, &self.safety, now);
        let reason = gate::may_start(settings, state, &view, container)?;
        state.admitted.insert(container.id.clone(), Admitted { limit: gate::limit(container, node), at: now });
        Ok(reason)
    }

    /// Until when a container that is about to start may be held, as far as its probes are concerned.
    pub fn hold_until(&self, state: &State, container: &Container, now: Moment) -> Moment {
        state.unanswered_since(container).unwrap_or(now) + container.permission.longest(self.safety.max_hold)
    }

    /// The memory of the node is not known: nobody is held any further, and after a while everybody is let go.
    fn blind(&self, state: &mut State, seen: &Observation, now: Moment) -> Vec<Decision> {
        let since = *state.last_seen.get_or_insert(now);
        let give_up = now.since(since) >= self.safety.blind;
        let mut decisions = Vec::new();
        for container in &seen.containers {
            let reason = if give_up { Some(Reason::Blind) } else { self.must_release(container, state, now) };
            if let (Some(reason), Some(action)) = (reason, release(container)) {
                decisions.push(Decision::new(action, reason));
            }
        }
        decisions
    }

    /// Why this container may be held no longer.
    fn must_release(&self, container: &Container, state: &State, now: Moment) -> Option<Reason> {
        let (since, longest) = match container.activity {
            Activity::AtGate { since } => {
                (state.unanswered_since(container).unwrap_or(since), container.permission.longest(self.safety.max_hold))
            }
            Activity::Paused { since, .. } => {
                (state.unanswered_since(container).unwrap_or(since), container.permission.longest(self.safety.max_pause))
            }
            Activity::Running { lease: Some(lease) } => (lease.since, self.safety.max_pause),
            Activity::Running { lease: None } => return None,
        };
        if !container.permission.granted() {
            return Some(Reason::NotEligible);
        }
        (now.since(since) >= longest).then(|| Reason::held(now.since(since)))
    }
}

/// What takes back whatever the guard did to this container.
fn release(container: &Container) -> Option<Action> {
    let id = container.id.clone();
    match container.activity {
        Activity::AtGate { .. } => Some(Action::Admit { container: id }),
        Activity::Paused { .. } => Some(Action::Resume { container: id }),
        Activity::Running { lease: Some(_) } => Some(Action::EndLease { container: id }),
        Activity::Running { lease: None } => None,
    }
}

/// One application of the safety rules to the wishes of the policy.
struct Round<'a> {
    guard: &'a Guard,
    state: &'a mut State,
    view: &'a View<'a>,
    decisions: Vec<Decision>,
}

impl Round<'_> {
    fn carry_out(mut self, wishes: Wishes) -> Vec<Decision> {
        self.release_overdue();
        self.sacrifice(wishes.sacrifice);
        self.free(wishes.free);
        self.hold(wishes.hold);
        self.keep_somebody_running();
        for (id, reason) in wishes.admit {
            self.decide(Action::Admit { container: id }, reason);
        }
        if let Some((open, reason)) = wishes.gate {
            self.decide(Action::Gate { open }, reason);
        }
        // What protects the others comes first.
        self.decisions.sort_by_key(|decision| decision.action.releases());
        self.decisions
    }

    fn container(&self, id: &ContainerId) -> Option<&Container> {
        self.view.seen.containers.iter().find(|container| container.id == *id)
    }

    fn decided(&self, id: &ContainerId) -> bool {
        self.decisions.iter().any(|decision| decision.action.container() == Some(id))
    }

    /// One decision per container: the first one counts.
    fn decide(&mut self, action: Action, reason: Reason) {
        if !action.container().is_some_and(|id| self.decided(id)) {
            self.decisions.push(Decision::new(action, reason));
        }
    }

    fn release_overdue(&mut self) {
        let now = self.view.now;
        for container in &self.view.seen.containers {
            if let (Some(reason), Some(action)) = (self.guard.must_release(container, self.state, now), release(container)) {
                if let (Some(track), Reason::HeldLongEnough { .. }) = (self.state.tracks.get_mut(&container.id), &reason) {
                    track.leave_alone_until = Some(now + self.guard.safety.cooldown);
                }
                self.decide(action, reason);
            }
        }
    }

    fn sacrifice(&mut self, wished: Vec<(ContainerId, Reason)>) {
        let bank = self.guard.policy.bank().copied().unwrap_or_default();
        let allowed = governor::allow(&self.guard.safety.sacrifices, wished, self.view, &bank, &mut self.state.sacrifices);
        for (id, reason) in allowed {
            self.decide(Action::Sacrifice { container: id }, reason);
        }
    }

    fn free(&mut self, wished: Vec<(ContainerId, Reason)>) {
        for (id, reason) in wished {
            if let Some(action) = self.container(&id).and_then(release) {
                self.decide(action, reason);
            }
        }
    }

    fn hold(&mut self, wished: Vec<(ContainerId, Reason)>) {
        let mut runnable = self.runnable();
        let mut budgets = self.budgets_left();
        for (id, reason) in wished {
            let Some(container) = self.container(&id).cloned() else { continue };
            let left_alone =
                self.state.tracks.get(&id).and_then(|track| track.leave_alone_until).is_some_and(|until| self.view.now < until);
            if !container.permission.granted() || left_alone || self.decided(&id) {
                continue;
            }
            let Some((action, reason)) = self.way_to_hold(&container, reason) else { continue };
            // A lease that is already there holds no further container, a new one or a pause does.
            if matches!(container.activity, Activity::Running { lease: None }) {
                let allowed = runnable > self.guard.safety.keep_running;
                if !allowed {
                    continue;
                }
            }
            if matches!(action, Action::Pause { .. }) && !take_budgets(&container, &mut budgets) {
                continue;
            }
            if matches!(container.activity, Activity::Running { lease: None }) {
                runnable -= 1;
            }
            self.decide(action, reason);
        }
    }

    /// The gentlest way that holds: `memory.high` first, and a stop for who leaks through it. None if it is held already.
    fn way_to_hold(&self, container: &Container, reason: Reason) -> Option<(Action, Reason)> {
        let safety = &self.guard.safety;
        let levers = container.permission.levers();
        let id = container.id.clone();
        let used = *container.memory.fresh(self.view.now, safety.max_age)?;
        let stop = || {
            // Its probes count what they had to bear before.
            let since = self.state.unanswered_since(container).unwrap_or(self.view.now);
            let until = since + container.permission.longest(safety.max_pause);
            if until <= self.view.now {
                return None;
            }
            levers.stop(&safety.levers).map(|lever| Action::Pause { container: id.clone(), lever, until })
        };
        match container.activity {
            Activity::AtGate { .. } | Activity::Paused { .. } => None,
            Activity::Running { lease: None } if safety.high_first && levers.high => {
                Some((Action::Lease { container: id, high: used, until: self.view.now + safety.max_pause }, reason))
            }
            Activity::Running { lease: None } => Some((stop()?, reason)),
            Activity::Running { lease: Some(lease) } if used.saturating_sub(lease.high) > safety.leak_tolerance => {
                Some((stop()?, Reason::Leaks { used, high: lease.high }))
            }
            // It gave memory back: what is free now is not its own any more.
            Activity::Running { lease: Some(lease) } if lease.high.saturating_sub(used) > safety.leak_tolerance => {
                Some((Action::Lease { container: id, high: used, until: lease.since + safety.max_pause }, reason))
            }
            Activity::Running { lease: Some(_) } => None,
        }
    }

    /// Eligible containers that run unhindered after what is decided so far.
    fn runnable(&self) -> usize {
        let runs = |container: &&Container| {
            let decided = self.decisions.iter().find(|decision| decision.action.container() == Some(&container.id));
            container.permission.granted()
                && match decided.map(|decision| &decision.action) {
                    Some(action) => action.releases(),
                    None => matches!(container.activity, Activity::Running { lease: None }),
                }
        };
        self.view.seen.containers.iter().filter(runs).count()
    }

    /// What the PodDisruptionBudgets still allow, with those that are paused now counted as disrupted.
    fn budgets_left(&self) -> BTreeMap<Arc<str>, u32> {
        let mut left = self.view.seen.budgets.clone();
        let paused = |container: &&Container| matches!(container.activity, Activity::Paused { .. }) && !self.decided(&container.id);
        for name in self.view.seen.containers.iter().filter(paused).flat_map(|container| &container.budgets) {
            if let Some(count) = left.get_mut(name) {
                *count = count.saturating_sub(1);
            }
        }
        left
    }

    /// If everybody is held, the one that needs least goes on, even one whose hold was to be tightened.
    fn keep_somebody_running(&mut self) {
        if self.guard.safety.keep_running == 0 || self.runnable() > 0 {
            return;
        }
        let bank = self.guard.policy.bank().copied().unwrap_or_default();
        let sacrificed = |id: &ContainerId| {
            self.decisions.iter().any(|decision| matches!(&decision.action, Action::Sacrifice { container } if container == id))
        };
        let next = bank::by_need(&bank, self.view).into_iter().map(|(candidate, _)| candidate.container).find(|c| !sacrificed(&c.id));
        if let (Some(container), Some(action)) = (next, next.and_then(release)) {
            self.decisions.retain(|decision| decision.action.container() != Some(&container.id));
            self.decide(action, Reason::LastRunnable);
        }
    }
}

/// Takes one from each budget of the container, or nothing if one of them allows none.
fn take_budgets(container: &Container, left: &mut BTreeMap<Arc<str>, u32>) -> bool {
    if container.budgets.iter().any(|name| left.get(name).is_none_or(|count| *count == 0)) {
        return false;
    }
    for name in &container.budgets {
        if let Some(count) = left.get_mut(name) {
            *count -= 1;
        }
    }
    true
}

/// Free memory that the bank would lend, and what each container may still take: for `explain`.
pub fn needs(guard: &Guard, state: &State, seen: &Observation, node: NodeMemory, now: Moment) -> (u64, Vec<(ContainerId, u64)>) {
    let bank: BankSettings = guard.policy.bank().copied().unwrap_or_default();
    let view = View::new(seen, node, state, &guard.safety, now);
    let needs = bank::by_need(&bank, &view).into_iter().map(|(candidate, need)| (candidate.container.id.clone(), need)).collect();
    (bank::free(&bank, &view), needs)
}
