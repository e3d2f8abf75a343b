//! `ScalingPolicy`: how a workload is scaled, as a resource of the cluster.
//!
//! Not here: what its fields mean for a decision (libs/autoscaling). The API server checks the schema; what a schema cannot say
//! is checked by [`Plan::of`], and a policy that does not pass never scales.

use std::collections::BTreeMap;

use drover_autoscaling::threshold::{MetricSpec, ThresholdSpec};
use drover_autoscaling::{Behavior, Limits, Mode, Policy, PolicyKind, ScalingSpec};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{CustomResource, CustomResourceExt, Resource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::status::ScalingPolicyStatus;

/// How a workload is scaled.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "drover.io",
    version = "v1alpha1",
    kind = "ScalingPolicy",
    plural = "scalingpolicies",
    shortname = "scp",
    namespaced,
    status = "ScalingPolicyStatus",
    printcolumn = r#"{"name":"Target","type":"string","jsonPath":".spec.target.name"}"#,
    printcolumn = r#"{"name":"Policy","type":"string","jsonPath":".spec.policy"}"#,
    printcolumn = r#"{"name":"Mode","type":"string","jsonPath":".spec.mode"}"#,
    printcolumn = r#"{"name":"Current","type":"integer","jsonPath":".status.currentReplicas"}"#,
    printcolumn = r#"{"name":"Desired","type":"integer","jsonPath":".status.desiredReplicas"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ScalingPolicySpec {
    /// Target, bounds and policy.
    #[serde(flatten)]
    pub scaling: ScalingSpec,
    /// Where values come from that metrics.k8s.io does not have.
    #[serde(default)]
    pub source: Source,
    /// The threshold policy that runs beside `qlearning` and takes over when learning costs more.
    #[serde(default)]
    pub shadow: Shadow,
}

/// Where values come from that metrics.k8s.io does not have. The resources of `threshold` always come from there; the CPU of `qlearning`
/// (and of the threshold policy that relieves it) does unless a query is named `cpu`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Source {
    /// A Prometheus to ask. What no query is named for is taken from pushed statistics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<Prometheus>,
}

/// A Prometheus.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Prometheus {
    /// Such as `http://prometheus.monitoring:9090`.
    pub url: String,
    /// PromQL by name. `threshold`: names of Object and External metrics (series are summed) and of Pods metrics (label `pod`).
    /// `kpa`: `stable` and `panic`, or `value` for the windows to average. `qlearning`: `cpu` (a share, 1 is full) and `expired`
    /// (a total that only grows).
    pub queries: BTreeMap<String, String>,
}

/// The threshold policy beside a learner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Shadow {
    /// CPU in per cent of the request that the shadow aims at.
    pub average_utilization: i32,
    /// Share by which the learner's cost may exceed the shadow's.
    pub tolerance: f64,
    /// Periods over which both costs are summed.
    pub window: u32,
}

impl Default for Shadow {
    fn default() -> Self {
        Self { average_utilization: 80, tolerance: 0.1, window: 120 }
    }
}

/// A policy as it is watched: a specification that cannot be read must not stop the others from being read.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = "ScalingPolicy")]
pub struct Written {
    /// Name, namespace, uid, generation, annotations.
    pub metadata: ObjectMeta,
    /// As written.
    #[serde(default)]
    pub spec: Value,
    /// As this agent, or one before it, left it.
    #[serde(default)]
    pub status: Value,
}

/// Set (to any other value) by whoever put another Q-table in place, so that the agent takes it over at once.
pub const TABLE_CHANGED: &str = "drover.io/table-changed";

impl Written {
    /// Whether the same is asked for: the status does not count.
    pub fn same_orders(&self, other: &Self) -> bool {
        self.metadata.generation == other.metadata.generation && self.same_tables(other)
    }

    /// Whether nobody has put another Q-table in place between the two.
    pub fn same_tables(&self, other: &Self) -> bool {
        let mark = |written: &Self| written.metadata.annotations.as_ref().and_then(|notes| notes.get(TABLE_CHANGED)).cloned();
        mark(self) == mark(other)
    }
}

/// What the agent does for one policy: its specification, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// As written.
    pub spec: ScalingPolicySpec,
    /// Who decides.
    pub policy: Policy,
    /// Bounds and speeds.
    pub limits: Limits,
}

impl Plan {
    /// Checks a specification; the error says which field is wrong, and what would be right.
    ///
    /// # Errors
    /// It cannot be read, or contradicts itself.
    pub fn of(spec: &Value) -> Result<Self, String> {
        let spec: ScalingPolicySpec = serde_json::from_value(spec.clone()).map_err(|error| format!("spec: {error}"))?;
        let (policy, limits) = spec.scaling.resolve().map_err(|error| format!("spec.{error}"))?;
        if let Some(pin) = limits.pin
            && !(limits.min_replicas..=limits.max_replicas).contains(&pin)
        {
            return Err("spec.pin: must be between minReplicas and maxReplicas".to_owned());
        }
        if let Some(prometheus) = &spec.source.prometheus {
            reqwest::Url::parse(&prometheus.url).map_err(|error| format!("spec.source.prometheus.url: {error}"))?;
        }
        let Shadow { average_utilization, tolerance, window } = spec.shadow;
        if average_utilization < 1 || !(tolerance >= 0.0 && tolerance.is_finite()) || window == 0 {
            return Err("spec.shadow: averageUtilization and window must be 1 or more, tolerance 0 or more".to_owned());
        }
        Ok(Self { spec, policy, limits })
    }

    /// What is done with decisions.
    pub fn mode(&self) -> Mode {
        self.spec.scaling.mode
    }

    /// Who decides, as a word.
    pub fn kind(&self) -> PolicyKind {
        self.policy.kind()
    }

    /// Seconds after a start of the agent in which nothing is scaled down: one stabilisation window.
    pub fn settling(&self) -> f64 {
        let down = |behavior: &Behavior| behavior.scale_down.as_ref()?.stabilization_window_seconds;
        match (self.limits.behavior.as_ref().and_then(down), &self.policy) {
            (Some(window), _) => f64::from(window),
            (None, Policy::Kpa(kpa)) => kpa.stable_window,
            (None, _) => self.limits.downscale_stabilization,
        }
    }

    /// The threshold policy that stands beside a learner, and in for it.
    pub fn shadow(&self) -> Policy {
        let metrics = vec![MetricSpec::cpu(self.spec.shadow.average_utilization)];
        Policy::Threshold(ThresholdSpec { metrics, ..ThresholdSpec::default() })
    }
}

/// The definition that the API server is given, from the types above.
pub fn definition() -> CustomResourceDefinition {
    let mut definition = serde_json::to_value(ScalingPolicy::crd()).unwrap_or_default();
    structural(&mut definition);
    serde_json::from_value(definition).unwrap_or_else(|_| ScalingPolicy::crd())
}

/// What an API server does not take of a JSON schema: closed objects, choices of one, numbers' sizes; quantities have their own notation.
fn structural(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
                fields.remove("anyOf");
                fields.remove("type");
            }
            // A choice of one is that one.
            if let Some(Value::Array(choices)) = fields.get_mut("anyOf")
                && let [Value::Object(only)] = choices.as_mut_slice()
            {
                let only = std::mem::take(only);
                fields.remove("anyOf");
                fields.extend(only);
            }
            if fields.get("additionalProperties") == Some(&Value::Bool(false)) {
                fields.remove("additionalProperties");
            }
            if fields.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
                fields.remove("format");
            }
            fields.values_mut().for_each(structural);
        }
        Value::Array(items) => items.iter_mut().for_each(structural),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
