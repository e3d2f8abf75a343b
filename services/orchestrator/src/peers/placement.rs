//! Placement: decisions and the ledger.

use async_trait::async_trait;
use drover_api::ledger::{Claims, LedgerReceipt, LedgerTransaction};
use drover_api::scheduling::{Claim, Decision, DecisionRequest};
use drover_service::{Peer, PeerError};
use uuid::Uuid;

/// What orchestrator asks of placement.
#[async_trait]
pub trait Placement: Send + Sync {
    /// Decides and claims, or gives the stored answer of that id.
    async fn decide(&self, id: Uuid, request: &DecisionRequest) -> Result<Decision, PeerError>;
    /// Decides without writing.
    async fn decide_dry(&self, request: &DecisionRequest) -> Result<Decision, PeerError>;
    /// Changes the ledger, or gives the stored receipt of that id.
    async fn transact(&self, id: Uuid, transaction: &LedgerTransaction) -> Result<LedgerReceipt, PeerError>;
    /// Claims last written by an operation.
    async fn claims_of(&self, operation: Uuid) -> Result<Vec<Claim>, PeerError>;
    /// All claims.
    async fn claims(&self) -> Result<Vec<Claim>, PeerError>;
}

#[async_trait]
impl Placement for Peer {
    async fn decide(&self, id: Uuid, request: &DecisionRequest) -> Result<Decision, PeerError> {
        self.put(&format!("/internal/decisions/{id}"), request).await
    }
    async fn decide_dry(&self, request: &DecisionRequest) -> Result<Decision, PeerError> {
        self.post("/internal/decisions/dry-run", request).await
    }
    async fn transact(&self, id: Uuid, transaction: &LedgerTransaction) -> Result<LedgerReceipt, PeerError> {
        self.put(&format!("/internal/transactions/{id}"), transaction).await
    }
    async fn claims_of(&self, operation: Uuid) -> Result<Vec<Claim>, PeerError> {
        Ok(self.get::<Claims>(&format!("/internal/claims?operation={operation}")).await?.items)
    }
    async fn claims(&self) -> Result<Vec<Claim>, PeerError> {
        Ok(self.get::<Claims>("/internal/claims").await?.items)
    }
}
