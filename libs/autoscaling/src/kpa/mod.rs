//! `kpa`: Knative's pod autoscaler, by concurrency or requests per second, with panic, burst capacity and scale to zero.
//!
//! Measuring requests is up to the agent's proxies; bounds and pause are in [`crate::Limits`].

pub mod capacity;
mod collect;
mod decide;
pub mod max_window;
mod stats;
pub mod target;
mod window;
pub mod zero;

use serde::{Deserialize, Serialize};

pub use collect::Collector;
pub use decide::TICK;
pub(crate) use decide::propose;
pub use stats::{RequestEvent, RequestReport, RequestStats};
pub use window::{Averaging, Window};

use crate::{Reading, Seconds, SpecError};

/// What KPA scales by. The defaults are Knative's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct KpaSpec {
    /// The metric that is measured.
    pub metric: KpaMetric,
    /// Target per pod at full use. Default: 100 concurrent requests, or 200 requests per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<f64>,
    /// Maximum concurrent requests per pod, which the queue-proxy enforces; 0: unlimited.
    pub container_concurrency: f64,
    /// Share of the target to use, 0 to 1 (values above 1 are per cent). Default: 0.7.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_utilization: Option<f64>,
    /// The target as resolved elsewhere; replaces the four settings above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved: Option<Resolved>,
    /// Concurrent requests to keep room for in case of a burst; -1: unlimited, 0: none.
    pub target_burst_capacity: f64,
    /// Panic begins when the panic window wants this many times the ready pods.
    pub panic_threshold: f64,
    /// Maximum factor by which one decision scales up.
    pub max_scale_up_rate: f64,
    /// Maximum divisor by which one decision scales down.
    pub max_scale_down_rate: f64,
    /// Length of the stable window in seconds.
    pub stable_window: Seconds,
    /// Length of the panic window in per cent of the stable window.
    pub panic_window_percentage: f64,
    /// Seconds for which fewer pods must be enough before the workload is scaled down.
    pub scale_down_delay: Seconds,
    /// Minimum pods as long as there is any load; 1: no such minimum.
    pub activation_scale: i32,
    /// Whether requests can reach the workload; if not, it is scaled down at once.
    pub reachable: bool,
    /// Pods of a new workload.
    pub initial_scale: i32,
    /// Seconds that the last pod stays after the proxy is back in the request path.
    pub scale_to_zero_grace_period: Seconds,
    /// Minimum seconds that the last pod stays after the workload became inactive.
    pub scale_to_zero_pod_retention: Seconds,
}

/// The metric that KPA measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum KpaMetric {
    /// Concurrent requests.
    #[default]
    Concurrency,
    /// Requests per second.
    Rps,
}

/// A target in the form that decisions use.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resolved {
    /// Target per pod; determines the number of pods.
    pub target: f64,
    /// Capacity per pod at full use; determines the burst capacity.
    pub total: f64,
}

impl Default for KpaSpec {
    fn default() -> Self {
        Self {
            metric: KpaMetric::Concurrency,
            target: None,
            container_concurrency: 0.0,
            target_utilization: None,
            resolved: None,
            target_burst_capacity: 211.0,
            panic_threshold: 2.0,
            max_scale_up_rate: 1_000.0,
            max_scale_down_rate: 2.0,
            stable_window: 60.0,
            panic_window_percentage: 10.0,
            scale_down_delay: 0.0,
            activation_scale: 1,
            reachable: true,
            initial_scale: 1,
            scale_to_zero_grace_period: 30.0,
            scale_to_zero_pod_retention: 0.0,
        }
    }
}

