//! The guard of a node: a policy within the safety rules. Each observation leads to one step: [`Guard::step`]`(state, observation, now)
//! -> decisions`. The agent and the simulator run this same code.
//!
//! Invariants for every policy (see tests/it/properties.rs): on missing data there are only releases; only containers that may be held
//! are held; at least one container always runs; no container is held longer than allowed.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::action::{Action, Decision, Reason};
use crate::policy::{PolicyInput, Proposal, bank, gate, paper};
use crate::settings::{BankSettings, Policy, Safety};
use crate::state::{AdmittedContainer, GuardState};
use crate::{Activity, Container, ContainerId, Moment, NodeMemory, Observation, governor};

/// A policy with the safety rules that apply to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Guard {
    pub policy: Policy,
    #[serde(default)]
    pub safety: Safety,
}

impl Guard {
    /// Decides what is to be done now. Call it once per observation, or at once when something has happened; calling it more often does
    /// no harm.
    pub fn step(&self, state: &mut GuardState, observation: &Observation, now: Moment) -> Vec<Decision> {
        let Some(&node) = observation.node.fresh(now, self.safety.max_age).filter(|node| node.capacity > 0) else {
            return self.without_node_memory(state, observation, now);
        };
        state.last_seen = Some(now);
        state.learn(observation, self.policy.gate(), &self.safety, now);
        let input = PolicyInput::new(observation, node, state, &self.safety, now);
        let proposal = match &self.policy {
            Policy::None => Proposal::default(),
            Policy::Paper(settings) => paper::step(settings, state, &input),
            Policy::Bank(settings) => bank::step(settings, &input),
            Policy::GateBank(settings) => {
                let mut proposal = bank::step(&settings.bank, &input);
                gate::step(settings, state, &input, &mut proposal);
                proposal
            }
        };
        SafetyPass { guard: self, state, input: &input, decisions: Vec::new() }.apply(proposal)
    }

    /// Decides whether a container that is about to start may run or is to be held at the start gate, by the same rule as
    /// [`Guard::step`], between two observations. `observation` is the latest one. A container that may not be held always starts, and
    /// every container starts when the memory of the node is not known.
    ///
    /// # Errors
    /// The reason to hold it, when the policy has a start gate and the expected demand does not fit.
    pub fn may_start(
        &self,
        state: &mut GuardState,
        observation: &Observation,
        container: &Container,
        now: Moment,
    ) -> Result<Reason, Reason> {
        let Policy::GateBank(settings) = &self.policy else { return Ok(Reason::Unasked) };
        if !container.permission.granted() {
            return Ok(Reason::NotEligible);
        }
        if self.hold_until(state, container, now) <= now {
            // Its predecessor has used up the probe budget.
            return Ok(Reason::held(container.permission.longest(self.safety.max_hold)));
        }
        let Some(&node) = observation.node.fresh(now, self.safety.max_age).filter(|node| node.capacity > 0) else {
            return Ok(Reason::Blind);
        };
        let input = PolicyInput::new(observation, node, state, &self.safety, now);
        let reason = gate::may_start(settings, state, &input, container)?;
        state.admitted.insert(container.id.clone(), AdmittedContainer { limit: gate::limit(container, node), at: now });
        Ok(reason)
    }

    /// Until when a container that is about to start may be held, given its probe budget.
    pub fn hold_until(&self, state: &GuardState, container: &Container, now: Moment) -> Moment {
        state.unanswered_since(container).unwrap_or(now) + container.permission.longest(self.safety.max_hold)
    }

    /// The memory of the node is not known: no container is newly held, those held too long are released, and after some time all are.
    fn without_node_memory(&self, state: &mut GuardState, observation: &Observation, now: Moment) -> Vec<Decision> {
        let since = *state.last_seen.get_or_insert(now);
        let give_up = now.since(since) >= self.safety.blind;
        let mut decisions = Vec::new();
        for container in &observation.containers {
            let reason = if give_up { Some(Reason::Blind) } else { self.must_release(container, state, now) };
            if let (Some(reason), Some(action)) = (reason, release(container)) {
                decisions.push(Decision::new(action, reason));
            }
        }
        decisions
    }

