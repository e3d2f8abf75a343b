//! `ScalingPolicy`, the resource that says how a workload is scaled.
//!
//! What its fields mean for a decision is in libs/autoscaling. The API server checks the schema; [`Plan::of`] checks what a schema cannot
//! express, and a policy that fails the check never scales.

use std::collections::BTreeMap;

use drover_autoscaling::threshold::{MetricSpec, ThresholdSpec};
use drover_autoscaling::{Behavior, Carried, Limits, Mode, Policy, PolicyKind, ScalingSpec};
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
    /// Source of the values that metrics.k8s.io does not have.
    #[serde(default)]
    pub source: Source,
    /// The threshold policy that runs beside `qlearning`, and takes over when the learner costs more.
    #[serde(default)]
    pub shadow: Shadow,
}

/// Source of the values that metrics.k8s.io does not have. The resources of `threshold` always come from metrics.k8s.io. So does the CPU of
/// `qlearning` and of the threshold policy that replaces it, unless a query is named `cpu`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Source {
    /// Prometheus server to query. Values without a query are taken from pushed statistics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<Prometheus>,
}

/// A Prometheus server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Prometheus {
    /// For example `http://prometheus.monitoring:9090`.
    pub url: String,
    /// PromQL by name. `threshold`: names of Object and External metrics (series are summed) and of Pods metrics (label `pod`).
    /// `kpa`: `stable` and `panic`, or `value` for the agent to average. `qlearning`: `cpu` (a share, 1 is full) and `expired`
    /// (a counter).
    pub queries: BTreeMap<String, String>,
}

/// The threshold policy that runs beside a learner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Shadow {
    /// CPU target of the threshold policy, in per cent of the request.
    pub average_utilization: i32,
    /// Share by which the learner's cost may exceed the cost of the threshold policy.
    pub tolerance: f64,
    /// Number of periods over which both costs are summed.
    pub window: u32,
}

impl Default for Shadow {
    fn default() -> Self {
        Self { average_utilization: 80, tolerance: 0.1, window: 120 }
    }
}

/// A policy as it is watched. Its specification is not parsed here, so that one invalid policy does not stop the watch of all.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = "ScalingPolicy")]
pub struct WatchedPolicy {
    pub metadata: ObjectMeta,
    /// Not parsed yet.
    #[serde(default)]
    pub spec: Value,
    /// As an agent wrote it last.
    #[serde(default)]
    pub status: Value,
}

/// Annotation that is changed (to any other value) when somebody replaces the Q-table, so that the agent loads the new one at once.
pub const TABLE_CHANGED: &str = "drover.io/table-changed";

/// Annotation with what the agent of another cluster remembered of the policy, in JSON, when the app was moved here.
pub const CARRIED: &str = "drover.io/carried";

impl WatchedPolicy {
    /// What the agent of another cluster remembered when the app was moved here.
    pub fn carried(&self) -> Option<Carried> {
        serde_json::from_str(self.metadata.annotations.as_ref()?.get(CARRIED)?).ok()
    }

    /// Whether specification and Q-table are the same; the status does not count.
    pub fn same_request(&self, other: &Self) -> bool {
        self.metadata.generation == other.metadata.generation && self.same_tables(other)
    }

    /// Whether nobody has replaced the Q-table between the two.
    pub fn same_tables(&self, other: &Self) -> bool {
        let mark = |watched: &Self| watched.metadata.annotations.as_ref().and_then(|notes| notes.get(TABLE_CHANGED)).cloned();
        mark(self) == mark(other)
    }
}

/// A policy's specification, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// As written.
    pub spec: ScalingPolicySpec,
    /// The policy that decides.
    pub policy: Policy,
    /// Bounds and rates.
    pub limits: Limits,
}

impl Plan {
    /// Checks a specification. The error names the field and the allowed values.
    ///
    /// # Errors
    /// If the specification cannot be parsed, or contradicts itself.
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

    /// What happens with decisions.
    pub fn mode(&self) -> Mode {
        self.spec.scaling.mode
    }

    /// Name of the policy that decides.
    pub fn kind(&self) -> PolicyKind {
        self.policy.kind()
    }

    /// Seconds after the start of the agent in which nothing is scaled down: one stabilisation window.
    pub fn settling(&self) -> f64 {
        let down = |behavior: &Behavior| behavior.scale_down.as_ref()?.stabilization_window_seconds;
        match (self.limits.behavior.as_ref().and_then(down), &self.policy) {
            (Some(window), _) => f64::from(window),
            (None, Policy::Kpa(kpa)) => kpa.stable_window,
            (None, _) => self.limits.downscale_stabilization,
        }
    }

    /// The threshold policy that runs beside a learner and replaces it when it costs too much.
    pub fn shadow(&self) -> Policy {
        let metrics = vec![MetricSpec::cpu(self.spec.shadow.average_utilization)];
        Policy::Threshold(ThresholdSpec { metrics, ..ThresholdSpec::default() })
    }
}

/// The CustomResourceDefinition, generated from the types above.
pub fn definition() -> CustomResourceDefinition {
    let mut definition = serde_json::to_value(ScalingPolicy::crd()).unwrap_or_default();
    structural(&mut definition);
    serde_json::from_value(definition).unwrap_or_else(|_| ScalingPolicy::crd())
}

/// Rewrites what an API server does not accept in a JSON schema: closed objects, `anyOf` with one choice, formats of unsigned numbers. Quantities
/// get their own notation.
fn structural(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
                fields.remove("anyOf");
                fields.remove("type");
            }
            // An `anyOf` with a single choice is replaced by that choice.
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
