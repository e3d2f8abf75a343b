//! Migration policies: the order in which plans for a project's newcomers take candidates. A project has at most one active policy.

use drover_resources::{DocumentKind, Invalid, Place, Put, Reference, Spec};
use drover_scheduling::{AlgorithmUse, PolicyMode, ReliefRules};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::algorithm::ALGORITHM;

/// Kind of policies.
pub static POLICY: DocumentKind =
    DocumentKind::of::<PolicySpec>("migration-policy", "MigrationPolicy", "migration-policies", &["migrationPolicy"])
        .below_foreign("Project", "/v2/projects/{project}")
        .put(Put::Upsert);

/// How candidates are ordered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PolicySpec {
    /// `order`: by the first algorithm, equal values by the next one. `scoring`: by the weighted sum of normalised values, the highest
    /// first.
    #[serde(default)]
    pub mode: PolicyMode,
    #[serde(default)]
    pub algorithms: Vec<AlgorithmUse>,
    /// Largest depth of a cascade of moves. 0: destinations must have room without further moves.
    #[serde(default, rename = "cascadeDepth")]
    pub cascade_depth: u32,
    /// Reasons for which apps of the project are moved although nobody needs their room. Absent: apps move only for newcomers and drains.
    #[serde(default, rename = "plannedMoves", skip_serializing_if = "Option::is_none")]
    pub planned_moves: Option<ReliefRules>,
    /// Whether it is the active policy of the project.
    #[serde(default)]
    pub active: bool,
}

impl Spec for PolicySpec {
    fn validate(&self, _: &str) -> Result<(), Invalid> {
        Invalid::unless_empty(self.wrong())
    }
    fn references(&self, _: &Place<'_>) -> Vec<Reference> {
        self.algorithms
            .iter()
            .map(|used| Reference { field: "spec.algorithms", path: format!("{}/{}", ALGORITHM.collection_path(), used.algorithm) })
            .collect()
    }
}

impl PolicySpec {
    /// The errors in the spec.
    pub fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.cascade_depth > 0 {
            wrong.push("spec.cascadeDepth: only 0 is supported; cascades come with a later version".to_owned());
        }
        wrong.extend(self.planned_moves.iter().flat_map(ReliefRules::wrong).map(|reason| format!("spec.plannedMoves: {reason}")));
        for (n, used) in self.algorithms.iter().enumerate() {
            if self.algorithms[..n].iter().any(|before| before.algorithm == used.algorithm) {
                wrong.push(format!("spec.algorithms: {} is named twice", used.algorithm));
            }
            if used.weight.is_some_and(|weight| !weight.is_finite() || weight < 0.0) {
                wrong.push(format!("spec.algorithms: the weight of {} is negative or not a number", used.algorithm));
            }
            if used.priority == Some(0) {
                wrong.push(format!("spec.algorithms: the priority of {} must be at least 1", used.algorithm));
            }
        }
        wrong
    }
}
