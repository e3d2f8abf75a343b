//! Client of cluster-manager: closing a cluster that is drained.

use async_trait::async_trait;
use drover_api::members::CordonOrder;
use drover_api::scheduling::MemberKey;
use drover_service::clients::cluster_manager::Client;
use drover_service::{Answer, PeerError};

/// The operations of cluster-manager that orchestrator uses.
#[async_trait]
pub trait ClusterManager: Send + Sync {
    /// Closes a cluster to new copies of apps, which may be repeated. Fails when cluster-manager is unavailable or knows no such cluster.
    async fn cordon(&self, member: &MemberKey, reason: &str) -> Result<(), PeerError>;
}

#[async_trait]
impl ClusterManager for Client {
    async fn cordon(&self, member: &MemberKey, reason: &str) -> Result<(), PeerError> {
        let order = CordonOrder { reason: reason.to_owned(), abandoned: false };
        self.cluster_cordon(member.provider(), member.cluster(), None, &order).await.answer(self).map(drop)
    }
}
