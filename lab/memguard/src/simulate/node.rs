//! A node: its containers run, the kernel kills when memory is full, and the guard, if there is one, looks and acts.

use std::sync::Arc;

use super::pod::{Pod, Running, Stage, moment};
use super::world::{Victim, World};
use drover_memguard::{
    Action, Activity, Container, Guard, HighLease, Lever, Levers, Moment, NodeMemory, Observation, Permission, Reading, State,
};

const MIB: f64 = 1_048_576.0;

#[derive(Debug)]
pub(super) struct Node {
    pub pods: Vec<Pod>,
    guard: Option<Guard>,
    state: State,
    latest: Observation,
    next_look: f64,
    /// Decided and not yet in effect.
    pending: Vec<(f64, Action)>,
    pub paused_seconds: f64,
    pub gate_seconds: f64,
}

impl Node {
    pub fn new(guard: Option<Guard>) -> Self {
        Self {
            pods: Vec::new(),
            guard,
            state: State::default(),
            latest: Observation::default(),
            next_look: 0.0,
            pending: Vec::new(),
            paused_seconds: 0.0,
            gate_seconds: 0.0,
        }
    }

    /// Requests of the pods that are on it.
    pub fn allocated(&self) -> f64 {
        self.pods.iter().map(|pod| pod.request).sum()
    }

    /// One time step, ending at `now`. Gives the pods that are done.
    pub fn step(&mut self, now: f64, world: &World) -> Vec<Pod> {
        self.run(now, world);
        self.start_due(now, world);
        self.kill_while_full(now, world);
        self.act(now, world);
        if now + 1e-9 >= self.next_look {
            self.next_look = now + world.poll;
            self.look(now, world);
        }
        if !self.pods.iter().any(|pod| matches!(pod.stage, Stage::Done)) {
            return Vec::new();
        }
        let (done, here) = std::mem::take(&mut self.pods).into_iter().partition(|pod| matches!(pod.stage, Stage::Done));
        self.pods = here;
        done
    }

    fn run(&mut self, now: f64, world: &World) {
        let active = self.pods.iter().filter_map(Pod::running).filter(|running| running.paused.is_none()).count();
        let speed = (world.threads / active.max(1) as f64).min(1.0) * world.step;
        for pod in &mut self.pods {
            match &mut pod.stage {
                Stage::AtGate { .. } => self.gate_seconds += world.step,
                Stage::Running(running) => {
                    let work = match running.paused {
                        None => speed,
                        Some((lever, _)) => {
                            self.paused_seconds += world.step;
                            if lever == Lever::Quota { speed / world.slowdown() } else { 0.0 }
                        }
                    };
                    let leak = |lease: HighLease| (lease.high as f64 / MIB).max(running.path.memory) + world.high_leak * world.step;
                    let ceiling = running.lease.map_or(f64::INFINITY, leak);
                    if running.path.advance(work, ceiling, &world.job, &pod.class) {
                        pod.stage = Stage::Done;
                        pod.done = Some(now);
                    }
                }
                _ => {}
            }
        }
    }

    fn start_due(&mut self, now: f64, world: &World) {
        for index in 0..self.pods.len() {
            if !matches!(self.pods[index].stage, Stage::Starting { at } if at <= now) {
                continue;
            }
            self.pods[index].stage = Stage::AtGate { since: now };
            let container = describe(&self.pods[index], now, world);
            let allowed = match &self.guard {
                Some(guard) => guard.may_start(&mut self.state, &self.latest, &container, moment(now)).is_ok(),
                None => true,
            };
            if allowed {
                self.pods[index].run(now, world);
            }
        }
    }

    fn kill_while_full(&mut self, now: f64, world: &World) {
        while self.pods.iter().map(Pod::memory).sum::<f64>() > world.capacity() {
            let badness = |pod: &Pod| match world.victim {
                Victim::OverRequest => pod.memory() - pod.request,
                Victim::Youngest => pod.running().map_or(0.0, |running| running.since),
            };
            let running = self.pods.iter_mut().filter(|pod| pod.running().is_some());
            match running.max_by(|a, b| badness(a).total_cmp(&badness(b))) {
                Some(victim) => victim.killed(now, world),
                None => return,
            }
        }
    }

    fn look(&mut self, now: f64, world: &World) {
        let Some(guard) = &self.guard else { return };
        let used = self.pods.iter().map(Pod::memory).sum::<f64>() * MIB;
        let node = NodeMemory { used: used as u64, capacity: (world.capacity() * MIB) as u64 };
        let held = |pod: &&Pod| matches!(pod.stage, Stage::AtGate { .. } | Stage::Running(_));
        let containers = self.pods.iter().filter(held).map(|pod| describe(pod, now, world)).collect();
        self.latest = Observation { node: Reading::seen(node, moment(now)), containers, ..Observation::default() };
        let decisions = guard.step(&mut self.state, &self.latest, moment(now));
        self.pending.extend(decisions.into_iter().map(|decision| (now + world.latency, decision.action)));
        self.act(now, world);
    }

    fn act(&mut self, now: f64, world: &World) {
        if self.pending.is_empty() {
            return;
        }
        let (due, later) = std::mem::take(&mut self.pending).into_iter().partition(|(at, _)| *at <= now + 1e-9);
        self.pending = later;
        let due: Vec<(f64, Action)> = due;
        for (_, action) in due {
            if let Some(pod) = action.container().and_then(|id| self.pods.iter_mut().find(|pod| pod.container == *id)) {
                apply(pod, &action, now, world);
            }
        }
    }
}

/// What the guard decided happens to the container, if it is still as the guard saw it.
fn apply(pod: &mut Pod, action: &Action, now: f64, world: &World) {
    match (action, &mut pod.stage) {
        (Action::Admit { .. }, Stage::AtGate { .. }) => pod.run(now, world),
        (Action::Sacrifice { .. }, Stage::Running(_)) => pod.sacrificed(now, world),
        (Action::Pause { lever, .. }, Stage::Running(running)) => {
            running.lease = None;
            running.paused.get_or_insert((*lever, now));
        }
        (Action::Resume { .. }, Stage::Running(running)) => running.paused = None,
        (Action::Lease { high, .. }, Stage::Running(running)) => {
            let since = running.lease.map_or(moment(now), |lease| lease.since);
            running.lease = Some(HighLease { high: *high, since });
        }
        (Action::EndLease { .. }, Stage::Running(running)) => running.lease = None,
        _ => {}
    }
}

fn describe(pod: &Pod, now: f64, world: &World) -> Container {
    let bytes = |mib: f64| (mib * MIB) as u64;
    let levers = Levers { freeze: true, quota: true, high: world.cgroup_v2 };
    let (started, activity): (Moment, Activity) = match &pod.stage {
        Stage::Running(running) => (moment(running.since), activity(running)),
        Stage::AtGate { since } => (moment(*since), Activity::AtGate { since: moment(*since) }),
        _ => (moment(now), Activity::Running { lease: None }),
    };
    Container {
        id: pod.container.clone(),
        name: Arc::clone(&pod.container.0),
        started,
        memory: Reading::seen(bytes(pod.memory()), moment(now)),
        limit: Some(bytes(pod.class.limit)),
        activity,
        permission: Permission::Granted { levers, patience: None },
        priority: pod.class.priority,
        budgets: Vec::new(),
    }
}

fn activity(running: &Running) -> Activity {
    match running.paused {
        Some((lever, since)) => Activity::Paused { since: moment(since), lever },
        None => Activity::Running { lease: running.lease },
    }
}
