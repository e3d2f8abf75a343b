//! What takes longer than a request: durable workflows, a file each. The order of steps is explained where they are listed.

mod bring;
pub mod instantiate;
pub mod judge;
mod release;
pub mod relocate;
mod remove;
pub mod terminate;
pub mod update;

use drover_api::scheduling::AppRequest;
use drover_store::Timestamp;
use serde::{Deserialize, Serialize};

pub use instantiate::Instantiate;
pub use relocate::Relocate;
pub use remove::{SettleError, settle};
pub use terminate::Terminate;
pub use update::Update;

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
