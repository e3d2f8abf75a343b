//! The services that orchestrator writes into, a trait each: the real ones over REST, in-memory ones in tests.
//!
//! A method per operation, named as in the service's OpenAPI document. Nothing here decides or repeats on its own beyond
//! what [`Peer`] does: workflow steps repeat themselves.

mod migration;
mod placement;
mod synchronizer;

use std::sync::Arc;

use drover_service::{Common, Peer};

pub use drover_service::PeerError;
pub use migration::Migration;
pub use placement::Placement;
pub use synchronizer::Synchronizer;

/// All of them.
#[derive(Clone)]
pub struct Services {
    /// The ledger.
    pub placement: Arc<dyn Placement>,
    /// Plans.
    pub migration: Arc<dyn Migration>,
    /// Bindings.
    pub synchronizer: Arc<dyn Synchronizer>,
}

impl Services {
    /// The real ones.
    pub fn over_rest(common: &Common) -> Self {
        let peer = |name, url| -> Peer { common.peer(name, url).attempts(2) };
        Self {
            placement: Arc::new(peer("placement", &common.peers.placement)),
            migration: Arc::new(peer("migration", &common.peers.migration)),
            synchronizer: Arc::new(peer("resource-synchronizer", &common.peers.resource_synchronizer)),
        }
    }
}
