//! Parameters: named values of a candidate that algorithms use.

use drover_resources::{DocumentKind, Invalid, Put, Spec};
use drover_scheduling::{Parameter, ParameterScope, ParameterSource};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Kind of parameters.
pub static PARAMETER: DocumentKind =
    DocumentKind::of::<ParameterSpec>("migration-parameter", "MigrationParameter", "migration-parameters", &["migrationParameter"])
        .put(Put::Upsert);

const METRICS: [&str; 9] = [
    "cpu_used",
    "cpu_requested",
    "memory_used",
    "memory_requested",
    "age",
    "image_bytes_missing",
    "ready_seconds",
    "memory_pressure",
    "unmet_pods",
];
const FACTS: [&str; 6] = ["clusters_of_application", "apps_of_application", "volumes", "provider_priority", "pods", "call_dependency"];

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ParameterSpec {
    /// `metric`, `topology`, `prometheus` or `constant`.
    pub source: ParameterSource,
    /// Whether the value is of the app or of its whole composite app.
    #[serde(default)]
    pub scope: ParameterScope,
    /// `source: metric`: `cpu_used`, `cpu_requested`, `memory_used`, `memory_requested`, `age`, `image_bytes_missing`, `ready_seconds`,
    /// `memory_pressure`, `unmet_pods`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// `source: topology`: `clusters_of_application`, `apps_of_application`, `volumes`, `provider_priority`, `pods`, `call_dependency`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fact: Option<String>,
    /// `source: prometheus`: the query. `$project`, `$compositeApp`, `$dig`, `$app`, `$provider`, `$cluster` and `$binding` are replaced by
    /// the values of the candidate. The first sample of the result is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// `source: constant`: the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
}

impl Spec for ParameterSpec {
    fn validate(&self, name: &str) -> Result<(), Invalid> {
        let mut wrong = Vec::new();
        if !is_identifier(name) {
            wrong.push(format!(
                "metadata.name: {name:?} cannot be used in expressions; use letters, digits and _, beginning with a letter or _"
            ));
        }
        let one_of = |given: &Option<String>, field: &str, known: &[&str]| match given.as_deref() {
            Some(given) if known.contains(&given) => None,
            Some(given) => Some(format!("spec.{field}: {given:?} is unknown; known: {}", known.join(", "))),
            None => Some(format!("spec.{field} is missing; known: {}", known.join(", "))),
        };
        match self.source {
            ParameterSource::Metric => wrong.extend(one_of(&self.metric, "metric", &METRICS)),
            ParameterSource::Topology => wrong.extend(one_of(&self.fact, "fact", &FACTS)),
            ParameterSource::Prometheus => {
                wrong.extend(self.query.as_deref().is_none_or(|query| query.trim().is_empty()).then(|| "spec.query is missing".to_owned()));
            }
            ParameterSource::Constant => {
                wrong.extend(self.value.is_none_or(|value| !value.is_finite()).then(|| "spec.value is missing".to_owned()));
            }
        }
        Invalid::unless_empty(wrong)
    }
}

/// Whether a name is an identifier in CEL.
fn is_identifier(name: &str) -> bool {
    let mut letters = name.bytes();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'_')
        && !matches!(name, "true" | "false" | "null" | "in" | "math")
}

impl From<ParameterSpec> for Parameter {
    fn from(spec: ParameterSpec) -> Self {
        let ParameterSpec { source, scope, metric, fact, query, value } = spec;
        Self { source, scope, metric, fact, query, value }
    }
}

impl From<Parameter> for ParameterSpec {
    fn from(parameter: Parameter) -> Self {
        let Parameter { source, scope, metric, fact, query, value } = parameter;
        Self { source, scope, metric, fact, query, value }
    }
}
