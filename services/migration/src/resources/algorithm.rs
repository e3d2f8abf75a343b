//! Algorithms: CEL expressions over parameters that give a number for each candidate. They are data, so users can add new ones.

use drover_resources::{DocumentKind, Invalid, Place, Put, Reference, Spec};
use drover_scheduling::{Algorithm, Expression, Missing, Prefer};
use drover_service::codes;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::parameter::PARAMETER;

/// Kind of algorithms.
pub static ALGORITHM: DocumentKind =
    DocumentKind::of::<AlgorithmSpec>("migration-algorithm", "MigrationAlgorithm", "migration-algorithms", &["migrationAlgorithm"])
        .put(Put::Upsert);

/// A number for each candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AlgorithmSpec {
    /// A CEL expression over parameters, for example `cpu_used * 100 / cpu_requested`. Only numbers, parameters, comparisons and `math.*`
    /// are allowed.
    pub expression: String,
    /// Whether low or high values move first.
    #[serde(default)]
    pub prefer: Prefer,
    /// The rank of a candidate for which a parameter has no value: `last` (default), `first`, or a number that replaces the value.
    #[serde(default, deserialize_with = "Missing::or_default")]
    pub missing: Missing,
}

impl Spec for AlgorithmSpec {
    fn validate(&self, _: &str) -> Result<(), Invalid> {
        // The guard in `rules.rs` checks that its parameters exist.
        Expression::compile(&self.expression)
            .map(drop)
            .map_err(|error| Invalid::with(codes::EXPRESSION_INVALID, format!("spec.expression: {error}")))
    }
    fn references(&self, _: &Place<'_>) -> Vec<Reference> {
        let expression = Expression::compile(&self.expression).ok();
        expression
            .iter()
            .flat_map(Expression::parameters)
            .map(|parameter| Reference { field: "spec.expression", path: format!("{}/{parameter}", PARAMETER.collection_path()) })
            .collect()
    }
}

impl From<AlgorithmSpec> for Algorithm {
    fn from(spec: AlgorithmSpec) -> Self {
        Self { expression: spec.expression, prefer: spec.prefer, missing: spec.missing }
    }
}

impl From<Algorithm> for AlgorithmSpec {
    fn from(algorithm: Algorithm) -> Self {
        Self { expression: algorithm.expression, prefer: algorithm.prefer, missing: algorithm.missing }
    }
}
