//! Releasing claims that no binding explains.

use drover_api::ledger::{LedgerChange, LedgerTransaction};
use drover_workflow::StepError;
use uuid::Uuid;

use crate::environment::Environment;
use crate::store::binding;

/// Releases those of `claims` that no binding explains: a copy that may still run keeps its room until it is gone.
///
/// `id` names the ledger transaction. `fence` must be higher than that of every request that may still take one of the claims.
///
/// # Errors
///
/// Retry if the database or placement does not answer, or placement refuses the release.
pub async fn release_unexplained(
    environment: &Environment,
    id: Uuid,
    operation: Uuid,
    fence: i64,
    claims: &[Uuid],
) -> Result<(), StepError> {
    let explained = binding::explained(&mut *environment.store.acquire().await?, claims).await?;
    let changes: Vec<_> =
        claims.iter().filter(|claim| !explained.contains(claim)).map(|claim| LedgerChange::Release { claim: *claim }).collect();
    if changes.is_empty() {
        return Ok(());
    }
    environment.services.placement.transact(id, &LedgerTransaction { operation, fence, changes }).await?;
    Ok(())
}
