//! The proposal of all metrics together: the largest one, and never below the current replicas while a metric cannot be read.

use super::calculator::{Calculator, Tolerance};
use super::{MetricSpec, MetricStep, MetricType, ThresholdObservation, ThresholdSpec, ThresholdSteps};
use crate::{Limits, Reason, SpecError};

/// The result of all metrics.
pub(crate) struct ThresholdProposal {
    pub steps: ThresholdSteps,
    /// The proposal, or why there is none; the replicas then stay as they are.
    pub replicas: Result<i32, (Reason, String)>,
    /// What could not be read although there is a proposal.
    pub warning: Option<String>,
}

/// Calculates the proposal of every metric and takes the largest.
pub(crate) fn propose(spec: &ThresholdSpec, limits: &Limits, seen: &ThresholdObservation) -> ThresholdProposal {
    let metrics = spec.metrics();
    let calculator = Calculator { spec, seen, tolerance: tolerance(spec, limits) };
    let mut steps = ThresholdSteps::default();
    let mut highest = 0;
    let mut first_error = None;
    for metric in metrics.iter() {
        let step = match metric.metric() {
            Ok(source) => calculator.propose(&source).unwrap_or_else(|error| failed(source.name(), error)),
            Err(SpecError { field, problem }) => failed(&field, problem),
        };
        match (&step.proposal, &step.error) {
            (Some(proposal), _) => highest = highest.max(*proposal),
            (None, error) => {
                let text = format!("{}: {}", step.name, error.as_deref().unwrap_or("no value"));
                first_error.get_or_insert((reason(metric), text));
            }
        }
        steps.metrics.push(step);
    }
    let valid = steps.metrics.iter().any(|step| step.proposal.is_some());
    match first_error {
        Some(error) if !valid || highest < seen.replicas => ThresholdProposal { steps, replicas: Err(error), warning: None },
        error => ThresholdProposal { steps, replicas: Ok(highest), warning: error.map(|(_, text)| text) },
    }
}

fn tolerance(spec: &ThresholdSpec, limits: &Limits) -> Tolerance {
    let own = |rules: Option<&crate::ScalingRules>| {
        rules.and_then(|rules| rules.tolerance).map_or(spec.tolerance, |milli| milli.0 as f64 / 1_000.0)
    };
    let behavior = limits.behavior.as_ref();
    Tolerance {
        up: own(behavior.and_then(|behavior| behavior.scale_up.as_ref())),
        down: own(behavior.and_then(|behavior| behavior.scale_down.as_ref())),
    }
}

fn failed(name: &str, error: String) -> MetricStep {
    MetricStep { name: name.to_owned(), utilization: None, average: None, proposal: None, error: Some(error) }
}

fn reason(metric: &MetricSpec) -> Reason {
    match metric.kind {
        MetricType::Resource => Reason::FailedGetResourceMetric,
        MetricType::ContainerResource => Reason::FailedGetContainerResourceMetric,
        MetricType::Pods => Reason::FailedGetPodsMetric,
        MetricType::Object => Reason::FailedGetObjectMetric,
        MetricType::External => Reason::FailedGetExternalMetric,
        MetricType::Unknown(_) => Reason::InvalidMetricSourceType,
    }
}
