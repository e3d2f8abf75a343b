//! The services that orchestrator writes into, a trait each: the generated clients, in-memory ones in tests.
//!
//! A method per operation that workflows need, in their words. Nothing here decides or repeats on its own beyond
//! what [`Peer`] does: workflow steps repeat themselves.

mod migration;
mod placement;
mod synchronizer;

use std::sync::Arc;
use std::time::Duration;

use drover_api::clients;
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
        // A thorough search for a plan takes its time, a large bundle too.
        let migration = peer("migration", &common.peers.migration).timeout_of("plan_put", Duration::from_secs(30));
        let synchronizer =
            peer("resource-synchronizer", &common.peers.resource_synchronizer).timeout_of("bundle_put", Duration::from_secs(30));
        Self {
            placement: Arc::new(peer("placement", &common.peers.placement).client::<clients::placement::Client>()),
            migration: Arc::new(migration::OverRest::new(migration)),
            synchronizer: Arc::new(synchronizer.client::<clients::resource_synchronizer::Client>()),
        }
    }
}
