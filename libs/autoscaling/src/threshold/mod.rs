//! `threshold`: the Kubernetes horizontal pod autoscaler (autoscaling/v2), decision by decision.
//!
//! Windows, rates and bounds are in [`crate::Limits`]. Where the values come from is up to the caller.

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
    /// Metrics; the largest proposal counts. If empty: CPU at 80 %.
    pub metrics: Vec<MetricSpec>,
    /// Share of the target by which a metric may differ before the workload is scaled.
    pub tolerance: f64,
    /// Seconds after a pod's start in which its CPU counts only while it is ready.
    pub cpu_initialization_period: Seconds,
    /// Seconds after a pod's start in which a pod that is not ready is treated as never having been ready.
    pub initial_readiness_delay: Seconds,
}

impl Default for ThresholdSpec {
    fn default() -> Self {
        Self { metrics: Vec::new(), tolerance: 0.1, cpu_initialization_period: 300.0, initial_readiness_delay: 30.0 }
    }
}

impl ThresholdSpec {
    /// Checks that every setting is in its range.
    ///
    /// # Errors
    /// If a setting is outside of its range or a metric is incomplete; the error names the field.
    pub fn check(&self) -> Result<(), SpecError> {
        SpecError::unless(self.tolerance >= 0.0 && self.tolerance.is_finite(), "tolerance", "must be 0 or more, like 0.1")?;
        SpecError::unless(self.cpu_initialization_period >= 0.0, "cpuInitializationPeriod", "must be 0 s or more")?;
        SpecError::unless(self.initial_readiness_delay >= 0.0, "initialReadinessDelay", "must be 0 s or more")?;
        for (index, metric) in self.metrics.iter().enumerate() {
            metric.check().map_err(|error| SpecError::new(format!("metrics[{index}].{}", error.field), error.problem))?;
        }
        Ok(())
    }

    /// The metrics, or the API's default if there are none.
    pub(crate) fn metrics(&self) -> std::borrow::Cow<'_, [MetricSpec]> {
        if self.metrics.is_empty() { vec![MetricSpec::cpu(80)].into() } else { (&self.metrics).into() }
    }
}

/// The policy's own calculation, for the record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThresholdSteps {
    /// One entry per metric, in the order of the specification.
    pub metrics: Vec<MetricStep>,
}

/// The result of one metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct MetricStep {
    /// The metric's name, such as `cpu`.
    pub name: String,
    /// For a utilisation: per cent of the request. Otherwise: the value, or the average per pod, in thousandths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<i64>,
    /// Average per pod in thousandths, in addition to a utilisation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average: Option<i64>,
    /// Replicas that this metric proposes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<i32>,
    /// Why this metric makes no proposal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
