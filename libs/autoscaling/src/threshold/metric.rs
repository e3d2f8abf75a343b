//! Metric specifications of autoscaling/v2, as written in a manifest.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Milli, SpecError};

/// One metric; the section named by its type must be present.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MetricSpec {
    /// Which section counts.
    #[serde(rename = "type")]
    pub kind: MetricType,
    /// CPU or memory of whole pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<ResourceMetric>,
    /// CPU or memory of one container of each pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_resource: Option<ContainerResourceMetric>,
    /// A metric of each pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<PodsMetric>,
    /// A metric of another object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectMetric>,
    /// A metric from outside of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalMetric>,
}

/// Types of metric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum MetricType {
    Resource,
    ContainerResource,
    Pods,
    Object,
    External,
    /// A type that does not exist: this metric is invalid, but the others still count.
    #[serde(untagged)]
    #[cfg_attr(feature = "schema", schemars(skip))]
    Unknown(String),
}

/// CPU or memory of whole pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceMetric {
    /// For example `cpu` or `memory`.
    pub name: String,
    /// `Utilization` or `AverageValue`.
    pub target: MetricTarget,
}

/// CPU or memory of one container of each pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContainerResourceMetric {
    /// For example `cpu` or `memory`.
    pub name: String,
    /// Name of the container.
    pub container: String,
    /// `Utilization` or `AverageValue`.
    pub target: MetricTarget,
}

/// A metric of each pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodsMetric {
    /// Name and series of the metric.
    pub metric: MetricIdentifier,
    /// `AverageValue`.
    pub target: MetricTarget,
}

/// A metric of another object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectMetric {
    /// The object that has the metric.
    pub described_object: ObjectRef,
    /// Name and series of the metric.
    pub metric: MetricIdentifier,
    /// `Value` or `AverageValue`.
    pub target: MetricTarget,
}

/// A metric from outside of the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExternalMetric {
    /// Name and series of the metric.
    pub metric: MetricIdentifier,
    /// `Value` or `AverageValue`.
    pub target: MetricTarget,
}

/// An object in the policy's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectRef {
    /// For example `networking.k8s.io/v1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// For example `Ingress`.
    pub kind: String,
    pub name: String,
}

/// A metric's name and a selection of its series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MetricIdentifier {
    pub name: String,
    /// Which series to sum. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// A Kubernetes label selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelSelector {
    /// Labels that must have these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Further conditions, which must all hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<SelectorRequirement>,
}

/// A condition on one label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SelectorRequirement {
    /// Name of the label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// Values for `In` and `NotIn`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// The target of a metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MetricTarget {
    /// Which of the three values below counts.
    #[serde(rename = "type")]
    pub kind: TargetType,
    /// Per cent of the request, averaged over the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_utilization: Option<i32>,
    /// Average per pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_value: Option<Milli>,
    /// Value of the whole metric, not divided by the number of pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Milli>,
}

/// Types of target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum TargetType {
    Utilization,
    AverageValue,
    Value,
}

/// A target with its value; amounts are in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Utilization(i32),
    Average(i64),
    Whole(i64),
}

/// Where a metric is read from, and its target; borrowed from the specification.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Metric<'a> {
    Resource { name: &'a str, container: Option<&'a str>, target: Target },
    Pods { name: &'a str, target: i64 },
    Object { name: &'a str, target: Target },
    External { name: &'a str, target: Target },
}

impl Metric<'_> {
    /// Name of the metric.
    pub fn name(&self) -> &str {
        match self {
            Self::Resource { name, .. } | Self::Pods { name, .. } | Self::Object { name, .. } | Self::External { name, .. } => name,
        }
    }
}

impl MetricTarget {
    fn number(&self, at: &str) -> Result<Target, SpecError> {
        let above_zero = |value: Option<i64>, field: &str| match value {
            Some(value) if value > 0 => Ok(value),
            Some(_) => Err(SpecError::new(format!("{at}.target.{field}"), "must be above 0")),
            None => Err(SpecError::new(format!("{at}.target.{field}"), format!("is missing: the target's type is {:?}", self.kind))),
        };
        match self.kind {
            TargetType::Utilization => {
                let percent = above_zero(self.average_utilization.map(i64::from), "averageUtilization")?;
                Ok(Target::Utilization(i32::try_from(percent).unwrap_or(i32::MAX)))
            }
            TargetType::AverageValue => above_zero(self.average_value.map(|milli| milli.0), "averageValue").map(Target::Average),
            TargetType::Value => above_zero(self.value.map(|milli| milli.0), "value").map(Target::Whole),
        }
    }
}

impl MetricSpec {
    /// A target for the CPU of whole pods, in per cent of the request.
    pub fn cpu(percent: i32) -> Self {
        let target = MetricTarget { kind: TargetType::Utilization, average_utilization: Some(percent), average_value: None, value: None };
        Self {
            kind: MetricType::Resource,
            resource: Some(ResourceMetric { name: "cpu".to_owned(), target }),
            container_resource: None,
            pods: None,
            object: None,
            external: None,
        }
    }

    pub(crate) fn check(&self) -> Result<(), SpecError> {
        self.metric().map(|_| ())
    }

    /// The section that counts.
    pub(crate) fn metric(&self) -> Result<Metric<'_>, SpecError> {
        let missing = |section: &str| SpecError::new(section, format!("is missing: the metric's type is {:?}", self.kind));
        let wrong = |at: &str| SpecError::new(format!("{at}.target.type"), "is not allowed for this type of metric");
        let only = |target: Target, allowed: bool, at: &str| if allowed { Ok(target) } else { Err(wrong(at)) };
        Ok(match &self.kind {
            MetricType::Resource => {
                let ResourceMetric { name, target } = self.resource.as_ref().ok_or_else(|| missing("resource"))?;
                let target = target.number("resource")?;
                Metric::Resource { name, container: None, target: only(target, !matches!(target, Target::Whole(_)), "resource")? }
            }
            MetricType::ContainerResource => {
                let ContainerResourceMetric { name, container, target } =
                    self.container_resource.as_ref().ok_or_else(|| missing("containerResource"))?;
                let target = target.number("containerResource")?;
                let target = only(target, !matches!(target, Target::Whole(_)), "containerResource")?;
                Metric::Resource { name, container: Some(container), target }
            }
            MetricType::Pods => {
                let PodsMetric { metric, target } = self.pods.as_ref().ok_or_else(|| missing("pods"))?;
                match target.number("pods")? {
                    Target::Average(target) => Metric::Pods { name: &metric.name, target },
                    Target::Utilization(_) | Target::Whole(_) => return Err(wrong("pods")),
                }
            }
            MetricType::Object => {
                let ObjectMetric { metric, target, .. } = self.object.as_ref().ok_or_else(|| missing("object"))?;
                let target = target.number("object")?;
                Metric::Object { name: &metric.name, target: only(target, !matches!(target, Target::Utilization(_)), "object")? }
            }
            MetricType::External => {
                let ExternalMetric { metric, target } = self.external.as_ref().ok_or_else(|| missing("external"))?;
                let target = target.number("external")?;
                Metric::External { name: &metric.name, target: only(target, !matches!(target, Target::Utilization(_)), "external")? }
            }
            MetricType::Unknown(kind) => {
                let known = "Resource, ContainerResource, Pods, Object and External";
                return Err(SpecError::new("type", format!("`{kind}` is not a metric type; the types are {known}")));
            }
        })
    }
}
