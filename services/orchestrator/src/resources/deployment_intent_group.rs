//! Deployment intent groups: a composite app that is to run with a profile on a logical cloud. The state of a group is in the
//! table `deployment`.

use std::collections::BTreeMap;

use drover_resources::{DocumentKind, Invalid, Place, Put, Reference, Spec, is_dns_label};
use drover_service::codes;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{COMPOSITE_APP, COMPOSITE_PROFILE, LOGICAL_CLOUD, PROJECT};

/// What is to run and where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeploymentIntentGroupSpec {
    /// Name of the composite profile with the values.
    #[serde(rename = "compositeProfile", alias = "profile")]
    pub composite_profile: String,
    /// Helm release name; a DNS label.
    pub version: String,
    /// Values that override those of the profile.
    #[serde(default, rename = "overrideValues", alias = "override-values")]
    pub override_values: Vec<OverrideValues>,
    /// Name of the logical cloud that it runs on.
    #[serde(rename = "logicalCloud", alias = "logical-cloud")]
    pub logical_cloud: String,
}

/// Override values of one app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OverrideValues {
    /// Name of the app.
    #[serde(alias = "app-name")]
    pub app: String,
    /// `key.path: value`, as for `--set` of helm.
    pub values: BTreeMap<String, String>,
}

impl Spec for DeploymentIntentGroupSpec {
    fn validate(&self, _: &str) -> Result<(), Invalid> {
        if !is_dns_label(&self.version) {
            return Err(Invalid::with(
                codes::NAME_NOT_DNS,
                format!("spec.version {:?} is not a DNS label; it is the name of the Helm release", self.version),
            ));
        }
        let long = self.override_values.iter().flat_map(|of| of.values.iter().map(move |(key, value)| (&of.app, key, value)));
        let long = long.filter(|(.., value)| value.chars().count() > 128);
        Invalid::unless_empty(
            long.map(|(app, key, _)| format!("spec.overrideValues: {key} of {app} is longer than 128 characters")).collect(),
        )
    }

    fn references(&self, at: &Place<'_>) -> Vec<Reference> {
        let composite_app = COMPOSITE_APP.within(at.path).unwrap_or_default();
        let project = PROJECT.within(at.path).unwrap_or_default();
        vec![
            Reference {
                field: "spec.compositeProfile",
                path: format!("{composite_app}/{}/{}", COMPOSITE_PROFILE.segment, self.composite_profile),
            },
            Reference { field: "spec.logicalCloud", path: format!("{project}/{}/{}", LOGICAL_CLOUD.segment, self.logical_cloud) },
        ]
    }
}

/// Deployment intent groups.
pub static DIG: DocumentKind = DocumentKind::of::<DeploymentIntentGroupSpec>(
    "deployment-intent-group",
    "DeploymentIntentGroup",
    "deployment-intent-groups",
    &["deploymentIntentGroup"],
)
.below(&COMPOSITE_APP)
.sealed(&[&["overrideValues", "*", "values"]])
.put(Put::Upsert);
