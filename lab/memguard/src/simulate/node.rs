//! A simulated node: its containers run, the kernel kills when memory is full, and the guard, if there is one, observes and acts.

use std::sync::Arc;

use super::model::{ClusterModel, OomVictim};
use super::pod::{PodStage, RunningContainer, SimulatedPod, moment};
use drover_memguard::{
    Action, Activity, Container, Guard, GuardState, Lever, Levers, MemoryHighLease, Moment, NodeMemory, Observation, Permission, Reading,
};

const MIB: f64 = 1_048_576.0;

#[derive(Debug)]
pub(super) struct SimulatedNode {
    pub pods: Vec<SimulatedPod>,
    guard: Option<Guard>,
    state: GuardState,
    latest: Observation,
    next_observation: f64,
    /// Actions that were decided and are not in effect yet, with the time of their effect.
    pending: Vec<(f64, Action)>,
    pub paused_seconds: f64,
    pub gate_seconds: f64,
}

impl SimulatedNode {
    /// An empty node.
    pub fn new(guard: Option<Guard>) -> Self {
        Self {
            pods: Vec::new(),
            guard,
            state: GuardState::default(),
            latest: Observation::default(),
            next_observation: 0.0,
            pending: Vec::new(),
            paused_seconds: 0.0,
            gate_seconds: 0.0,
        }
    }

    /// The sum of the requests of its pods, in MiB.
    pub fn allocated(&self) -> f64 {
        self.pods.iter().map(|pod| pod.request).sum()
    }

    /// Simulates one time step that ends at `now`. Returns the pods that are done.
    pub fn step(&mut self, now: f64, model: &ClusterModel) -> Vec<SimulatedPod> {
        self.run(now, model);
        self.start_due(now, model);
        self.kill_while_full(now, model);
        self.act(now, model);
        if now + 1e-9 >= self.next_observation {
            self.next_observation = now + model.poll;
            self.observe(now, model);
        }
        if !self.pods.iter().any(|pod| matches!(pod.stage, PodStage::Done)) {
            return Vec::new();
        }
        let (done, here) = std::mem::take(&mut self.pods).into_iter().partition(|pod| matches!(pod.stage, PodStage::Done));
        self.pods = here;
        done
    }

    fn run(&mut self, now: f64, model: &ClusterModel) {
        let active = self.pods.iter().filter_map(SimulatedPod::running).filter(|running| running.paused.is_none()).count();
        let speed = (model.threads / active.max(1) as f64).min(1.0) * model.step;
        for pod in &mut self.pods {
            match &mut pod.stage {
                PodStage::AtGate { .. } => self.gate_seconds += model.step,
                PodStage::Running(running) => {
                    let work = match running.paused {
                        None => speed,
                        Some((lever, _)) => {
                            self.paused_seconds += model.step;
                            if lever == Lever::Quota { speed / model.slowdown() } else { 0.0 }
                        }
                    };
                    let leak = |lease: MemoryHighLease| (lease.high as f64 / MIB).max(running.path.memory) + model.high_leak * model.step;
                    let ceiling = running.lease.map_or(f64::INFINITY, leak);
                    if running.path.advance(work, ceiling, &model.job, &pod.class) {
                        pod.stage = PodStage::Done;
                        pod.done = Some(now);
                    }
                }
                _ => {}
            }
        }
    }

    fn start_due(&mut self, now: f64, model: &ClusterModel) {
        for index in 0..self.pods.len() {
            if !matches!(self.pods[index].stage, PodStage::Starting { at } if at <= now) {
                continue;
            }
            self.pods[index].stage = PodStage::AtGate { since: now };
            let container = describe_container(&self.pods[index], now, model);
            let allowed = match &self.guard {
                Some(guard) => guard.may_start(&mut self.state, &self.latest, &container, moment(now)).is_ok(),
                None => true,
            };
            if allowed {
                self.pods[index].run(now, model);
            }
        }
    }

