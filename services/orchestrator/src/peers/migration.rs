//! Migration: plans.

use async_trait::async_trait;
use drover_api::clients::migration::Client;
use drover_api::plans::{PlanAcceptance, PlanDocument, PlanOrder};
use drover_service::{Answer, Peer, PeerError};
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

/// The real one: its client, and the bare way to it for documents, where the path is a value.
pub struct OverRest {
    client: Client,
    documents: Peer,
}

impl OverRest {
    /// Both by the same way.
    pub fn new(peer: Peer) -> Self {
        Self { client: peer.clone().client(), documents: peer }
    }
}

#[async_trait]
impl Migration for OverRest {
    async fn plan(&self, id: Uuid, order: &PlanOrder) -> Result<PlanDocument, PeerError> {
        self.client.plan_put(&id, order).await.answer(&self.client)
    }
    async fn plan_read(&self, id: Uuid) -> Result<Option<PlanDocument>, PeerError> {
        self.client.plan_get(&id).await.found(&self.client)
    }
    async fn plan_accept(&self, id: Uuid, acceptance: &PlanAcceptance) -> Result<PlanDocument, PeerError> {
        self.client.plan_accept(&id, acceptance).await.answer(&self.client)
    }
    async fn has_documents(&self, collection: &str) -> Result<bool, PeerError> {
        let page: Option<Vec<serde_json::Value>> = self.documents.find(&format!("{collection}?limit=1")).await?;
        Ok(page.is_some_and(|page| !page.is_empty()))
    }
}