    /// The reason why this container must be released now, if there is one.
    fn must_release(&self, container: &Container, state: &GuardState, now: Moment) -> Option<Reason> {
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

/// The action that undoes the hold of this container; `None` if it is not held.
fn release(container: &Container) -> Option<Action> {
    let id = container.id.clone();
    match container.activity {
        Activity::AtGate { .. } => Some(Action::Admit { container: id }),
        Activity::Paused { .. } => Some(Action::Resume { container: id }),
        Activity::Running { lease: Some(_) } => Some(Action::EndLease { container: id }),
        Activity::Running { lease: None } => None,
    }
}

/// One application of the safety rules to the proposal of a policy.
struct SafetyPass<'a> {
    guard: &'a Guard,
    state: &'a mut GuardState,
    input: &'a PolicyInput<'a>,
    decisions: Vec<Decision>,
}

impl SafetyPass<'_> {
    fn apply(mut self, proposal: Proposal) -> Vec<Decision> {
        self.release_overdue();
        self.sacrifice(proposal.sacrifice);
        self.free(proposal.free);
        self.hold(proposal.hold);
        self.keep_one_running();
        for (id, reason) in proposal.admit {
            self.decide(Action::Admit { container: id }, reason);
        }
        if let Some((open, reason)) = proposal.gate {
            self.decide(Action::Gate { open }, reason);
        }
        // Holds and sacrifices come first, because they protect the other containers.
        self.decisions.sort_by_key(|decision| decision.action.releases());
        self.decisions
    }

    fn container(&self, id: &ContainerId) -> Option<&Container> {
        self.input.observation.containers.iter().find(|container| container.id == *id)
    }

    fn decided(&self, id: &ContainerId) -> bool {
        self.decisions.iter().any(|decision| decision.action.container() == Some(id))
    }

    /// Adds a decision unless one about the same container exists already: the first one counts.
    fn decide(&mut self, action: Action, reason: Reason) {
        if !action.container().is_some_and(|id| self.decided(id)) {
            self.decisions.push(Decision::new(action, reason));
        }
    }

    fn release_overdue(&mut self) {
        let now = self.input.now;
        for container in &self.input.observation.containers {
            if let (Some(reason), Some(action)) = (self.guard.must_release(container, self.state, now), release(container)) {
                if let (Some(track), Reason::HeldLongEnough { .. }) = (self.state.tracks.get_mut(&container.id), &reason) {
                    track.leave_alone_until = Some(now + self.guard.safety.cooldown);
                }
                self.decide(action, reason);
            }
        }
    }

    fn sacrifice(&mut self, proposed: Vec<(ContainerId, Reason)>) {
        let bank = self.guard.policy.bank().copied().unwrap_or_default();
        let allowed = governor::allow(&self.guard.safety.sacrifices, proposed, self.input, &bank, &mut self.state.sacrifices);
        for (id, reason) in allowed {
            self.decide(Action::Sacrifice { container: id }, reason);
        }
    }

    fn free(&mut self, proposed: Vec<(ContainerId, Reason)>) {
        for (id, reason) in proposed {
            if let Some(action) = self.container(&id).and_then(release) {
                self.decide(action, reason);
            }
        }
    }

    fn hold(&mut self, proposed: Vec<(ContainerId, Reason)>) {
        let mut runnable = self.runnable();
        let mut budgets = self.budgets_left();
        for (id, reason) in proposed {
            let Some(container) = self.container(&id).cloned() else { continue };
            let cooling_down =
                self.state.tracks.get(&id).and_then(|track| track.leave_alone_until).is_some_and(|until| self.input.now < until);
            if !container.permission.granted() || cooling_down || self.decided(&id) {
                continue;
            }
            let Some((action, reason)) = self.hold_action(&container, reason) else { continue };
            // Changing a lease does not reduce the number of runnable containers; a new lease or a pause does.
            let runs_freely = matches!(container.activity, Activity::Running { lease: None });
            if runs_freely && runnable <= self.guard.safety.keep_running {
                continue;
            }
            if matches!(action, Action::Pause { .. }) && !take_budgets(&container, &mut budgets) {
                continue;
            }
            if runs_freely {
                runnable -= 1;
            }
            self.decide(action, reason);
        }
    }

