//! Migration intents: the owner's consent to moves of apps of a deployment intent group.

use drover_resources::{DocumentKind, Echo, Invalid, NoSpec, Put, Spec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Kind of migration intents: a container for the app intents of a deployment intent group. No other document needs to name it.
pub static MIGRATION_INTENT: DocumentKind =
    DocumentKind::of::<NoSpec>("migration-intent", "MigrationIntent", "migration-intents", &["migrationIntent"])
        .below_foreign(
            "DeploymentIntentGroup",
            "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}",
        )
        .put(Put::Upsert)
        .echo(Echo::Never);

/// Kind of app intents.
pub static APP_INTENT: DocumentKind =
    DocumentKind::of::<AppIntentSpec>("migration-app-intent", "MigrationAppIntent", "app-intents", &["appIntent"])
        .below(&MIGRATION_INTENT)
        .put(Put::Upsert)
        .filters(&[("app", "app")])
        .tag("migration-intents");

/// Whether an app may be moved, and its priority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppIntentSpec {
    /// Name of the app.
    pub app: String,
    /// Whether its owner agrees to moves.
    pub migration: bool,
    /// Priority 1 to 10; a lower one is moved first.
    #[serde(default = "last")]
    pub priority: u8,
}

fn last() -> u8 {
    10
}

impl Spec for AppIntentSpec {
    fn validate(&self, _: &str) -> Result<(), Invalid> {
        let mut wrong = Vec::new();
        if self.app.is_empty() {
            wrong.push("spec.app is empty".to_owned());
        }
        if !(1..=10).contains(&self.priority) {
            wrong.push("spec.priority must be 1 (moved first) to 10".to_owned());
        }
        Invalid::unless_empty(wrong)
    }
}