    fn kill_while_full(&mut self, now: f64, model: &ClusterModel) {
        while self.pods.iter().map(SimulatedPod::memory).sum::<f64>() > model.capacity() {
            let badness = |pod: &SimulatedPod| match model.victim {
                OomVictim::OverRequest => pod.memory() - pod.request,
                OomVictim::Youngest => pod.running().map_or(0.0, |running| running.since),
            };
            let running = self.pods.iter_mut().filter(|pod| pod.running().is_some());
            match running.max_by(|a, b| badness(a).total_cmp(&badness(b))) {
                Some(victim) => victim.killed(now, model),
                None => return,
            }
        }
    }

    fn observe(&mut self, now: f64, model: &ClusterModel) {
        let Some(guard) = &self.guard else { return };
        let used = self.pods.iter().map(SimulatedPod::memory).sum::<f64>() * MIB;
        let node = NodeMemory { used: used as u64, capacity: (model.capacity() * MIB) as u64 };
        let held = |pod: &&SimulatedPod| matches!(pod.stage, PodStage::AtGate { .. } | PodStage::Running(_));
        let containers = self.pods.iter().filter(held).map(|pod| describe_container(pod, now, model)).collect();
        self.latest = Observation { node: Reading::seen(node, moment(now)), containers, ..Observation::default() };
        let decisions = guard.step(&mut self.state, &self.latest, moment(now));
        self.pending.extend(decisions.into_iter().map(|decision| (now + model.latency, decision.action)));
        self.act(now, model);
    }

    fn act(&mut self, now: f64, model: &ClusterModel) {
        if self.pending.is_empty() {
            return;
        }
        let (due, later) = std::mem::take(&mut self.pending).into_iter().partition(|(at, _)| *at <= now + 1e-9);
        self.pending = later;
        let due: Vec<(f64, Action)> = due;
        for (_, action) in due {
            if let Some(pod) = action.container().and_then(|id| self.pods.iter_mut().find(|pod| pod.container == *id)) {
                apply(pod, &action, now, model);
            }
        }
    }
}

/// Applies an action to the pod, if its container is still in the state that the guard observed.
fn apply(pod: &mut SimulatedPod, action: &Action, now: f64, model: &ClusterModel) {
    match (action, &mut pod.stage) {
        (Action::Admit { .. }, PodStage::AtGate { .. }) => pod.run(now, model),
        (Action::Sacrifice { .. }, PodStage::Running(_)) => pod.sacrificed(now, model),
        (Action::Pause { lever, .. }, PodStage::Running(running)) => {
            running.lease = None;
            running.paused.get_or_insert((*lever, now));
        }
        (Action::Resume { .. }, PodStage::Running(running)) => running.paused = None,
        (Action::Lease { high, .. }, PodStage::Running(running)) => {
            let since = running.lease.map_or(moment(now), |lease| lease.since);
            running.lease = Some(MemoryHighLease { high: *high, since });
        }
        (Action::EndLease { .. }, PodStage::Running(running)) => running.lease = None,
        _ => {}
    }
}

fn describe_container(pod: &SimulatedPod, now: f64, model: &ClusterModel) -> Container {
    let bytes = |mib: f64| (mib * MIB) as u64;
    let levers = Levers { freeze: true, quota: true, high: model.cgroup_v2 };
    let (started, activity): (Moment, Activity) = match &pod.stage {
        PodStage::Running(running) => (moment(running.since), activity(running)),
        PodStage::AtGate { since } => (moment(*since), Activity::AtGate { since: moment(*since) }),
        _ => (moment(now), Activity::Running { lease: None }),
    };
    Container {
        id: pod.container.clone(),
        name: Arc::clone(&pod.container.0),
        started,
        memory: Reading::seen(bytes(pod.memory()), moment(now)),
        limit: Some(bytes(pod.class.limit)),
        activity,
        permission: Permission::Granted { levers, probe_budget: None },
        priority: pod.class.priority,
        budgets: Vec::new(),
    }
}

fn activity(running: &RunningContainer) -> Activity {
    match running.paused {
        Some((lever, since)) => Activity::Paused { since: moment(since), lever },
        None => Activity::Running { lease: running.lease },
    }
}
