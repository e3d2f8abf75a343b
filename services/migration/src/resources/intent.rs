//! Migration intents: their owner's word on which apps of a deployment intent group may be moved.

use drover_resources::{DocumentKind, Echo, Invalid, NoSpec, Put, Spec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Groups the words on the apps of a deployment intent group. It acts without being named anywhere.
pub static MIGRATION_INTENT: DocumentKind =
    DocumentKind::of::<NoSpec>("migration-intent", "MigrationIntent", "migration-intents", &["migrationIntent"])
        .below_foreign(
            "DeploymentIntentGroup",
            "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}",
        )
        .put(Put::Upsert)
        .echo(Echo::Never);

/// One app's.
pub static APP_INTENT: DocumentKind =
    DocumentKind::of::<AppIntentSpec>("migration-app-intent", "MigrationAppIntent", "app-intents", &["appIntent"])
        .below(&MIGRATION_INTENT)
        .put(Put::Upsert)
        .filters(&[("app", "app")])
        .tag("migration-intents");

/// Whether an app may be moved, and how soon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppIntentSpec {
    /// App.
    pub app: String,
    /// May it be moved: its owner's consent.
    pub migration: bool,
    /// 1 to 10, lower is moved first.
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
            wrong.push("spec.priority: 1 (moved first) to 10".to_owned());
        }
        Invalid::unless_empty(wrong)
    }
}
