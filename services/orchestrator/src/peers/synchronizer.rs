//! Resource-synchronizer: what shall be in the members. What is there comes by feed (`tasks::follow`).

use async_trait::async_trait;
use drover_api::bindings::{Bundle, DesiredBinding};
use drover_service::{Peer, PeerError};
use serde_json::Value;
use uuid::Uuid;

/// What orchestrator asks of resource-synchronizer.
#[async_trait]
pub trait Synchronizer: Send + Sync {
    /// Stores rendered objects under their digest.
    async fn put_bundle(&self, digest: &str, bundle: &Bundle) -> Result<(), PeerError>;
    /// Says what shall be true of a binding.
    async fn put_binding(&self, binding: &DesiredBinding) -> Result<(), PeerError>;
    /// Forgets a binding that is gone.
    async fn forget_binding(&self, binding: Uuid) -> Result<(), PeerError>;
}

#[async_trait]
impl Synchronizer for Peer {
    async fn put_bundle(&self, digest: &str, bundle: &Bundle) -> Result<(), PeerError> {
        let path = format!("/internal/bundles/{}", drover_service::peer::segment(digest));
        self.clone().timeout(std::time::Duration::from_secs(30)).put::<_, Value>(&path, bundle).await.map(drop)
    }
    async fn put_binding(&self, binding: &DesiredBinding) -> Result<(), PeerError> {
        self.put::<_, Value>(&format!("/internal/bindings/{}", binding.id), binding).await.map(drop)
    }
    async fn forget_binding(&self, binding: Uuid) -> Result<(), PeerError> {
        self.delete(&format!("/internal/bindings/{binding}")).await
    }
}
