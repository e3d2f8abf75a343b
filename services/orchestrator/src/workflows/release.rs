//! Giving back claims that no binding explains yet.

use drover_api::ledger::{LedgerChange, LedgerTransaction};
use drover_workflow::StepError;
use uuid::Uuid;

use crate::environment::Environment;
use crate::store::binding;

/// Releases those of `claims` that no binding explains (a copy that is still in a member keeps its room until it is gone).
/// `id` names the transaction; `fence` is higher than that of whoever may still be taking them.
pub async fn release_unexplained(world: &Environment, id: Uuid, operation: Uuid, fence: i64, claims: &[Uuid]) -> Result<(), StepError> {
    let explained = binding::explained(&mut *world.store.pool().acquire().await?, claims).await?;
    let changes: Vec<_> =
        claims.iter().filter(|claim| !explained.contains(claim)).map(|claim| LedgerChange::Release { claim: *claim }).collect();
    if changes.is_empty() {
        return Ok(());
    }
    world.services.placement.transact(id, &LedgerTransaction { operation, fence, changes }).await?;
    Ok(())
}