impl KpaSpec {
    /// Checks that every setting is in its range.
    ///
    /// # Errors
    /// If a setting is outside of its range; the error names the field.
    pub fn check(&self) -> Result<(), SpecError> {
        let unless = SpecError::unless;
        unless(self.target.is_none_or(|target| target >= 0.01), "target", "must be 0.01 or more")?;
        unless(self.container_concurrency >= 0.0, "containerConcurrency", "must be 0 (any number) or more")?;
        unless(
            self.target_utilization.is_none_or(|share| share > 0.0 && share <= 100.0),
            "targetUtilization",
            "must be above 0 and at most 1 (or 100, in per cent)",
        )?;
        unless(self.resolved.is_none_or(|it| it.target > 0.0 && it.total > 0.0), "resolved", "must be above 0")?;
        unless(self.target_burst_capacity >= 0.0 || self.target_burst_capacity == -1.0, "targetBurstCapacity", "must be 0 or more, or -1")?;
        unless(self.panic_threshold > 0.0, "panicThreshold", "must be above 0, like 2")?;
        unless(self.max_scale_up_rate > 1.0, "maxScaleUpRate", "must be above 1")?;
        unless(self.max_scale_down_rate > 1.0, "maxScaleDownRate", "must be above 1")?;
        unless(
            (6.0..=3_600.0).contains(&self.stable_window) && self.stable_window.fract() == 0.0,
            "stableWindow",
            "must be 6 to 3600 whole seconds",
        )?;
        unless((1.0..=100.0).contains(&self.panic_window_percentage), "panicWindowPercentage", "must be 1 to 100")?;
        unless((0.0..=86_400.0).contains(&self.scale_down_delay), "scaleDownDelay", "must be 0 s to a day")?;
        unless(self.activation_scale >= 0, "activationScale", "must be 0 or more")?;
        unless(self.initial_scale >= 0, "initialScale", "must be 0 or more")?;
        unless(self.scale_to_zero_grace_period >= 0.0, "scaleToZeroGracePeriod", "must be 0 s or more")?;
        unless(self.scale_to_zero_pod_retention >= 0.0, "scaleToZeroPodRetention", "must be 0 s or more")
    }

    /// Length of the panic window: a share of the stable window in whole seconds, at least 1.
    pub fn panic_window(&self) -> Seconds {
        (self.stable_window * self.panic_window_percentage / 100.0).round().max(1.0)
    }
}

/// One observation of a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KpaObservation {
    pub at: Seconds,
    /// Replicas that are set; -1: unknown.
    pub replicas: i32,
    /// Ready pods.
    pub ready: Reading<i32>,
    /// The metric averaged over the stable window.
    pub stable: Reading<f64>,
    /// The metric averaged over the panic window.
    pub panic: Reading<f64>,
}

/// What KPA remembers between decisions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KpaState {
    /// When the panic began or was last extended; none: there is no panic.
    pub panic_since: Option<Seconds>,
    /// Most pods wanted during this panic.
    pub max_panic_pods: i32,
    /// Proposals within the scale-down delay, newest last, each larger than all that follow: (slot of 2 s, pods).
    pub delayed: Vec<(i64, i32)>,
}

impl KpaState {
    /// The state of a new decider. With several pods it starts in panic, so that a restart does not scale down before the windows are full.
    pub fn new(now: Seconds, ready: i32) -> Self {
        Self { panic_since: (ready > 1).then_some(now), max_panic_pods: ready, delayed: Vec::new() }
    }

    /// The same, `by` seconds later.
    pub(crate) fn shift(&mut self, by: Seconds) {
        self.panic_since = self.panic_since.map(|since| since + by);
        let slots = decide::slot(by);
        self.delayed.iter_mut().for_each(|(slot, _)| *slot += slots);
    }
}

/// The policy's own calculation, for the record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct KpaSteps {
    /// Pods by the stable window.
    pub raw_stable: i32,
    /// Pods by the panic window.
    pub raw_panic: i32,
    /// `raw_stable` limited by the scaling rates and the activation scale.
    pub clamped_stable: i32,
    /// `raw_panic` limited by the scaling rates and the activation scale.
    pub clamped_panic: i32,
    /// Pods before the scale-down delay.
    pub undelayed: i32,
    /// Burst capacity that is left; below 0 the activator must stay in the request path.
    pub excess_burst_capacity: i32,
    /// When the panic began or was last extended.
    pub panic_since: Option<Seconds>,
    /// Most pods wanted during this panic.
    pub max_panic_pods: i32,
}
