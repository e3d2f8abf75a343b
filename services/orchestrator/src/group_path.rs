//! The path of a deployment intent group.

use drover_api::scheduling::DigRef;

/// The names in the path of a deployment intent group.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
pub struct GroupPath {
    pub project: String,
    /// Composite app.
    #[serde(rename = "compositeApp")]
    pub composite_app: String,
    /// Its version.
    #[serde(rename = "compositeAppVersion")]
    pub composite_app_version: String,
    /// Deployment intent group.
    #[serde(rename = "deploymentIntentGroup")]
    pub deployment_intent_group: String,
}

impl GroupPath {
    /// The path of this group.
    pub fn of(dig: &DigRef) -> Self {
        Self {
            project: dig.project.clone(),
            composite_app: dig.composite_app.clone(),
            composite_app_version: dig.version.clone(),
            deployment_intent_group: dig.name.clone(),
        }
    }

    /// The document's path.
    pub fn path(&self) -> String {
        format!(
            "/v2/projects/{}/composite-apps/{}/{}/deployment-intent-groups/{}",
            self.project, self.composite_app, self.composite_app_version, self.deployment_intent_group
        )
    }
}
