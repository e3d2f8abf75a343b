//! Migration policies: in which order a project's newcomers take candidates. At most one of a project is active.

use drover_resources::{DocumentKind, Invalid, Place, Put, Reference, Spec};
use drover_scheduling::{AlgorithmUse, PolicyMode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::algorithm::ALGORITHM;

/// See the module.
pub static POLICY: DocumentKind =
    DocumentKind::of::<PolicySpec>("migration-policy", "MigrationPolicy", "migration-policies", &["migrationPolicy"])
        .below_foreign("Project", "/v2/projects/{project}")
        .put(Put::Upsert);

/// How algorithms make one order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PolicySpec {
    /// `order`: by the first algorithm, equal values by the next; `scoring`: weighted sum of normalised values, highest first.
    #[serde(default)]
    pub mode: PolicyMode,
    /// The algorithms.
    #[serde(default)]
    pub algorithms: Vec<AlgorithmUse>,
    /// How deep a cascade may go; 0: destinations must have room as they are.
    #[serde(default, rename = "cascadeDepth")]
    pub cascade_depth: u32,
    /// It is the one that counts.
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
    /// What breaks a rule in it.
    pub fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.cascade_depth > 0 {
            wrong.push("spec.cascadeDepth: cascades come with a later version; only 0 can be carried out".to_owned());
        }
        for (n, used) in self.algorithms.iter().enumerate() {
            if self.algorithms[..n].iter().any(|before| before.algorithm == used.algorithm) {
                wrong.push(format!("spec.algorithms: {} is named twice", used.algorithm));
            }
            if used.weight.is_some_and(|weight| !weight.is_finite() || weight < 0.0) {
                wrong.push(format!("spec.algorithms: the weight of {} is negative or no number", used.algorithm));
            }
            if used.priority == Some(0) {
                wrong.push(format!("spec.algorithms: the priority of {} starts at 1", used.algorithm));
            }
        }
        wrong
    }
}
