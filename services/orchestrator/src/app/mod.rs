//! Use cases, transport-free: handlers call them, workflows do what takes longer than a request.

pub mod approve;
mod apps;
mod calls;
mod dependencies;
mod error;
pub mod group;
pub mod guard;
mod lifecycle;
pub mod logical_cloud;
pub mod lookup;
pub mod measured;
pub mod operations;
mod plans;
pub mod preview;
mod status;
pub mod status_view;
pub mod terms;

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
pub use group::{Group, GroupPath};

/// What handlers, workflows and tasks work with. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Parts>);

/// The parts of [`App`].
pub struct Parts {
    /// Database.
    pub store: Store,
    /// Documents over HTTP.
    pub documents: Documents,
    /// Those it writes into.
    pub services: Services,
    /// Renders charts.
    pub renderer: Arc<dyn Renderer>,
    /// What workflows and tasks reach.
    pub environment: Arc<Environment>,
    /// Runs the workflows.
    pub engine: Engine,
    /// Wakes task `retire`.
    pub retire: WakeSignal,
    /// Spans as they are counted.
    pub measured: measured::Measured,
}

impl App {
    /// From its parts.
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
