//! Resource-synchronizer: what shall be in the members. What is there comes by feed (`tasks::follow`).

use async_trait::async_trait;
use drover_api::bindings::{Bundle, DesiredBinding};
use drover_api::clients::resource_synchronizer::Client;
use drover_service::{Answer, PeerError};
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
impl Synchronizer for Client {
    async fn put_bundle(&self, digest: &str, bundle: &Bundle) -> Result<(), PeerError> {
        self.bundle_put(digest, bundle).await.answer(self).map(drop)
    }
    async fn put_binding(&self, binding: &DesiredBinding) -> Result<(), PeerError> {
        self.binding_put(&binding.id, binding).await.answer(self).map(drop)
    }
    async fn forget_binding(&self, binding: Uuid) -> Result<(), PeerError> {
        self.binding_delete(&binding).await.found(self).map(drop)
    }
}
