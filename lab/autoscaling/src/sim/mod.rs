//! The paper's queueing simulator: requests wait, are served by the capacity curve, or expire; pods take time to start.
//!
//! Requests are fractional amounts, not single items. The simulation step divides the period and the timeout, so that
//! timeouts of a tenth of a second make a difference. Policies are run by [`drive`]; the command shows the results.

mod arrivals;
mod drive;
mod pods;
mod queue;
mod shape;
mod trace;
mod train;

use serde::{Deserialize, Serialize};

pub use arrivals::Arrivals;
pub use drive::{Driver, Run, Sample, drive};
pub use shape::Shape;
pub use trace::{Trace, TraceError};
pub use train::{Schedule, train};

use drover_autoscaling::qlearning::Capacity;
use drover_autoscaling::{Seconds, SpecError};
use pods::Pods;
use queue::Queue;

/// Price of a container in USD per second (0.0208 USD per vCPU hour, a tenth of a vCPU).
pub const PRICE: f64 = 5.8e-7;

/// Parameters of the simulated workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct SimSpec {
    /// How many requests pods can serve together.
    pub capacity: Capacity,
    /// Factor on the capacity; below 1 the pods are slower than the curve.
    pub capacity_factor: f64,
    /// Length of a simulation step in seconds.
    pub step: Seconds,
    /// Seconds after which a request that was not served expires.
    pub timeout: Seconds,
    /// Seconds until a new pod serves.
    pub delay: Seconds,
    /// Minimum pods.
    pub min_pods: i32,
    /// Maximum pods.
    pub max_pods: i32,
    /// Pods that serve at the start.
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
    /// Checks that the values can be simulated.
    ///
    /// # Errors
    /// If a value is outside of its range; the error names the field.
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
            "must be 0 or more, and the maximum must be no less than the minimum",
        )?;
        unless((self.min_pods..=self.max_pods).contains(&self.initial_pods), "initialPods", "must be within minPods and maxPods")?;
        unless(self.penalty >= 0.0 && self.penalty.is_finite(), "penalty", "must be 0 or more")
    }

    /// Requests per second of `ready` pods.
    fn rate(&self, ready: i32) -> f64 {
        self.capacity.of(ready) * self.capacity_factor
    }
}

/// What happened during some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Requests that arrived.
    pub arrived: f64,
    /// Requests that were served in time.
    pub served: f64,
    /// Requests that expired.
    pub expired: f64,
    /// Seconds of all pods, including starting ones.
    pub pod_seconds: f64,
    /// Requests that could have been served.
    pub capacity: f64,
}

impl Totals {
    /// CPU of ready pods: the share of the capacity that was used.
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
    /// Starts at a time, with the initial pods serving and no request waiting.
    pub fn new(spec: &SimSpec, start: Seconds) -> Self {
        let timeout = steps(spec.timeout, spec.step);
        Self { spec: spec.clone(), now: start, steps: 0, pods: Pods::new(spec.initial_pods, start), queue: Queue::new(timeout) }
    }

    /// The current time in seconds of the trace.
    pub fn now(&self) -> Seconds {
        self.now
    }

    /// Pods that are set, and ready pods.
    pub fn pods(&self) -> (i32, i32) {
        (self.pods.asked(), self.pods.ready(self.now))
    }

    /// When each pod was requested, and when it became or will become ready.
    pub(crate) fn starts(&self) -> &[(Seconds, Seconds)] {
        self.pods.starts()
    }

    /// Sets the number of pods. New pods start; surplus pods end at once, starting ones first.
    pub fn scale(&mut self, pods: i32) {
        let pods = pods.clamp(self.spec.min_pods, self.spec.max_pods);
        self.pods.scale(pods, self.now, self.spec.delay);
    }

    /// Simulates the steps of these arrivals.
    pub fn advance(&mut self, arrivals: &[f32]) -> Totals {
        let mut totals = Totals::default();
        let step = self.spec.step;
        // Pods become ready rarely, so the capacity is calculated only when that happens.
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
        // Rounds to whole steps, which removes accumulated floating-point errors.
        self.now = (self.now / step).round() * step;
        totals
    }
}

/// Number of steps in a time.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked: positive and short")]
fn steps(seconds: Seconds, step: Seconds) -> u64 {
    (seconds / step).round().max(0.0) as u64
}
