//! `kpa`: Knative's pod autoscaler, by concurrency or requests per second, with panic, burst capacity and scale to zero.
//!
//! Not here: how requests are measured on their way (the agent's proxy), bounds and pause ([`crate::Limits`]).

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
pub use stats::{Event, RequestReport, RequestStats};
pub use window::{Averaging, Window};

use crate::{Reading, Seconds, SpecError};

/// What KPA scales by. Defaults are Knative's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct KpaSpec {
    /// What is measured.
    pub metric: KpaMetric,
    /// Wanted per pod at full use; absent: 100 requests at once, or 200 requests per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<f64>,
    /// Requests at once that a pod is given at most (enforced); 0: any number.
    pub container_concurrency: f64,
    /// Share of the target to fill, 0..1 (above 1: per cent); requests per second always fill 0.7 unless this is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_utilization: Option<f64>,
    /// The target as resolved elsewhere; stands above the four above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved: Option<Resolved>,
    /// Requests to be able to take at once without warning; -1: without limit, 0: none.
    pub target_burst_capacity: f64,
    /// Panic when the panic window wants this many times the ready pods.
    pub panic_threshold: f64,
    /// Largest growth in one decision, as a factor.
    pub max_scale_up_rate: f64,
    /// Largest shrinking in one decision, as a divisor.
    pub max_scale_down_rate: f64,
    /// Seconds of the stable window.
    pub stable_window: Seconds,
    /// Panic window in per cent of the stable window.
    pub panic_window_percentage: f64,
    /// Seconds that fewer pods must have been enough before there are fewer.
    pub scale_down_delay: Seconds,
    /// Fewest pods when there is anything to do at all; 1 is none.
    pub activation_scale: i32,
    /// Whether anybody can reach it; if not, it shrinks at once.
    pub reachable: bool,
    /// Pods of a new workload.
    pub initial_scale: i32,
    /// Seconds that the last pod stays after the proxy is back in the path.
    pub scale_to_zero_grace_period: Seconds,
    /// Seconds that the last pod stays in any case.
    pub scale_to_zero_pod_retention: Seconds,
}

/// What KPA measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum KpaMetric {
    /// Requests at once.
    #[default]
    Concurrency,
    /// Requests per second.
    Rps,
}

/// A target as decisions use it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resolved {
    /// Per pod, drives the number of pods.
    pub target: f64,
    /// Per pod at full use, drives the burst capacity.
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
    /// Refuses values that nothing sensible follows from.
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

    /// Seconds of the panic window: a share of the stable window in whole seconds, at least 1.
    pub fn panic_window(&self) -> Seconds {
        (self.stable_window * self.panic_window_percentage / 100.0).round().max(1.0)
    }
}

/// One look at a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KpaObservation {
    /// When.
    pub at: Seconds,
    /// Replicas asked for; -1: unknown.
    pub replicas: i32,
    /// Pods that are ready.
    pub ready: Reading<i32>,
    /// The metric over the stable window.
    pub stable: Reading<f64>,
    /// The metric over the panic window.
    pub panic: Reading<f64>,
}

/// What KPA remembers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KpaState {
    /// Since when there is panic; extended while it lasts.
    pub panic_since: Option<Seconds>,
    /// Most pods wanted in this panic.
    pub max_panic_pods: i32,
    /// Proposals within the scale-down delay, newest last, each larger than all that follow: (slot of 2 s, pods).
    pub delayed: Vec<(i64, i32)>,
}

impl KpaState {
    /// A new decider: in panic if there are several pods, so that a restart does not shrink before the windows are full.
    pub fn new(now: Seconds, ready: i32) -> Self {
        Self { panic_since: (ready > 1).then_some(now), max_panic_pods: ready, delayed: Vec::new() }
    }
}

/// The policy's own arithmetic, for the record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct KpaSteps {
    /// Pods by the stable window.
    pub raw_stable: i32,
    /// Pods by the panic window.
    pub raw_panic: i32,
    /// The former within the largest change, after the activation scale.
    pub clamped_stable: i32,
    /// The latter, likewise.
    pub clamped_panic: i32,
    /// Before the scale-down delay.
    pub undelayed: i32,
    /// Room for a burst that is left; below 0 the proxy must stay in the path.
    pub excess_burst_capacity: i32,
    /// Since when there is panic.
    pub panic_since: Option<Seconds>,
    /// Most pods wanted in this panic.
    pub max_panic_pods: i32,
}
