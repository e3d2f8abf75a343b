//! A simulated pod: queued, starting, at the start gate, running, done. A killed container starts again after a back-off.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::model::{ClusterModel, JobClass};
use super::path::{MemoryPath, around_one};
use drover_memguard::{ContainerId, Lever, MemoryHighLease, Moment};

#[derive(Debug)]
pub(super) enum PodStage {
    /// Not yet bound to a node.
    Queued,
    /// Its container starts at that time.
    Starting {
        at: f64,
    },
    AtGate {
        since: f64,
    },
    Running(Box<RunningContainer>),
    Done,
}

#[derive(Debug)]
pub(super) struct RunningContainer {
    pub path: MemoryPath,
    pub since: f64,
    pub paused: Option<(Lever, f64)>,
    pub lease: Option<MemoryHighLease>,
}

#[derive(Debug)]
pub(super) struct SimulatedPod {
    pub number: usize,
    pub class: JobClass,
    pub request: f64,
    pub stage: PodStage,
    pub container: ContainerId,
    /// When the pod was bound to its node, which is also when its first container was ordered.
    pub bound: f64,
    pub first_start: Option<f64>,
    pub done: Option<f64>,
    pub kills: u32,
    pub sacrifices: u32,
    attempt: u32,
    backoffs: u32,
    seed: u64,
}

impl SimulatedPod {
    /// A queued pod. `number` is unique in the run and, with the seed, determines the pod's random numbers.
    pub fn new(number: usize, class: &JobClass, model: &ClusterModel, seed: u64) -> Self {
        Self {
            number,
            class: class.clone(),
            request: class.limit / model.oversubscription,
            stage: PodStage::Queued,
            container: ContainerId::from(String::new()),
            bound: 0.0,
            first_start: None,
            done: None,
            kills: 0,
            sacrifices: 0,
            attempt: 0,
            backoffs: 0,
            seed,
        }
    }

    /// The random numbers of one attempt of one pod. They are the same for every policy, so that policies are compared on equal draws.
    fn random(&self, purpose: u64) -> ChaCha8Rng {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(((self.number as u64) << 32) | (u64::from(self.attempt) << 2) | purpose);
        random
    }

    /// Orders the next container, which starts after `delay` and the start latency.
    pub fn order(&mut self, now: f64, delay: f64, model: &ClusterModel) {
        self.attempt += 1;
        self.container = ContainerId::from(format!("job-{}/{}", self.number, self.attempt));
        let latency = model.start_latency * around_one(&mut self.random(0), model.start_jitter);
        self.stage = PodStage::Starting { at: now + delay + latency };
    }

    /// Starts the container.
    pub fn run(&mut self, now: f64, model: &ClusterModel) {
        let path = MemoryPath::new(self.random(1), &model.job, &self.class);
        self.first_start.get_or_insert(now);
        self.stage = PodStage::Running(Box::new(RunningContainer { path, since: now, paused: None, lease: None }));
    }

    /// The kernel kills the container, which restarts with CrashLoopBackOff.
    pub fn killed(&mut self, now: f64, model: &ClusterModel) {
        self.kills += 1;
        self.restart(now, true, model);
    }

    /// The guard kills the container.
    pub fn sacrificed(&mut self, now: f64, model: &ClusterModel) {
        self.sacrifices += 1;
        self.restart(now, !model.sacrifice_without_backoff, model);
    }

    fn restart(&mut self, now: f64, backs_off: bool, model: &ClusterModel) {
        let ran = self.running().map_or(0.0, |running| now - running.since);
        if ran > model.backoff.reset {
            self.backoffs = 0;
        }
        let delay = if backs_off {
            self.backoffs += 1;
            model.backoff.delay(self.backoffs)
        } else {
            0.0
        };
        self.order(now, delay, model);
    }

    /// Its running container; `None` if there is none.
    pub fn running(&self) -> Option<&RunningContainer> {
        match &self.stage {
            PodStage::Running(running) => Some(running),
            _ => None,
        }
    }

    /// The memory that it uses, in MiB.
    pub fn memory(&self) -> f64 {
        self.running().map_or(0.0, |running| running.path.memory)
    }
}

/// Converts simulated seconds to the clock of the guard.
pub(super) fn moment(seconds: f64) -> Moment {
    Moment((seconds * 1000.0).round() as u64)
}
