//! The paper's queueing simulator: requests wait in line, are served by the capacity curve, or expire; pods take time to start.
//!
//! A fluid: requests are amounts, not items. The simulation step divides the autoscaling period and the timeout, so that
//! time-outs of a tenth of a second can be told apart. Not here: who decides ([`drive`]), how it is shown (the command).

mod arrivals;
mod drive;
mod pods;
mod queue;
mod trace;
mod train;

use serde::{Deserialize, Serialize};

pub use arrivals::Arrivals;
pub use drive::{Driver, Run, Sample, drive};
pub use trace::{Shape, Trace, TraceError};
pub use train::{Schedule, train};

use drover_autoscaling::qlearning::Capacity;
use drover_autoscaling::{Seconds, SpecError};
use pods::Pods;
use queue::Queue;

/// Price of a container in USD per second (0.0208 USD per vCPU hour, a tenth of a vCPU).
pub const PRICE: f64 = 5.8e-7;

/// What is simulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct SimSpec {
    /// What pods can do together.
    pub capacity: Capacity,
    /// Factor on it: below 1 the real pods are slower than the curve says.
    pub capacity_factor: f64,
    /// Seconds of a simulation step.
    pub step: Seconds,
    /// Seconds after which a request that is not served expires.
    pub timeout: Seconds,
    /// Seconds from asking for a pod to its serving.
    pub delay: Seconds,
    /// Fewest pods.
    pub min_pods: i32,
    /// Most pods.
    pub max_pods: i32,
    /// Pods at the start, serving.
    pub initial_pods: i32,
    /// Cost of an expired request in pod-seconds.
    pub penalty: f64,
}

impl Default for SimSpec {
    fn default() -> Self {
        Self {
            capacity: Capacity::default(),
            capacity_factor: 1.0,
            step: 0.1,
            timeout: 0.5,
            delay: 10.0,
            min_pods: 1,
            max_pods: 4,
            initial_pods: 1,
            penalty: 0.1,
        }
    }
}

impl SimSpec {
    /// Refuses values that cannot be simulated.
    pub fn check(&self) -> Result<(), SpecError> {
        let unless = SpecError::unless;
        let whole = |seconds: f64| (seconds / self.step - (seconds / self.step).round()).abs() < 1e-6;
        unless(self.capacity_factor > 0.0 && self.capacity_factor.is_finite(), "capacityFactor", "must be above 0")?;
        unless(
            (0.001..=1.0).contains(&self.step) && (1.0 / self.step - (1.0 / self.step).round()).abs() < 1e-6,
            "step",
            "must divide a second",
        )?;
        unless(
            self.timeout > 0.0 && self.timeout <= 3_600.0 && whole(self.timeout),
            "timeout",
            "must be above 0 s and a multiple of the step",
        )?;
        unless((0.0..=3_600.0).contains(&self.delay), "delay", "must be 0 s to an hour")?;
        unless(
            self.min_pods >= 0 && self.max_pods >= self.min_pods.max(1),
            "minPods, maxPods",
            "must be 0 or more, and the most no less than the fewest",
        )?;
        unless((self.min_pods..=self.max_pods).contains(&self.initial_pods), "initialPods", "must be within minPods and maxPods")?;
        unless(self.penalty >= 0.0 && self.penalty.is_finite(), "penalty", "must be 0 or more")
    }

    /// Requests per second of `ready` pods.
    fn rate(&self, ready: i32) -> f64 {
        self.capacity.of(ready) * self.capacity_factor
    }
}

/// What happened over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Requests that came.
    pub arrived: f64,
    /// Requests that were served in time.
    pub served: f64,
    /// Requests that expired.
    pub expired: f64,
    /// Seconds of all pods, starting ones too.
    pub pod_seconds: f64,
    /// Requests that could have been served.
    pub capacity: f64,
}

impl Totals {
    /// CPU use of ready pods: served of what could have been.
    pub fn cpu(&self) -> f64 {
        if self.capacity > 0.0 { self.served / self.capacity } else { 0.0 }
    }
    /// Cost in pod-seconds.
    pub fn cost(&self, penalty: f64) -> f64 {
        self.pod_seconds + penalty * self.expired
    }
    fn add(&mut self, other: &Self) {
        self.arrived += other.arrived;
        self.served += other.served;
        self.expired += other.expired;
        self.pod_seconds += other.pod_seconds;
        self.capacity += other.capacity;
    }
}

/// A workload under simulation.
#[derive(Clone, Debug)]
pub struct Simulation {
    spec: SimSpec,
    now: Seconds,
    steps: u64,
    pods: Pods,
    queue: Queue,
}

impl Simulation {
    /// Starts at a time with the initial pods serving and nothing waiting.
    pub fn new(spec: &SimSpec, start: Seconds) -> Self {
        let timeout = steps(spec.timeout, spec.step);
        Self { spec: spec.clone(), now: start, steps: 0, pods: Pods::new(spec.initial_pods, start), queue: Queue::new(timeout) }
    }

    /// Now.
    pub fn now(&self) -> Seconds {
        self.now
    }

    /// Pods asked for, and of these ready.
    pub fn pods(&self) -> (i32, i32) {
        (self.pods.asked(), self.pods.ready(self.now))
    }

    /// When each pod was asked for and when it became, or will become, ready.
    pub(crate) fn starts(&self) -> &[(Seconds, Seconds)] {
        self.pods.starts()
    }

    /// Asks for another number of pods: new ones start, superfluous ones are gone at once, starting ones first.
    pub fn scale(&mut self, pods: i32) {
        let pods = pods.clamp(self.spec.min_pods, self.spec.max_pods);
        self.pods.scale(pods, self.now, self.spec.delay);
    }

    /// Lets arrivals come in, step by step.
    pub fn advance(&mut self, arrivals: &[f32]) -> Totals {
        let mut totals = Totals::default();
        let step = self.spec.step;
        // Pods change readiness rarely; asking for the capacity once per change keeps the inner loop short.
        let (mut ready, mut next) = self.pods.ready_until(self.now);
        let mut can = self.spec.rate(ready) * step;
        for &arrived in arrivals {
            if self.now >= next {
                (ready, next) = self.pods.ready_until(self.now);
                can = self.spec.rate(ready) * step;
            }
            let (served, expired) = self.queue.step(self.steps, f64::from(arrived), can);
            totals.arrived += f64::from(arrived);
            totals.served += served;
            totals.expired += expired;
            totals.capacity += can;
            self.steps += 1;
            self.now += step;
        }
        let seconds = step * arrivals.iter().fold(0.0, |count, _| count + 1.0);
        totals.pod_seconds = f64::from(self.pods.asked()) * seconds;
        // Whole steps only: a second is a second again, whatever a tenth is in binary.
        self.now = (self.now / step).round() * step;
        totals
    }
}

/// Steps in so many seconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked: positive and short")]
fn steps(seconds: Seconds, step: Seconds) -> u64 {
    (seconds / step).round().max(0.0) as u64
}
