//! What takes longer than a request: durable workflows, a file each. The order of steps is explained where they are listed.

mod bring;
pub mod instantiate;
pub mod judge;
mod release;
pub mod relocate;
mod remove;
pub mod room;
pub mod terminate;
pub mod update;

use std::sync::Arc;

use drover_api::scheduling::AppRequest;
use drover_store::Timestamp;
use drover_workflow::{Failpoint, Registry};
use serde::{Deserialize, Serialize};

use crate::world::World;

pub use instantiate::Instantiate;
pub use relocate::Relocate;
pub use remove::{SettleError, settle};
pub use terminate::Terminate;
pub use update::Update;

/// Services that steps have their effects in, as they call themselves.
const PLACEMENT: &str = "placement";
const MIGRATION: &str = "migration";
const SYNCHRONIZER: &str = "resource-synchronizer";

/// All kinds, at work in this world.
pub fn registry(world: &Arc<World>) -> Registry {
    Registry::new()
        .with::<Instantiate>(world.clone())
        .with::<Terminate>(world.clone())
        .with::<Relocate>(world.clone())
        .with::<Update>(world.clone())
}

/// Where the workflows of this service can be stopped: all kinds, in the order of their tables.
pub fn failpoints() -> Vec<Failpoint> {
    use drover_workflow::failpoints as of;
    [of::<Instantiate>(), of::<Relocate>(), of::<Update>(), of::<Terminate>()].concat()
}

/// An app to be run somewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delivery {
    /// What it needs and where it may go.
    pub request: AppRequest,
    /// Its bundle.
    pub digest: String,
    /// Namespace of objects that name none.
    pub namespace: String,
    /// Apps of its group that must be there first.
    #[serde(default)]
    pub after: Vec<After>,
}

impl Delivery {
    /// The app's name.
    pub fn app(&self) -> &str {
        &self.request.app
    }
}

/// One dependency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct After {
    /// The app that must be there first.
    pub app: String,
    /// It must be Ready, not only applied.
    pub ready: bool,
    /// Seconds to wait after that.
    pub wait_s: u32,
}

/// The time now, as the journal writes it.
fn now() -> Timestamp {
    drover_store::now()
}
