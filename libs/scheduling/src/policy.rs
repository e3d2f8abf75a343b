//! Migration policies: the order in which candidates are taken. Algorithms (CEL expressions) and parameters are data.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;

/// A policy with the definitions of all algorithms and parameters that it may use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// Name of the policy document; empty if no policy is active.
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub mode: PolicyMode,
    /// The algorithms used, with their weights.
    #[serde(default)]
    pub algorithms: Vec<AlgorithmUse>,
    /// Largest depth of a cascade of moves. 0: destinations must have room without further moves.
    #[serde(default, alias = "cascade_depth")]
    pub cascade_depth: u32,
    /// Definitions of all algorithms by name.
    #[serde(default)]
    pub definitions: BTreeMap<String, Algorithm>,
    /// Definitions of all parameters by name.
    #[serde(default)]
    pub parameters: BTreeMap<String, Parameter>,
}

/// How the values of several algorithms are combined into one order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum PolicyMode {
    /// Sort by the first algorithm, and equal values by the next one.
    #[default]
    Order,
    /// Normalise each algorithm's values to 0..1 over the candidates and sort by the weighted sum, the highest first.
    Scoring,
}

/// An algorithm as used by a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AlgorithmUse {
    /// Algorithm name.
    pub algorithm: String,
    /// Rank: 1 applies first. Absent: the position in the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// Weight in mode `scoring`; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
}

/// An algorithm: computes a number for each candidate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Algorithm {
    /// CEL over parameters, e.g. `cpu_used * 100.0 / cpu_requested`.
    pub expression: String,
    /// Whether low or high values move first.
    #[serde(default)]
    pub prefer: Prefer,
    /// The rank of a candidate for which a parameter has no value.
    #[serde(default, deserialize_with = "Missing::or_default")]
    pub missing: Missing,
}

/// Whether low or high values of an algorithm move first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Prefer {
    /// Low values move first.
    #[default]
    Low,
    /// High values move first.
    High,
}

/// Replacement for a missing value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase", untagged)]
pub enum Missing {
    /// `"last"` or `"first"`: a rank.
    Place(MissingPlace),
    /// A number that replaces the value of the algorithm.
    Number(f64),
}

impl Default for Missing {
    fn default() -> Self {
        Self::Place(MissingPlace::Last)
    }
}

impl Missing {
    /// For `deserialize_with`: reads `null` as the default.
    ///
    /// # Errors
    /// The value is neither `null`, `first`, `last` nor a number.
    pub fn or_default<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Option::<Self>::deserialize(from)?.unwrap_or_default())
    }
}

/// The rank of a candidate without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum MissingPlace {
    Last,
    First,
}

/// A parameter: a named value of each candidate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Parameter {
    /// Source of the value.
    pub source: ParameterSource,
    /// Whether the value is of the app or of its composite app.
    #[serde(default)]
    pub scope: ParameterScope,
    /// `source: metric`: `cpu_used`, `cpu_requested`, `memory_used`, `memory_requested`, `age`, `image_bytes_missing`, `ready_seconds`,
    /// `memory_pressure`, `unmet_pods`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// `source: topology`: `clusters_of_application`, `apps_of_application`, `volumes`, `provider_priority`, `pods`, `call_dependency`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fact: Option<String>,
    /// `source: prometheus`: the query. It is evaluated for each candidate before planning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// `source: constant`: the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
}

/// Source of a parameter's values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ParameterSource {
    #[default]
    Metric,
    Topology,
    Prometheus,
    Constant,
}

/// Whether a parameter describes the app or its whole composite app.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ParameterScope {
    #[default]
    App,
    Service,
}

/// The consent of an owner to moves of one app, from its migration intent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Movability {
    /// UUID of the deployment intent group.
    pub dig: Uuid,
    pub app: String,
    /// Whether the app may be moved.
    pub migration: bool,
    /// Priority 1 to 10; a lower one is moved first.
    pub priority: u8,
}
