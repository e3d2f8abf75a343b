//! A pod on its node: waiting to start, held at the gate, running, backing off, done.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::path::{Path, around_one};
use super::world::{JobClass, World};
use drover_memguard::{ContainerId, HighLease, Lever, Moment};

#[derive(Debug)]
pub(super) enum Stage {
    /// Not bound to a node yet.
    Queued,
    /// Its container is ordered and starts at that moment.
    Starting { at: f64 },
    /// Its container is held before it allocates.
    AtGate { since: f64 },
    /// Its container runs.
    Running(Box<Running>),
    /// Done.
    Done,
}

#[derive(Debug)]
pub(super) struct Running {
    pub path: Path,
    pub since: f64,
    pub paused: Option<(Lever, f64)>,
    pub lease: Option<HighLease>,
}

#[derive(Debug)]
pub(super) struct Pod {
    pub number: usize,
    pub class: JobClass,
    pub request: f64,
    pub stage: Stage,
    pub container: ContainerId,
    /// When the pod was bound, and so its first container was ordered.
    pub bound: f64,
    pub first_start: Option<f64>,
    pub done: Option<f64>,
    pub kills: u32,
    pub sacrifices: u32,
    attempt: u32,
    backoffs: u32,
    seed: u64,
}

impl Pod {
    pub fn new(number: usize, class: &JobClass, world: &World, seed: u64) -> Self {
        Self {
            number,
            class: class.clone(),
            request: class.limit / world.oversubscription,
            stage: Stage::Queued,
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

    /// Draws of one attempt of one pod: the same for every policy, so that policies are compared on equal luck.
    fn random(&self, purpose: u64) -> ChaCha8Rng {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(((self.number as u64) << 32) | (u64::from(self.attempt) << 2) | purpose);
        random
    }

    /// Orders the next container, to start after `delay` and the latency of starting.
    pub fn order(&mut self, now: f64, delay: f64, world: &World) {
        self.attempt += 1;
        self.container = ContainerId::from(format!("job-{}/{}", self.number, self.attempt));
        let latency = world.start_latency * around_one(&mut self.random(0), world.start_jitter);
        self.stage = Stage::Starting { at: now + delay + latency };
    }

    /// The container runs from now on.
    pub fn run(&mut self, now: f64, world: &World) {
        let path = Path::new(self.random(1), &world.job, &self.class);
        self.first_start.get_or_insert(now);
        self.stage = Stage::Running(Box::new(Running { path, since: now, paused: None, lease: None }));
    }

    /// Killed by the kernel: CrashLoopBackOff.
    pub fn killed(&mut self, now: f64, world: &World) {
        self.kills += 1;
        self.restart(now, true, world);
    }

    /// Killed by the guard.
    pub fn sacrificed(&mut self, now: f64, world: &World) {
        self.sacrifices += 1;
        self.restart(now, !world.sacrifice_without_backoff, world);
    }

    fn restart(&mut self, now: f64, backs_off: bool, world: &World) {
        let ran = self.running().map_or(0.0, |running| now - running.since);
        if ran > world.backoff.reset {
            self.backoffs = 0;
        }
        let delay = if backs_off {
            self.backoffs += 1;
            world.backoff.delay(self.backoffs)
        } else {
            0.0
        };
        self.order(now, delay, world);
    }

    pub fn running(&self) -> Option<&Running> {
        match &self.stage {
            Stage::Running(running) => Some(running),
            _ => None,
        }
    }

    pub fn memory(&self) -> f64 {
        self.running().map_or(0.0, |running| running.path.memory)
    }
}

/// The clock of the guard.
pub(super) fn moment(seconds: f64) -> Moment {
    Moment((seconds * 1000.0).round() as u64)
}
