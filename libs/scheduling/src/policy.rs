//! Migration policies: in which order candidates are taken. Algorithms and parameters are data (CEL).

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;

/// Everything that orders candidates for one newcomer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Policy {
    /// Name of the policy document; empty: no policy is active.
    #[serde(default)]
    pub name: String,
    /// Mode.
    #[serde(default)]
    pub mode: PolicyMode,
    /// The algorithms in use, with their weights.
    #[serde(default)]
    pub algorithms: Vec<AlgorithmUse>,
    /// How deep a cascade may go; 0: a destination must have room as it is.
    #[serde(default)]
    pub cascade_depth: u32,
    /// Definitions of all algorithms by name.
    #[serde(default)]
    pub definitions: BTreeMap<String, Algorithm>,
    /// Definitions of all parameters by name.
    #[serde(default)]
    pub parameters: BTreeMap<String, Parameter>,
}

/// How several algorithms make one order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum PolicyMode {
    /// Sort by the first algorithm, equal values by the next.
    #[default]
    Order,
    /// Normalise each over the candidates to 0..1, weighted sum, highest first.
    Scoring,
}

/// Use of an algorithm by a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AlgorithmUse {
    /// Algorithm name.
    pub algorithm: String,
    /// 1 applies first; absent: the list's order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// Weight in `scoring` mode; absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
}

/// An algorithm: a number per candidate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Algorithm {
    /// CEL over parameters, e.g. `cpu_used * 100.0 / cpu_requested`.
    pub expression: String,
    /// Which end moves first.
    #[serde(default)]
    pub prefer: Prefer,
    /// Where a candidate goes when a parameter has no value.
    #[serde(default, deserialize_with = "Missing::or_default")]
    pub missing: Missing,
}

/// Which end of an algorithm's values moves first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Prefer {
    /// Low values first.
    #[default]
    Low,
    /// High values first.
    High,
}

/// What stands for a value that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase", untagged)]
pub enum Missing {
    /// `"last"` or `"first"`.
    Place(MissingPlace),
    /// A number in the algorithm's unit.
    Number(f64),
}

impl Default for Missing {
    fn default() -> Self {
        Self::Place(MissingPlace::Last)
    }
}

impl Missing {
    /// For `deserialize_with`: `null` is as good as nothing.
    pub fn or_default<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Option::<Self>::deserialize(from)?.unwrap_or_default())
    }
}

/// `first` or `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum MissingPlace {
    Last,
    First,
}

/// A parameter: a named value of a candidate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Parameter {
    /// Where it comes from.
    pub source: ParameterSource,
    /// Per app or per service (composite app).
    #[serde(default)]
    pub scope: ParameterScope,
    /// `source: metric`: `cpu_used`, `cpu_requested`, `memory_used`, `memory_requested`, `age`, `image_bytes_missing`, `ready_seconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// `source: topology`: `clusters_of_application`, `apps_of_application`, `volumes`, `provider_priority`, `pods`, `call_dependency`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fact: Option<String>,
    /// `source: prometheus`: the query; its value per candidate is resolved before planning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// `source: constant`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
}

/// Source of a parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum ParameterSource {
    #[default]
    Metric,
    Topology,
    Prometheus,
    Constant,
}

/// Whether a parameter speaks of the app or of its whole composite app.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum ParameterScope {
    #[default]
    App,
    Service,
}

/// An owner's word on one app, from its migration intent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Movability {
    /// Deployment intent group.
    pub dig: Uuid,
    /// App.
    pub app: String,
    /// May it be moved.
    pub migration: bool,
    /// 1..10, lower is moved first.
    pub priority: u8,
}
