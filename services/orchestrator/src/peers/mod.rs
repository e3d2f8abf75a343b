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

/// Peer and operation of what takes longer than the default timeout: a thorough search for a plan, a large bundle, a user's certificate.
const SLOW: [(&str, &str); 3] =
    [("migration", "plan_put"), ("resource-synchronizer", "bindings_put"), ("cluster-manager", "member_user_put")];

impl Services {
    /// Clients over REST. Each request is tried at most twice.
    pub fn over_rest(common: &Common) -> Self {
        let peer = |name: &'static str, url| -> Peer {
            let slow = SLOW.iter().filter(|(peer, _)| *peer == name);
            slow.fold(common.peer(name, url).attempts(2), |peer, (_, operation)| peer.timeout_of(operation, Duration::from_secs(30)))
        };
        let migration = peer("migration", &common.peers.migration);
        let synchronizer = peer("resource-synchronizer", &common.peers.resource_synchronizer);
        let cluster_manager = peer("cluster-manager", &common.peers.cluster_manager);
        Self {
            placement: Arc::new(clients::placement::Client::from(peer("placement", &common.peers.placement))),
            migration: Arc::new(migration::RestMigration::new(migration)),
            synchronizer: Arc::new(clients::resource_synchronizer::Client::from(synchronizer)),
            cluster_manager: Arc::new(cluster_manager::RestClusterManager::new(cluster_manager)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_operations_are_operations_of_their_peers() {
        for (peer, operation) in SLOW {
            let document = std::fs::read_to_string(format!("{}/../../openapi/{peer}.json", env!("CARGO_MANIFEST_DIR"))).unwrap();
            assert!(document.contains(&format!("\"operationId\": \"{operation}\"")), "{peer} has no {operation}");
        }
    }
}
