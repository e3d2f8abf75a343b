//! Use cases: make and change plans, test policies, follow the fleet.

mod error;
mod fleet;
mod input;
mod meter;
mod outcomes;
mod plans;
mod policies;
mod prometheus;
mod reliefs;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRef;
use drover_resources::Documents;
use drover_service::Common;
use drover_service::clients::orchestrator;
use drover_store::{MigrationSet, Store, StoreConfig};
use tokio::sync::Notify;

pub use error::PlanError;
pub use fleet::FleetCopy;
pub use input::PlanInput;
pub use meter::TimeMeter;
pub use policies::{PolicyTest, PolicyTestResult};
use prometheus::Prometheus;

use crate::Config;
use crate::resources::builtin;
use crate::resources::rules::Rules;

/// The state of the service for handlers and tasks; cheap to clone.
#[derive(Clone)]
pub struct App {
    pub(crate) store: Store,
    pub(crate) documents: Documents,
    pub(crate) orchestrator: orchestrator::Client,
    pub(crate) fleet: FleetCopy,
    /// Notified when a plan is stored, whose end is to be recorded.
    pub(crate) open_plans: Arc<Notify>,
    /// Where apps suffer, as policies say.
    pub(crate) reliefs: Arc<reliefs::Reliefs>,
    prometheus: Prometheus,
    /// Time limit of a plan whose order names none.
    plan_time: Duration,
    keep_plans_days: u16,
}

impl FromRef<App> for Documents {
    fn from_ref(app: &App) -> Self {
        app.documents.clone()
    }
}

impl App {
    /// Connects the store and makes the built-in documents.
    ///
    /// # Errors
    /// The database is unavailable, a migration fails, a built-in document cannot be made, or the time limit of plans is invalid.
    pub async fn connect(config: &Config, common: &Common) -> anyhow::Result<Self> {
        let sets = [drover_resources::migrations(), MigrationSet::new("migration", sqlx::migrate!("../../migrations/migration"))];
        let store = Store::connect(&StoreConfig::new("migration", common.database_url.clone()), &sets).await?;
        let orchestrator: orchestrator::Client = common.peer("orchestrator", &common.peers.orchestrator).into();
        let documents = Documents::new(store.clone(), Rules { orchestrator: orchestrator.clone() });
        builtin::make(&documents).await?;
        Ok(Self {
            store,
            documents,
            orchestrator,
            fleet: FleetCopy::default(),
            open_plans: Arc::default(),
            reliefs: Arc::default(),
            prometheus: Prometheus::new(config.prometheus.clone()),
            plan_time: plans::time_limit(config.plan_seconds)?,
            keep_plans_days: config.keep_plans_days,
        })
    }
}
