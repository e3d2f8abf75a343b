//! Migration: plans.

use async_trait::async_trait;
use drover_api::plans::{PlanAcceptance, PlanDocument, PlanOrder};
use drover_service::{Peer, PeerError};
use uuid::Uuid;

/// What orchestrator asks of migration.
#[async_trait]
pub trait Migration: Send + Sync {
    /// Makes a plan, or gives the stored one of that id.
    async fn plan(&self, id: Uuid, order: &PlanOrder) -> Result<PlanDocument, PeerError>;
    /// A stored plan.
    async fn plan_read(&self, id: Uuid) -> Result<Option<PlanDocument>, PeerError>;
    /// proposed -> accepted for this operation; again for the same one is fine.
    async fn plan_accept(&self, id: Uuid, acceptance: &PlanAcceptance) -> Result<PlanDocument, PeerError>;
    /// Whether it has documents in this collection (`/v2/projects/p/migration-policies`).
    async fn has_documents(&self, collection: &str) -> Result<bool, PeerError>;
}

#[async_trait]
impl Migration for Peer {
    async fn plan(&self, id: Uuid, order: &PlanOrder) -> Result<PlanDocument, PeerError> {
        // A thorough search takes its time.
        self.clone().timeout(std::time::Duration::from_secs(30)).put(&format!("/internal/plans/{id}"), order).await
    }
    async fn plan_read(&self, id: Uuid) -> Result<Option<PlanDocument>, PeerError> {
        self.find(&format!("/v2/plans/{id}")).await
    }
    async fn plan_accept(&self, id: Uuid, acceptance: &PlanAcceptance) -> Result<PlanDocument, PeerError> {
        self.put(&format!("/internal/plans/{id}/state"), acceptance).await
    }
    async fn has_documents(&self, collection: &str) -> Result<bool, PeerError> {
        let page: Option<Vec<serde_json::Value>> = self.find(&format!("{collection}?limit=1")).await?;
        Ok(page.is_some_and(|page| !page.is_empty()))
    }
}
