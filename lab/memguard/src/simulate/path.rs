//! The memory use of one container over time, drawn at random as it runs. A restart begins a new path.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::model::{JobClass, JobModel};

/// What the container does; `left` is for how many more seconds.
#[derive(Debug)]
enum Phase {
    /// Its memory stays at half of its limit.
    Compute { left: f64 },
    /// It takes one unit of memory, at `per_second` MiB per second; `more` units follow.
    Grow { left: f64, per_second: f64, more: u32 },
    /// It keeps what it has taken, and then frees it.
    Hold { left: f64 },
}

/// The position of a container on its path. Memory is in MiB, time in seconds of unhindered running.
#[derive(Debug)]
pub(super) struct MemoryPath {
    random: ChaCha8Rng,
    cycles_left: u32,
    phase: Phase,
    pub memory: f64,
}

impl MemoryPath {
    /// A new path that begins to compute at half of the limit.
    pub fn new(mut random: ChaCha8Rng, model: &JobModel, class: &JobClass) -> Self {
        let left = exponential(&mut random, model.compute);
        Self { random, cycles_left: model.cycles, phase: Phase::Compute { left }, memory: class.limit / 2.0 }
    }

    /// Continues by `work` seconds. Growth stops and waits at `ceiling` MiB. Returns true when the job is done.
    pub fn advance(&mut self, mut work: f64, ceiling: f64, model: &JobModel, class: &JobClass) -> bool {
        loop {
            match &mut self.phase {
                Phase::Compute { left } | Phase::Hold { left } if work < *left => {
                    *left -= work;
                    return false;
                }
                Phase::Compute { left } => {
                    work -= *left;
                    let most = (class.limit / 2.0 / class.unit).floor() as u32;
                    let units = self.random.random_range(model.least_units.min(most)..=most);
                    self.phase = if units == 0 { self.at_top(model) } else { self.unit(units - 1, model, class) };
                }
                Phase::Grow { left, per_second, more } => {
                    let room = (ceiling - self.memory).max(0.0) / *per_second;
                    let spent = work.min(*left).min(room);
                    self.memory += spent * *per_second;
                    *left -= spent;
                    work -= spent;
                    if *left > 1e-9 {
                        return false;
                    }
                    let more = *more;
                    self.phase = if more == 0 { self.at_top(model) } else { self.unit(more - 1, model, class) };
                }
                Phase::Hold { left } => {
                    work -= *left;
                    self.memory = class.limit / 2.0;
                    self.cycles_left -= 1;
                    if self.cycles_left == 0 {
                        return true;
                    }
                    self.phase = Phase::Compute { left: exponential(&mut self.random, model.compute) };
                }
            }
        }
    }

    /// Begins to take a unit of memory, with `more` to follow.
    fn unit(&mut self, more: u32, model: &JobModel, class: &JobClass) -> Phase {
        let left = model.unit_seconds * around_one(&mut self.random, model.unit_jitter);
        Phase::Grow { left, per_second: class.unit / left, more }
    }

    /// Begins to hold what was taken.
    fn at_top(&mut self, model: &JobModel) -> Phase {
        Phase::Hold { left: exponential(&mut self.random, model.hold) }
    }
}

/// A factor drawn uniformly between `1 - jitter` and `1 + jitter`.
pub(super) fn around_one(random: &mut ChaCha8Rng, jitter: f64) -> f64 {
    1.0 + jitter * (2.0 * random.random::<f64>() - 1.0)
}

/// A duration in seconds drawn from the exponential distribution with this mean.
fn exponential(random: &mut ChaCha8Rng, mean: f64) -> f64 {
    -mean * (1.0 - random.random::<f64>()).ln()
}
