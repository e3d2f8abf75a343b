//! The services that orchestrator writes into, with one trait each. The generated clients implement them; tests have
//! implementations in memory.
//!
//! There is one method per operation that workflows need. Nothing here retries beyond what [`Peer`] does, because workflow
//! steps are retried themselves.

mod cluster_manager;
mod migration;
mod placement;
mod synchronizer;

use std::sync::Arc;
use std::time::Duration;

use drover_service::{Common, Peer, clients};

pub use cluster_manager::ClusterManager;
pub use drover_service::PeerError;
pub use migration::Migration;
pub use placement::Placement;
pub use synchronizer::Synchronizer;

/// The services that orchestrator writes into.
#[derive(Clone)]
pub struct Services {
    pub placement: Arc<dyn Placement>,
    pub migration: Arc<dyn Migration>,
    pub synchronizer: Arc<dyn Synchronizer>,
    pub cluster_manager: Arc<dyn ClusterManager>,
}

impl Services {
    /// Clients over REST. Each request is tried at most twice.
    pub fn over_rest(common: &Common) -> Self {
        let peer = |name, url| -> Peer { common.peer(name, url).attempts(2) };
        // A thorough search for a plan and a large bundle take longer than the default timeout.
        let migration = peer("migration", &common.peers.migration).timeout_of("plan_put", Duration::from_secs(30));
        let synchronizer =
            peer("resource-synchronizer", &common.peers.resource_synchronizer).timeout_of("bundle_put", Duration::from_secs(30));
        // A cluster's authority takes a moment to sign.
        let cluster_manager = peer("cluster-manager", &common.peers.cluster_manager).timeout_of("member_user_put", Duration::from_secs(30));
        Self {
            placement: Arc::new(clients::placement::Client::from(peer("placement", &common.peers.placement))),
            migration: Arc::new(migration::RestMigration::new(migration)),
            synchronizer: Arc::new(clients::resource_synchronizer::Client::from(synchronizer)),
            cluster_manager: Arc::new(cluster_manager::RestClusterManager::new(cluster_manager)),
        }
    }
}
