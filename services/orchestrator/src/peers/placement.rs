//! Client of placement: decisions and the ledger.

use async_trait::async_trait;
use drover_api::ledger::{ClaimHead, ExplainQuestion, Explanation, LedgerReceipt, LedgerTransaction};
use drover_api::scheduling::{Claim, Decision, DecisionRequest};
use drover_service::clients::placement::Client;
use drover_service::{Answer, PeerError};
use uuid::Uuid;

/// The operations of placement that orchestrator uses. A method fails when placement is unavailable or refuses the request.
#[async_trait]
pub trait Placement: Send + Sync {
    /// Decides and claims the room, or returns the stored decision of that id.
    async fn decide(&self, id: Uuid, request: &DecisionRequest) -> Result<Decision, PeerError>;
    /// What [`Placement::decide`] would decide now; nothing is written.
    async fn decide_dry(&self, request: &DecisionRequest) -> Result<Decision, PeerError>;
    /// Changes the ledger, or returns the stored receipt of that id.
    async fn transact(&self, id: Uuid, transaction: &LedgerTransaction) -> Result<LedgerReceipt, PeerError>;
    /// What [`Placement::transact`] would return now; nothing is written.
    async fn transact_dry(&self, transaction: &LedgerTransaction) -> Result<LedgerReceipt, PeerError>;
    /// Why an app runs where it does, and what would be decided now.
    async fn explain(&self, question: &ExplainQuestion) -> Result<Explanation, PeerError>;
    /// Claims last written by an operation.
    async fn claims_of(&self, operation: Uuid) -> Result<Vec<Claim>, PeerError>;
    /// All claims, without the requests of their apps.
    async fn claims(&self) -> Result<Vec<ClaimHead>, PeerError>;
}

#[async_trait]
impl Placement for Client {
    async fn decide(&self, id: Uuid, request: &DecisionRequest) -> Result<Decision, PeerError> {
        self.decision_put(&id, request).await.answer(self)
    }
    async fn decide_dry(&self, request: &DecisionRequest) -> Result<Decision, PeerError> {
        self.decision_dry_run(request).await.answer(self)
    }
    async fn transact(&self, id: Uuid, transaction: &LedgerTransaction) -> Result<LedgerReceipt, PeerError> {
        self.transaction_put(&id, transaction).await.answer(self)
    }
    async fn transact_dry(&self, transaction: &LedgerTransaction) -> Result<LedgerReceipt, PeerError> {
        self.transaction_dry_run(transaction).await.answer(self)
    }
    async fn explain(&self, question: &ExplainQuestion) -> Result<Explanation, PeerError> {
        self.explanation(question).await.answer(self)
    }
    async fn claims_of(&self, operation: Uuid) -> Result<Vec<Claim>, PeerError> {
        Ok(self.claim_list(None, None, Some(&operation)).await.answer(self)?.items)
    }
    async fn claims(&self) -> Result<Vec<ClaimHead>, PeerError> {
        Ok(self.claim_heads().await.answer(self)?.items)
    }
}
