//! Client of migration: plans.

use async_trait::async_trait;
use drover_api::plans::{PlanAcceptance, PlanDocument, PlanOrder, ReliefList};
use drover_service::clients::migration::Client;
use drover_service::{Answer, Peer, PeerError};
use serde::Deserialize;
use uuid::Uuid;

/// The operations of migration that orchestrator uses. A method fails when migration is unavailable or refuses the request.
#[async_trait]
pub trait Migration: Send + Sync {
    /// Makes a plan, or returns the stored one of that id.
    async fn plan(&self, id: Uuid, order: &PlanOrder) -> Result<PlanDocument, PeerError>;
    /// The stored plan of that id, if there is one.
    async fn plan_read(&self, id: Uuid) -> Result<Option<PlanDocument>, PeerError>;
    /// Changes a plan from proposed to accepted for an operation. Repeating it for the same operation has no effect.
    async fn plan_accept(&self, id: Uuid, acceptance: &PlanAcceptance) -> Result<PlanDocument, PeerError>;
    /// The clusters from which an app should be moved now, as policies say.
    async fn reliefs(&self) -> Result<ReliefList, PeerError>;
    /// Whether migration has documents in this collection (`/v2/projects/p/migration-policies`).
    async fn has_documents(&self, collection: &str) -> Result<bool, PeerError>;
    /// The highest priority (1 to 10) that the migration intents of the group at this path give to an app; 10 without intents.
    async fn priority(&self, group: &str) -> Result<u8, PeerError>;
}

/// Priority of an app without a migration intent, which is moved last.
const LAST: u8 = 10;

/// The part of a document with its name.
#[derive(Deserialize)]
struct Named {
    metadata: Name,
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

/// The part of a migration app intent with its priority.
#[derive(Deserialize)]
struct AppIntent {
    spec: Priority,
}

#[derive(Deserialize)]
struct Priority {
    priority: u8,
}

/// Migration over REST: the generated client, and the peer itself for documents, whose path is a parameter.
pub struct RestMigration {
    client: Client,
    documents: Peer,
}

impl RestMigration {
    /// Uses this peer for both.
    pub fn new(peer: Peer) -> Self {
        Self { client: peer.clone().into(), documents: peer }
    }
}

#[async_trait]
impl Migration for RestMigration {
    async fn plan(&self, id: Uuid, order: &PlanOrder) -> Result<PlanDocument, PeerError> {
        self.client.plan_put(&id, order).await.answer(&self.client)
    }
    async fn plan_read(&self, id: Uuid) -> Result<Option<PlanDocument>, PeerError> {
        self.client.plan_get(&id).await.found(&self.client)
    }
    async fn plan_accept(&self, id: Uuid, acceptance: &PlanAcceptance) -> Result<PlanDocument, PeerError> {
        self.client.plan_accept(&id, acceptance).await.answer(&self.client)
    }
    async fn reliefs(&self) -> Result<ReliefList, PeerError> {
        self.client.relief_list().await.answer(&self.client)
    }
    async fn has_documents(&self, collection: &str) -> Result<bool, PeerError> {
        let page: Option<Vec<serde_json::Value>> = self.documents.find(&format!("{collection}?limit=1")).await?;
        Ok(page.is_some_and(|page| !page.is_empty()))
    }
    async fn priority(&self, group: &str) -> Result<u8, PeerError> {
        let collection = format!("{group}/migration-intents");
        let intents: Vec<Named> = self.documents.find(&collection).await?.unwrap_or_default();
        let mut highest = None;
        for Named { metadata: Name { name } } in intents {
            let apps: Vec<AppIntent> = self.documents.find(&format!("{collection}/{name}/app-intents")).await?.unwrap_or_default();
            highest = highest.max(apps.iter().map(|app| app.spec.priority).max());
        }
        Ok(highest.unwrap_or(LAST))
    }
}
