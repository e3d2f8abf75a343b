//! Algorithms: a number per candidate, as a CEL expression over parameters. Data: a new one needs no new Drover.

use drover_resources::{DocumentKind, Invalid, Place, Put, Reference, Spec};
use drover_scheduling::{Algorithm, Expression, Missing, Prefer};
use drover_service::codes;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::parameter::PARAMETER;

/// See the module.
pub static ALGORITHM: DocumentKind =
    DocumentKind::of::<AlgorithmSpec>("migration-algorithm", "MigrationAlgorithm", "migration-algorithms", &["migrationAlgorithm"])
        .put(Put::Upsert);

/// A number per candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AlgorithmSpec {
    /// CEL over parameters: `cpu_used * 100 / cpu_requested`. Numbers, parameters, comparisons and `math.*`, nothing else.
    pub expression: String,
    /// Which end moves first.
    #[serde(default)]
    pub prefer: Prefer,
    /// Where a candidate goes when a parameter has no value: `last` (default), `first`, or a number that stands for its value.
    #[serde(default, deserialize_with = "Missing::or_default")]
    pub missing: Missing,
}

impl Spec for AlgorithmSpec {
    fn validate(&self, _: &str) -> Result<(), Invalid> {
        // Whether its parameters exist is the guard's to say (`rules.rs`).
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