    /// The least intrusive way to hold the container: a `memory.high` lease first, a pause if it grows past its lease. `None` if it is
    /// held already.
    fn hold_action(&self, container: &Container, reason: Reason) -> Option<(Action, Reason)> {
        let safety = &self.guard.safety;
        let levers = container.permission.levers();
        let id = container.id.clone();
        let used = *container.memory.fresh(self.input.now, safety.max_age)?;
        let stop = || {
            // Probes that went unanswered before count against the probe budget.
            let since = self.state.unanswered_since(container).unwrap_or(self.input.now);
            let until = since + container.permission.longest(safety.max_pause);
            if until <= self.input.now {
                return None;
            }
            levers.stop(&safety.levers).map(|lever| Action::Pause { container: id.clone(), lever, until })
        };
        match container.activity {
            Activity::AtGate { .. } | Activity::Paused { .. } => None,
            Activity::Running { lease: None } if safety.high_first && levers.high => {
                Some((Action::Lease { container: id, high: used, until: self.input.now + safety.max_pause }, reason))
            }
            Activity::Running { lease: None } => Some((stop()?, reason)),
            Activity::Running { lease: Some(lease) } if used.saturating_sub(lease.high) > safety.leak_tolerance => {
                Some((stop()?, Reason::Leaks { used, high: lease.high }))
            }
            // It has freed memory, which is not reserved for it any more.
            Activity::Running { lease: Some(lease) } if lease.high.saturating_sub(used) > safety.leak_tolerance => {
                Some((Action::Lease { container: id, high: used, until: lease.since + safety.max_pause }, reason))
            }
            Activity::Running { lease: Some(_) } => None,
        }
    }

    /// How many of the containers that may be held run without a hold, given the decisions so far.
    fn runnable(&self) -> usize {
        let runs = |container: &&Container| {
            let decided = self.decisions.iter().find(|decision| decision.action.container() == Some(&container.id));
            container.permission.granted()
                && match decided.map(|decision| &decision.action) {
                    Some(action) => action.releases(),
                    None => matches!(container.activity, Activity::Running { lease: None }),
                }
        };
        self.input.observation.containers.iter().filter(runs).count()
    }

    /// What each PodDisruptionBudget still allows, with the containers that are paused now counted as disrupted.
    fn budgets_left(&self) -> BTreeMap<Arc<str>, u32> {
        let mut left = self.input.observation.budgets.clone();
        let paused = |container: &&Container| matches!(container.activity, Activity::Paused { .. }) && !self.decided(&container.id);
        for name in self.input.observation.containers.iter().filter(paused).flat_map(|container| &container.budgets) {
            if let Some(count) = left.get_mut(name) {
                *count = count.saturating_sub(1);
            }
        }
        left
    }

    /// If every container is held, the one with the smallest need is released, even one whose lease was to be lowered.
    fn keep_one_running(&mut self) {
        if self.guard.safety.keep_running == 0 || self.runnable() > 0 {
            return;
        }
        let bank = self.guard.policy.bank().copied().unwrap_or_default();
        let sacrificed = |id: &ContainerId| {
            self.decisions.iter().any(|decision| matches!(&decision.action, Action::Sacrifice { container } if container == id))
        };
        let next = bank::by_need(&bank, self.input).into_iter().map(|(candidate, _)| candidate.container).find(|c| !sacrificed(&c.id));
        if let (Some(container), Some(action)) = (next, next.and_then(release)) {
            self.decisions.retain(|decision| decision.action.container() != Some(&container.id));
            self.decide(action, Reason::LastRunnable);
        }
    }
}

/// Takes one disruption from each budget of the container, or none at all if one of the budgets allows none.
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

/// The need of each container in bytes, as the bank sees it, for `drover memguard explain`.
pub fn needs(guard: &Guard, state: &GuardState, observation: &Observation, node: NodeMemory, now: Moment) -> Vec<(ContainerId, u64)> {
    let bank: BankSettings = guard.policy.bank().copied().unwrap_or_default();
    let input = PolicyInput::new(observation, node, state, &guard.safety, now);
    bank::by_need(&bank, &input).into_iter().map(|(candidate, need)| (candidate.container.id.clone(), need)).collect()
}
