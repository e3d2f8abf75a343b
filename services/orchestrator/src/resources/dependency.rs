//! Dependencies between the apps of a composite app: in which order they are started.

use drover_resources::{DocumentKind, Invalid, Place, Reference, Spec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{APP, COMPOSITE_APP};

/// The app that another one waits for at the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DependencySpec {
    /// The app that must be started first.
    pub app: String,
    /// The state that it must have reached: `Ready` or `Deployed`, in any letter case.
    #[serde(rename = "opStatus", alias = "opstatus")]
    pub op_status: String,
    /// Seconds to wait after it has reached the state.
    #[serde(default)]
    #[schema(maximum = 4096)]
    pub wait: u32,
}

impl DependencySpec {
    /// Whether the other app must be Ready; otherwise it must only be applied.
    pub fn wants_ready(&self) -> bool {
        self.op_status.eq_ignore_ascii_case("ready")
    }
}

impl Spec for DependencySpec {
    fn validate(&self, _: &str) -> Result<(), Invalid> {
        let mut reasons = Vec::new();
        if !self.wants_ready() && !self.op_status.eq_ignore_ascii_case("deployed") {
            reasons.push("spec.opStatus must be Ready or Deployed".to_owned());
        }
        if self.wait > 4096 {
            reasons.push("spec.wait must be at most 4096 seconds".to_owned());
        }
        Invalid::unless_empty(reasons)
    }

    fn references(&self, at: &Place<'_>) -> Vec<Reference> {
        let composite_app = COMPOSITE_APP.within(at.path).unwrap_or_default();
        vec![Reference { field: "spec.app", path: format!("{composite_app}/{}/{}", APP.segment, self.app) }]
    }
}

/// Dependencies.
pub static DEPENDENCY: DocumentKind =
    DocumentKind::of::<DependencySpec>("dependency", "AppDependency", "dependency", &["dependency"]).below(&APP);
