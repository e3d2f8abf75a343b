//! `threshold`: the Kubernetes horizontal pod autoscaler, autoscaling/v2, decision by decision.
//!
//! Not here: windows, rates and bounds ([`crate::Limits`]) and where the numbers come from.

mod calculator;
mod metric;
mod observation;
mod pods;
mod propose;

use serde::{Deserialize, Serialize};

pub use metric::{
    ContainerResourceMetric, ExternalMetric, LabelSelector, MetricIdentifier, MetricSpec, MetricTarget, MetricType, ObjectMetric,
    ObjectRef, PodsMetric, ResourceMetric, SelectorRequirement, TargetType,
};
pub use observation::{ContainerUse, Phase, Pod, ReadyCondition, ThresholdObservation};

pub(crate) use propose::propose;

use crate::{Seconds, SpecError};

/// What the threshold policy scales by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ThresholdSpec {
    /// Metrics; the one that proposes most wins. Empty: CPU at 80 %.
    pub metrics: Vec<MetricSpec>,
    /// Share of the target by which a metric may differ before anything is done.
    pub tolerance: f64,
    /// Seconds after its start in which a pod's CPU counts only once it is ready.
    pub cpu_initialization_period: Seconds,
    /// Seconds after its start in which a pod that is not ready counts as never having been.
    pub initial_readiness_delay: Seconds,
}

impl Default for ThresholdSpec {
    fn default() -> Self {
        Self { metrics: Vec::new(), tolerance: 0.1, cpu_initialization_period: 300.0, initial_readiness_delay: 30.0 }
    }
}

impl ThresholdSpec {
    /// Refuses values that nothing sensible follows from.
    pub fn check(&self) -> Result<(), SpecError> {
        SpecError::unless(self.tolerance >= 0.0 && self.tolerance.is_finite(), "tolerance", "must be 0 or more, like 0.1")?;
        SpecError::unless(self.cpu_initialization_period >= 0.0, "cpuInitializationPeriod", "must be 0 s or more")?;
        SpecError::unless(self.initial_readiness_delay >= 0.0, "initialReadinessDelay", "must be 0 s or more")?;
        for (index, metric) in self.metrics.iter().enumerate() {
            metric.check().map_err(|error| SpecError::new(format!("metrics[{index}].{}", error.field), error.problem))?;
        }
        Ok(())
    }

    /// The metrics, with the API's default.
    pub(crate) fn metrics(&self) -> std::borrow::Cow<'_, [MetricSpec]> {
        if self.metrics.is_empty() { vec![MetricSpec::cpu(80)].into() } else { (&self.metrics).into() }
    }
}

/// The policy's own arithmetic, for the record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThresholdSteps {
    /// One entry per metric, in the order of the specification.
    pub metrics: Vec<MetricStep>,
}

/// What came of one metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct MetricStep {
    /// The metric's name, such as `cpu`.
    pub name: String,
    /// Per cent of the request for a utilisation; otherwise the value, or the average per pod, in thousandths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<i64>,
    /// Average per pod in thousandths, beside a utilisation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average: Option<i64>,
    /// Replicas that this metric proposes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<i32>,
    /// Why it proposes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
