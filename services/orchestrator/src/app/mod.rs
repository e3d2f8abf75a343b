//! Use cases, independent of the transport. Handlers call them; what takes longer than a request is left to workflows.

mod actions;
pub mod agents;
pub mod approve;
mod apps;
pub mod basis;
pub mod bounds;
pub mod callers;
mod calls;
pub mod claims;
mod cloud_objects;
pub mod cloud_parts;
pub mod controllers;
mod dependencies;
mod error;
pub mod everywhere;
mod explain;
pub mod extension;
pub mod grants;
pub mod group;
pub mod growth;
pub mod guard;
mod intent_change;
mod lifecycle;
pub mod logical_cloud;
pub mod lookup;
pub mod measured;
mod migrate;
mod newcomer;
pub mod notes;
pub mod operations;
mod plans;
pub mod preflight;
pub mod preview;
pub mod reliefs;
pub mod revisions;
pub mod routes;
mod status;
pub mod status_view;
mod stop;
pub mod terms;
pub mod tests;

use std::sync::Arc;

use axum::extract::FromRef;
use drover_resources::Documents;
use drover_store::Store;
use drover_workflow::Engine;

use crate::environment::Environment;
use crate::peers::Services;
use crate::render::Renderer;
use crate::wake_signal::WakeSignal;

pub use error::Error;
pub use group::Group;

pub use crate::group_path::GroupPath;

/// What handlers and tasks work with. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Parts>);

/// The parts of [`App`].
pub struct Parts {
    pub store: Store,
    /// Reads and writes documents for HTTP.
    pub documents: Documents,
    pub services: Services,
    pub renderer: Arc<dyn Renderer>,
    pub environment: Arc<Environment>,
    pub engine: Engine,
    /// Wakes the task `retire`.
    pub retire: WakeSignal,
    /// Calls the controllers of users.
    pub controllers: controllers::ControllerCalls,
    /// Spans that were counted but not stored yet.
    pub measured: measured::Measured,
    /// What agents reported last.
    pub agent_reports: agents::Reports,
    /// Copies whose claims differ from what was approved.
    pub resized: claims::Resized,
    /// Copies whose claims do not follow what runs.
    pub unclaimed: claims::Unclaimed,
    /// When room was made for those.
    pub growth: growth::GrowthAttempts,
    /// Where apps suffer and no plan helped.
    pub relief_attempts: reliefs::ReliefAttempts,
    /// How bounds over all members are being divided.
    pub dividing: bounds::Dividing,
    /// Seconds that a copy must lack pods before such bounds follow demand.
    pub bounds_patience: f64,
}

impl App {
    /// Builds the app from its parts.
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }
}

impl std::ops::Deref for App {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl FromRef<App> for Documents {
    fn from_ref(app: &App) -> Self {
        app.documents.clone()
    }
}
